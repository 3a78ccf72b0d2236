"""The configuration of a captioner made of others' parts, taken from theirs and checked against the size asked for."""

from pathlib import Path
from typing import Any

from transformers import BartConfig, Florence2VisionConfig, Gemma2Config, Gemma3TextConfig, PreTrainedConfig

from babelcap.errors import UserError
from babelcap.models.checkpoints.loading import build_captioner_config
from babelcap.models.checkpoints.published import convert_config
from babelcap.models.checkpoints.weights import Checkpoint
from babelcap.models.network.configuration import CaptionerConfig
from babelcap.models.sizing.sizes import SIZES, Size, get_size

AUTOMATIC = {"auto-florence": "florence", "auto-gemma": "gemma"}
GEMMA_KINDS: dict[str, tuple[str, type[PreTrainedConfig]]] = {
    "gemma2": ("gemma2", Gemma2Config),
    "gemma3_text": ("gemma3", Gemma3TextConfig),
}
# BART's settings that a captioner's encoder and decoder take over; the rest concerns BART's own head and vocabulary.
BART_FIELDS = (
    "max_position_embeddings", "d_model", "scale_embedding", "init_std", "activation_function",
    "encoder_ffn_dim", "encoder_layers", "encoder_attention_heads", "encoder_layerdrop",
    "decoder_ffn_dim", "decoder_layers", "decoder_attention_heads", "decoder_layerdrop",
    "dropout", "attention_dropout", "activation_dropout",
)  # fmt: skip
ROWS_MULTIPLE = 64  # vocabularies of `auto` sizes are padded to it


def join_configs(
    size_name: str,
    florence: Checkpoint,
    gemma: str | Path,
    num_tokens: tuple[int, int],
    cross_attention_every: int,
) -> tuple[CaptionerConfig, Checkpoint | None]:
    """The captioner's configuration, and Gemma's checkpoint where its weights are needed."""
    size = None if size_name in AUTOMATIC else _size(size_name)
    family = AUTOMATIC[size_name] if size is None else size.family
    encoder, decoder = florence_values(florence)
    gemma_source = None
    if family == "gemma":
        gemma_source = Checkpoint(gemma)
        decoder = gemma_values(gemma_source)
        decoder |= {"encoder_hidden_size": encoder["text_config"]["d_model"]}
        decoder |= {"cross_attention_every": cross_attention_every}
    else:
        decoder["vocab_size"] = _padded(num_tokens[1])
    if size is not None:
        _check_size(size_name, size, encoder, decoder, (florence.name, str(gemma)))
        published = not size_name.startswith("micro")
        if published:
            encoder["text_config"]["vocab_size"] = size.encoder_vocab_size
        if published and family == "florence":
            decoder["vocab_size"] = size.decoder_vocab_size
    if decoder["vocab_size"] < num_tokens[1]:
        raise UserError(
            f"the decoder's vocabulary has {decoder['vocab_size']} rows, its tokenizer {num_tokens[1]} tokens; "
            "give the tokenizer that belongs to the checkpoint"
        )
    values: dict[str, Any] = {"encoder_config": encoder, "decoder_config": decoder}
    if size is not None:
        values["image_size_px"] = size.image_size_px
    return build_captioner_config(values, f"{florence.name} and {gemma}"), gemma_source


def _size(name: str) -> Size:
    if name not in SIZES and name.startswith("auto"):
        raise UserError(f"unknown size '{name}'; to follow the sources: {' or '.join(AUTOMATIC)}")
    return get_size(name)


