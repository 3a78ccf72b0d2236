"""Checkpoints that a captioner is made of: their configuration, and their weights read one by one from safetensors."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from babelcap.errors import UserError
from babelcap.models.checkpoints.loading import CONFIG_FILE, INDEX_FILE, PICKLED, WEIGHTS_FILE, resolve_folder
from babelcap.storage import read_json


class Checkpoint:
    """A folder saved by transformers, sharded or not. Only headers are read until a weight is asked for."""

    def __init__(self, path_or_id: str | Path) -> None:
        self.name = str(path_or_id)
        self.folder = resolve_folder(path_or_id)
        values = read_json(self.folder / CONFIG_FILE)
        if not isinstance(values, dict):
            raise UserError(f"{self.folder / CONFIG_FILE}: expected a table of settings")
        self.config: dict[str, Any] = values
        self.shapes: dict[str, tuple[int, ...]] = {}
        self._places: dict[str, Path] = {}
        for path in self._files():
            with _open(path) as file:
                for name in file.keys():  # noqa: SIM118, it is no dict
                    self.shapes[name] = tuple(file.get_slice(name).get_shape())
                    self._places[name] = path
        self._check_index()

    @property
    def model_type(self) -> str:
        return str(self.config.get("model_type"))

    def read(self, name: str) -> Tensor:
        path = self._places[name]
        with _open(path) as file:
            try:
                tensor: Tensor = file.get_tensor(name)
            except SafetensorError as error:
                raise UserError(f"{path} is damaged or cut short ({error}); copy or download it again") from None
        return tensor

    def _files(self) -> list[Path]:
        if (self.folder / INDEX_FILE).is_file():
            places = read_json(self.folder / INDEX_FILE).get("weight_map", {})
            files = [self.folder / Path(name).name for name in sorted(set(places.values()))]
            lost = [path for path in files if not path.is_file()]
            if lost:
                raise UserError(f"{lost[0]}: the index names this shard, but it is not there; download it again")
            return files
        if (self.folder / WEIGHTS_FILE).is_file():
            return [self.folder / WEIGHTS_FILE]
        pickled = sorted(path.name for pattern in PICKLED for path in self.folder.glob(pattern))
        if pickled:
            raise UserError(
                f"{self.folder}: {pickled[0]} is a pickled checkpoint, which could run code when read; "
                "save it as safetensors with transformers first"
            )
        raise UserError(f"{self.folder}: no {WEIGHTS_FILE} and no {INDEX_FILE}; this is not a model's folder")

    def _check_index(self) -> None:
        path = self.folder / INDEX_FILE
        lost = set(read_json(path).get("weight_map", {})) - self.shapes.keys() if path.is_file() else set()
        if lost:
            raise UserError(f"{path}: {len(lost)} parameters are in no shard, {min(lost)} the first; download it again")


def _open(path: Path) -> Any:
    try:
        return safe_open(path, "pt")
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged or cut short ({error}); copy or download it again") from None


def load_tokenizer(path_or_id: str | Path, purpose: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(path_or_id)
    except (OSError, ValueError, KeyError, TypeError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UserError(f"{path_or_id}: no {purpose} tokenizer can be read there ({reason})") from None


def tensor_type(name: str) -> torch.dtype:
    known = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    if name not in known:
        raise UserError(f"dtype '{name}' is not one of {', '.join(known)}")
    return known[name]
