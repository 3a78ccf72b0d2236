"""Importing a checkpoint: any format that can be read, written anew in ours, whole or not at all."""

from pathlib import Path

import torch

from babelcap.errors import UserError
from babelcap.models.checkpoints.loading import build_model, read_config
from babelcap.models.checkpoints.processor import load_processor
from babelcap.models.checkpoints.saving import save_captioner
from babelcap.models.checkpoints.tokenizers import check_tokenizers, missing_tokenizers
from babelcap.models.checkpoints.weights import Checkpoint
from babelcap.models.network.captioner import Captioner


def import_checkpoint(
    source: str | Path,
    output: str | Path,
    *,
    encoder_tokenizer: str | Path | None = None,
    decoder_tokenizer: str | Path | None = None,
    with_tokenizers: bool = True,
    dtype: torch.dtype | str | None = None,
    full_coverage: bool = False,
) -> Captioner:
    """Reads a folder, a file of weights beside its config.json or a hub id, and writes a captioner in our format.

    The published format does not tell what a model was trained on: `full_coverage` says that it was fine-tuned on all
    pairs, so that no language needs its prefix.
    """
    checkpoint = Checkpoint(source, pickled=True)
    processor = None
    if with_tokenizers:
        missing = missing_tokenizers(checkpoint.folder, encoder_tokenizer, decoder_tokenizer)
        if missing:
            options = " and ".join(f"--{name.replace('_', '-')}" for name in missing)
            raise UserError(
                f"{checkpoint.folder}: no {' and no '.join(missing)} beside the checkpoint, without which it can "
                f"neither read nor write; name them with {options}, or import --without-tokenizers"
            )
        processor = load_processor(
            checkpoint.folder, encoder_tokenizer=encoder_tokenizer, decoder_tokenizer=decoder_tokenizer
        )
        check_tokenizers(read_config(checkpoint), processor.encoder_tokenizer, processor.decoder_tokenizer)
    model = build_model(checkpoint, dtype=dtype)
    if full_coverage:
        model.config.coverage = model.config.get_coverage().full().model_dump(mode="json")
    save_captioner(output, model, processor)
    model.folder = Path(output)
    return model
