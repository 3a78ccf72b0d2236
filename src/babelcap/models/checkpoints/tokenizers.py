"""A captioner's two tokenizers: beside the model or named, and whether they are the model's own."""

from pathlib import Path

from transformers import AutoTokenizer, PreTrainedTokenizerBase

from babelcap.errors import UserError
from babelcap.models.checkpoints.files import DECODER_TOKENIZER, ENCODER_TOKENIZER, PROCESSOR_FILES
from babelcap.models.network.configuration import CaptionerConfig
from babelcap.storage import require_manifest


def load_tokenizer(path_or_id: str | Path) -> PreTrainedTokenizerBase:
    """Of a folder or hub id, from where nothing but the tokenizer comes. No code of theirs is run."""
    try:
        return AutoTokenizer.from_pretrained(path_or_id, trust_remote_code=False)
    except BaseException as error:  # the tokenizers library raises bare exceptions, and panics that are none
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path_or_id}: no tokenizer can be read from it ({reason})") from None


def load_tokenizers(
    folder: Path, encoder: str | Path | None = None, decoder: str | Path | None = None
) -> tuple[PreTrainedTokenizerBase, PreTrainedTokenizerBase]:
    """Those beside a model, unless others are named by folder or hub id."""
    require_manifest(folder, only=PROCESSOR_FILES)
    missing = missing_tokenizers(folder, encoder, decoder)
    if missing:
        options = " and ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise UserError(
            f"{folder / missing[0]}: no such tokenizer; name the one this model was trained with by {options} "
            f"(in Python {', '.join(f'{name}=...' for name in missing)})"
        )
    return load_tokenizer(encoder or folder / ENCODER_TOKENIZER), load_tokenizer(decoder or folder / DECODER_TOKENIZER)


def missing_tokenizers(folder: Path, encoder: str | Path | None, decoder: str | Path | None) -> list[str]:
    named = {ENCODER_TOKENIZER: encoder, DECODER_TOKENIZER: decoder}
    return [name for name, elsewhere in named.items() if elsewhere is None and not (folder / name).is_dir()]


def check_tokenizers(
    config: CaptionerConfig, encoder: PreTrainedTokenizerBase, decoder: PreTrainedTokenizerBase
) -> None:
    """Stops where a tokenizer has more tokens than the model has rows, or the decoder's special ones differ."""
    sides = {"encoder": (encoder, config.encoder_config.vocab_size), "decoder": (decoder, config.vocab_size)}
    for side, (tokenizer, vocab_size) in sides.items():
        if len(tokenizer) > vocab_size:
            raise UserError(
                f"the {side}'s tokenizer has {len(tokenizer)} tokens, its vocabulary {vocab_size}; "
                "they do not belong together"
            )
    for name in ("pad_token_id", "bos_token_id", "eos_token_id"):
        ours, theirs = getattr(config, name), getattr(decoder, name)
        if ours is not None and theirs is not None and ours != theirs:
            raise UserError(
                f"the decoder's tokenizer has {name} {theirs}, the model {ours}; they do not belong together"
            )
