"""Importing a checkpoint: any format that can be read, written anew in ours, whole or not at all.

The only place where pickled weights are read, with torch's weights-only unpickler, which runs no code of theirs.
"""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from babelcap.errors import UserError
from babelcap.models.checkpoints.loading import (
    CONFIG_FILE,
    INDEX_FILE,
    PICKLED,
    WEIGHTS_FILE,
    build_model,
    read_weights,
    resolve_folder,
)
from babelcap.models.checkpoints.processor import DECODER_TOKENIZER, ENCODER_TOKENIZER, CaptionProcessor, load_processor
from babelcap.models.network.captioner import Captioner
from babelcap.storage import atomic_folder

NESTED_UNDER = ("state_dict", "model_state_dict", "model")  # where trainers put the weights of a checkpoint
WRAPPERS = ("module.", "_orig_mod.", "model.")  # what they put in front of every name


def import_checkpoint(
    source: str | Path,
    output: str | Path,
    *,
    encoder_tokenizer: str | Path | None = None,
    decoder_tokenizer: str | Path | None = None,
    dtype: torch.dtype | str | None = None,
) -> Captioner:
    """Reads a folder, a pickled file beside its config.json or a hub id, and writes a captioner in our format."""
    path = Path(source)
    weights_file = path if path.is_file() else None
    folder = path.parent if weights_file else resolve_folder(source, with_pickled=True)
    if not (folder / CONFIG_FILE).is_file():
        raise UserError(f"{folder / CONFIG_FILE}: no such file; a checkpoint needs its configuration beside it")
    model = build_model(folder, _read_any(folder, weights_file), dtype=dtype)
    processor = _find_processor(folder, encoder_tokenizer, decoder_tokenizer)
    with atomic_folder(output) as partial:
        model.save_pretrained(partial)
        if processor is not None:
            processor.save_pretrained(partial)
    model.folder = Path(output)
    return model


def _find_processor(folder: Path, encoder: str | Path | None, decoder: str | Path | None) -> CaptionProcessor | None:
    beside = [(folder / name).is_dir() for name in (ENCODER_TOKENIZER, DECODER_TOKENIZER)]
    if (encoder is not None or beside[0]) and (decoder is not None or beside[1]):
        return load_processor(folder, encoder_tokenizer=encoder, decoder_tokenizer=decoder)
    if encoder is not None or decoder is not None:
        raise UserError(
            "only one of the two tokenizers is given, and the other is not beside the checkpoint; give both"
        )
    return None


def _read_any(folder: Path, weights_file: Path | None) -> dict[str, Tensor]:
    if weights_file is not None and weights_file.suffix == ".safetensors":
        return read_weights(folder)
    if weights_file is None and ((folder / WEIGHTS_FILE).is_file() or (folder / INDEX_FILE).is_file()):
        return read_weights(folder)
    files = [weights_file] if weights_file else sorted({path for pattern in PICKLED for path in folder.glob(pattern)})
    if not files:
        return read_weights(folder)  # which says what is missing
    weights: dict[str, Tensor] = {}
    for file in files:
        weights |= read_pickled(file)
    return weights


def read_pickled(path: Path) -> dict[str, Tensor]:
    """The weights of a pickled checkpoint, under their plain names."""
    try:
        values = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UserError(f"{path}: holds more than weights, which could run code when read; it is not read") from None
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, zipfile.BadZipFile) as error:
        raise UserError(f"{path} is damaged or cut short ({str(error).splitlines()[0]})") from None
    return _unwrapped(values, path)


def _unwrapped(values: Any, path: Path) -> dict[str, Tensor]:
    for name in NESTED_UNDER:
        if isinstance(values, dict) and isinstance(values.get(name), dict):
            values = values[name]
    if not isinstance(values, dict) or not values or not all(isinstance(value, Tensor) for value in values.values()):
        raise UserError(f"{path}: no table of weights in it; this is not a model's checkpoint")
    for wrapper in WRAPPERS:
        if all(str(name).startswith(wrapper) for name in values):
            values = {name.removeprefix(wrapper): value for name, value in values.items()}
    return values
