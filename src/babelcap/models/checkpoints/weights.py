"""The one reader of weight folders: a folder or hub id -> configuration, names, shapes, and weights read one by one.

Weights are safetensors, in one file or in shards. Pickled ones are refused, because unpickling can run code, except
where import asks for them (pickled.py). A folder with a manifest is checked against it; weights that are not finite
are refused, whoever wrote them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from safetensors import SafetensorError, safe_open
from torch import Tensor
from transformers.utils import logging

from babelcap.errors import UserError
from babelcap.models.checkpoints.files import CONFIG_FILE, INDEX_FILE, MODEL_FILES, WEIGHTS_FILE
from babelcap.models.checkpoints.named import named_folder
from babelcap.models.checkpoints.pickled import PATTERNS, pickled_files, read_pickled
from babelcap.models.checkpoints.published import some_names
from babelcap.storage import read_json_object, require_manifest

SCALES = ".scales"  # behind the name of a weight in whole numbers: what each of its rows is multiplied by
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Weight(NamedTuple):
    path: Path
    shape: tuple[int, ...]
    read: Callable[[], Tensor]


class Checkpoint:
    """A model's folder, or with `pickled` one file of weights in it. Only headers are read until weights are asked for.

    `verify` reads all of a folder that has a manifest; by default small files and a sample of large ones are checked.
    """

    def __init__(self, path_or_id: str | Path, *, pickled: bool = False, verify: bool = False) -> None:
        self.name = str(path_or_id)
        file = Path(path_or_id)
        self._file = file if pickled and file.is_file() else None
        self.folder = file.parent if self._file else resolve_folder(path_or_id, with_pickled=pickled)
        self._pickled = pickled
        require_model(self.folder)
        require_manifest(self.folder, full=verify, only=MODEL_FILES)
        self.config: dict[str, Any] = read_json_object(self.folder / CONFIG_FILE)

    @property
    def model_type(self) -> str:
        return str(self.config.get("model_type"))

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of every weight, by name; empty where the folder has no weights at all."""
        return {name: weight.shape for name, weight in self._weights.items()}

    def read(self, name: str) -> Tensor:
        weight = self._weights[name]
        try:
            tensor = weight.read()
        except (SafetensorError, RuntimeError, OSError) as error:
            raise _damaged(weight.path, error) from None
        if tensor.is_floating_point() and tensor.dtype.itemsize == 1:
            raise UserError(f"{weight.path}: {name} is of {tensor.dtype}; weights of two bytes or more are needed")
        require_finite(tensor, f"{weight.path}: {name}")
        return self._scaled(name, tensor)

    def _scaled(self, name: str, tensor: Tensor) -> Tensor:
        """A weight in whole numbers as floats again; others as they are."""
        if tensor.dtype != torch.int8 or name + SCALES not in self._weights:
            return tensor
        scales = self.read(name + SCALES)
        if scales.shape != tensor.shape[:1]:
            raise UserError(f"{self.folder}: {name + SCALES} does not fit {name}; the file is damaged")
        return tensor * scales[:, None]

    @property
    def is_quantised(self) -> bool:
        return any(name.endswith(SCALES) for name in self._weights)

    def read_all(self) -> dict[str, Tensor]:
        if not self._weights:
            raise UserError(f"{self.folder}: no {WEIGHTS_FILE} and no {INDEX_FILE}; this is not a model's folder")
        return {name: self.read(name) for name in self._weights if not name.endswith(SCALES)}

    @cached_property
    def _weights(self) -> dict[str, Weight]:
        places = self._index()
        weights: dict[str, Weight] = {}
        for path in self._files(places):
            for name, weight in (_open_safetensors if path.suffix == ".safetensors" else _open_pickled)(path):
                if name in weights:
                    raise UserError(f"{path}: {name} is in {weights[name].path.name} already; the shards do not fit")
                weights[name] = weight
        if lost := places.keys() - weights.keys():
            raise UserError(f"{self.folder}: {len(lost)} parameters of the index are in no shard: {some_names(lost)}")
        return weights

    def _index(self) -> dict[str, str]:
        path = self.folder / INDEX_FILE
        if self._file is not None or not path.is_file():
            return {}
        places = read_json_object(path).get("weight_map")
        if not isinstance(places, dict) or not places or not all(isinstance(name, str) for name in places.values()):
            raise UserError(f"{path}: no weight_map; the index is damaged")
        for name in sorted(set(places.values())):
            if Path(name).name != name or not name.endswith(".safetensors") or not (self.folder / name).is_file():
                raise UserError(f"{self.folder / name}: the index names this shard, but it is not there; get it again")
        return places

    def _files(self, places: dict[str, str]) -> list[Path]:
        if self._file is not None:
            return [self._file]
        if places:
            return [self.folder / name for name in sorted(set(places.values()))]
        if (self.folder / WEIGHTS_FILE).is_file():
            return [self.folder / WEIGHTS_FILE]
        pickled = pickled_files(self.folder)
        if pickled and not self._pickled:
            raise UserError(
                f"{self.folder}: {pickled[0].name} is a pickled checkpoint, which could run code when read; convert a "
                "captioner's once with `babelcap model import`, save another model's as safetensors with transformers"
            )
        return pickled


