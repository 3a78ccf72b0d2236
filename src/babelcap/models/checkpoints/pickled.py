"""Pickled weights, read with torch's weights-only unpickler, which runs no code of theirs. Only import asks."""

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from babelcap.errors import UserError

PATTERNS = ("*.bin", "*.pt", "*.pth", "*.ckpt")
NESTED_UNDER = ("state_dict", "model_state_dict", "model")  # where trainers put the weights of a checkpoint
WRAPPERS = ("module.", "_orig_mod.", "model.")  # what they put in front of every name


def pickled_files(folder: Path) -> list[Path]:
    return sorted({path for pattern in PATTERNS for path in folder.glob(pattern)})


def read_pickled(path: Path) -> dict[str, Tensor]:
    """The weights of a pickled checkpoint, under their plain names."""
    try:
        values = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError:
        raise UserError(f"{path}: holds more than weights, which could run code when read; it is not read") from None
    except (OSError, EOFError, RuntimeError, ValueError, LookupError, TypeError, zipfile.BadZipFile) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise UserError(f"{path} is damaged or cut short ({reason})") from None
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
    return {str(name): value for name, value in values.items()}