def _padded(num_tokens: int) -> int:
    return -(-num_tokens // ROWS_MULTIPLE) * ROWS_MULTIPLE


def florence_values(source: Checkpoint) -> tuple[dict[str, Any], dict[str, Any]]:
    """Encoder and BART decoder settings of Florence-2 as transformers saves it, as first published, or of ours."""
    values = source.config
    if source.model_type == "babelcap":
        config = build_captioner_config(values, source.name)
        if config.decoder_config.kind != "bart":
            raise UserError(
                f"{source.name}: its decoder is {config.decoder_config.kind}; a BART decoder is needed here"
            )
        return config.encoder_config.to_dict(), config.decoder_config.to_dict()
    text, vision = values.get("text_config"), values.get("vision_config")
    if source.model_type != "florence2" or not isinstance(text, dict) or not isinstance(vision, dict):
        raise UserError(f"{source.name}: model_type is '{source.model_type}'; a Florence-2 checkpoint is needed here")
    if "dim_embed" in vision:
        return _first_published(source.name, values)
    bart = _known(BartConfig, text, source.name)
    shared = {name: bart[name] for name in BART_FIELDS if name in bart}
    ids = {name: bart[name] for name in ("pad_token_id", "bos_token_id", "eos_token_id") if name in bart}
    encoder = {
        "kind": "florence2",
        "vision_config": _known(Florence2VisionConfig, vision, source.name),
        "text_config": shared | ids | {"vocab_size": bart["vocab_size"]},
    }
    return encoder, {"kind": "bart", "vocab_size": bart["vocab_size"], **shared}


def _first_published(name: str, values: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Florence-2 with the configuration of its own code: one vocabulary, where the captioners' have two."""
    text = dict(values["text_config"])
    for field in ("vocab_size", "pad_token_id", "bos_token_id", "eos_token_id"):
        text.setdefault(f"encoder_{field}", text.get(field))
    text.setdefault("decoder_start_token_id", text.get("eos_token_id"))
    try:
        config = convert_config(values | {"text_config": text})
    except UserError as error:
        raise UserError(f"{name}: {error}") from None
    return config.encoder_config.to_dict(), config.decoder_config.to_dict()


def gemma_values(source: Checkpoint) -> dict[str, Any]:
    if source.model_type not in GEMMA_KINDS:
        known = " or ".join(GEMMA_KINDS)
        raise UserError(f"{source.name}: model_type is '{source.model_type}'; a checkpoint of {known} is needed here")
    kind, config_class = GEMMA_KINDS[source.model_type]
    return {"kind": kind, **_known(config_class, source.config, source.name)}


def _known(config_class: type[PreTrainedConfig], values: dict[str, Any], where: str) -> dict[str, Any]:
    """The settings of a configuration in full, as its own class reads them, without what every configuration has."""
    try:
        full = config_class.from_dict(values).to_dict()
    except (TypeError, ValueError, KeyError) as error:
        raise UserError(f"{where}: config.json: {' '.join(str(error).split())}") from None
    general = PreTrainedConfig().to_dict().keys() | {"model_type", "architectures", "dtype", "transformers_version"}
    ids = {"pad_token_id", "bos_token_id", "eos_token_id"}
    return {name: value for name, value in full.items() if name in ids or name not in general}


def _check_size(
    name: str, size: Size, encoder: dict[str, Any], decoder: dict[str, Any], sources: tuple[str, str]
) -> None:
    compared = [(size.vision, encoder["vision_config"], sources[0])]
    if size.gemma is None:
        compared += [(size.bart, decoder, sources[0])]
    else:
        sides = {field: value for field, value in size.bart.items() if not field.startswith("decoder_")}
        compared += [(sides, encoder["text_config"], sources[0]), (size.gemma, decoder, sources[1])]
    dropouts = {"dropout", "init_std", "initializer_range", "drop_path_rate"}  # may differ: no shape depends on them
    for wanted, found, source in compared:
        for field, value in wanted.items():
            here = found.get(field)
            here = tuple(here) if isinstance(here, list) else here
            if field not in dropouts and here != value:
                raise UserError(
                    f"{source}: {field} is {here}, size {name} has {value}; choose the checkpoint of that size, or "
                    f"{' or '.join(AUTOMATIC)} to follow the sources"
                )