def resolve_folder(path_or_id: str | Path, *, with_pickled: bool = False) -> Path:
    """A folder as it is, or that of a model known by a name of its own; anything else is a model's name on the hub.

    Pickled weights come from there only if asked.
    """
    path = Path(path_or_id)
    if path.is_dir():
        return path
    if (named := named_folder(str(path_or_id))) is not None:
        return named
    if path.exists():
        raise UserError(f"{path} is a file; name the folder that holds it and its {CONFIG_FILE}")
    if path.is_absolute() or str(path_or_id).startswith(".") or str(path_or_id).count("/") != 1:
        raise UserError(f"{path}: no such folder (and not a name on the hub, which has the form owner/model)")
    try:
        return Path(snapshot_download(str(path_or_id), ignore_patterns=None if with_pickled else list(PATTERNS)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"{path_or_id}: no such folder, and the hub did not give such a model ({reason})") from None


def require_model(folder: Path) -> Path:
    """The folder, if it can be a model's. That of a run has a configuration too, of another kind."""
    path = folder / CONFIG_FILE
    if not path.is_file():
        raise UserError(f"{path}: no such file; this is not a model's folder")
    exported = sorted(folder.glob(f"*/model/{CONFIG_FILE}"))
    if exported and "model_type" not in read_json_object(path):
        raise UserError(f"{folder}: the folder of a run; its last model is in {exported[-1].parent}")
    return folder


def require_finite(tensor: Tensor, where: str) -> None:
    """One pass over the values: a sum with one that is not finite is not; else it may have overflowed."""
    if not tensor.sum().isfinite() and not tensor.isfinite().all():
        raise UserError(f"{where} holds values that are not finite; the file is damaged, or training diverged")


def require_plain(path_or_id: str | Path) -> None:
    """transformers' own reader would take whole numbers for weights and know nothing of their scales."""
    if (Path(path_or_id) / CONFIG_FILE).is_file() and Checkpoint(path_or_id).is_quantised:
        raise UserError(f"{path_or_id}: its weights are quantised; load it with babelcap.load or load_model")


def tensor_type(dtype: torch.dtype | str) -> torch.dtype:
    wanted = DTYPES.get(dtype) if isinstance(dtype, str) else dtype
    if wanted is None or not wanted.is_floating_point:
        raise UserError(f"dtype '{dtype}' is unknown; known are {', '.join(DTYPES)}")
    return wanted


@contextmanager
def without_progress_bar() -> Iterator[None]:
    """transformers' own has nothing to tell where tensors are in memory, and fills the logs of workers."""
    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()


def _open_safetensors(path: Path) -> Iterator[tuple[str, Weight]]:
    try:
        file = safe_open(path, "pt")
        for name in file.keys():  # noqa: SIM118, it is no dict
            yield name, Weight(path, tuple(file.get_slice(name).get_shape()), partial(file.get_tensor, name))
    except (SafetensorError, OSError) as error:
        raise _damaged(path, error) from None


def _open_pickled(path: Path) -> Iterator[tuple[str, Weight]]:
    for name, tensor in read_pickled(path).items():
        yield name, Weight(path, tuple(tensor.shape), partial(Tensor.detach, tensor))


def _damaged(path: Path, error: Exception) -> UserError:
    return UserError(
        f"{path} is damaged or cut short ({' '.join(str(error).split())[:200]}); copy or download it again"
    )
