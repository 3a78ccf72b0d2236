"""Models of transformers for systems: from a folder or the hub, with all that can be missing told in one line."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from PIL.Image import Image

from babelcap.data.feed.images import decode_image
from babelcap.errors import BadSample, UserError
from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.systems.pillow import load_processor
from babelcap.evaluation.systems.settings import Settings, SystemOptions
from babelcap.models.checkpoints.published import some_names
from babelcap.models.checkpoints.weights import DTYPES, require_model, resolve_folder, without_progress_bar
from babelcap.models.inference import find_device
from babelcap.storage import MANIFEST, file_sha256

HASHED = ("*.json", "*.safetensors", "*.model", "*.txt", "*.jinja")  # configuration, weights, tokenizer, template


@dataclass(frozen=True)
class Loaded:
    folder: Path
    model: Any  # transformers' own
    processor: Any
    device: torch.device
    dtype: torch.dtype

    @cached_property
    def identity(self) -> dict[str, str]:
        images = getattr(self.processor, "image_processor", None)
        return {
            "model_class": type(self.model).__name__,
            "model_hash": model_hash(self.folder),
            "dtype": str(self.dtype).removeprefix("torch."),
            "image_processor": type(images).__name__,  # Pillow's and torchvision's differ in some pixels
        }


def load_model(
    system: str, path_or_id: str, kinds: Sequence[str], auto_class: str, settings: Settings, options: SystemOptions
) -> Loaded:
    """Of one of these model types; of any where none is named. Without code of its own and without pickled weights."""
    import transformers

    options.refuse_own(system)
    folder, device = resolve_model(system, path_or_id), find_device(options.device)
    dtype = choose_dtype(settings, options, device)
    with one_line(system, path_or_id), without_progress_bar():
        kind = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False).model_type
        if kinds and kind not in kinds:
            raise UserError(f"{system}: '{path_or_id}' is a model of type '{kind}', not {' or '.join(kinds)}")
        loader = getattr(transformers, auto_class)
        model, info = loader.from_pretrained(folder, dtype=dtype, use_safetensors=True, output_loading_info=True)
        if info["missing_keys"]:
            missing = some_names(info["missing_keys"])
            raise UserError(f"{system}: '{path_or_id}' lacks {len(info['missing_keys'])} weights: {missing}")
        processor = load_processor(folder, kind)
    return Loaded(folder, model.to(device).eval(), processor, device, dtype)


def resolve_model(system: str, path_or_id: str) -> Path:
    try:
        return require_model(resolve_folder(path_or_id))
    except UserError as error:
        raise UserError(f"{system}: {error}") from None


def choose_dtype(settings: Settings, options: SystemOptions, device: torch.device) -> torch.dtype:
    """As asked for; else the published one, which few of a processor's operations know."""
    return torch.float32 if options.dtype is None and device.type == "cpu" else DTYPES[settings.dtype]


@contextmanager
def one_line(system: str, path_or_id: str) -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{system}: '{path_or_id}' needs a package that is not installed ({reason})") from None
    except (OSError, ValueError, KeyError, RuntimeError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"{system}: '{path_or_id}' cannot be loaded ({reason})") from None


def model_hash(folder: Path, patterns: Sequence[str] = HASHED) -> str:
    """Sixteen hex digits over everything in a model's folder that decides its answers."""
    digest = hashlib.sha256()
    found = {path for pattern in patterns for path in folder.glob(pattern) if path.is_file() and path.name != MANIFEST}
    for path in sorted(found):
        digest.update(path.name.encode())
        digest.update(bytes.fromhex(file_sha256(path)))
    return digest.hexdigest()[:16]


def open_image(system: str, item: Item) -> Image:
    try:
        return decode_image(item.image)
    except BadSample as error:
        raise UserError(f"{system}: {item.image} cannot be used ({' '.join(str(error).split())})") from None
