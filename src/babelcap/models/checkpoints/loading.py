"""Reading a captioner from a folder or the hub, in our format or the published one, with every parameter accounted for.

Weights are safetensors, in one file or in shards. Pickled weights are refused here, because unpickling can run code;
`import_checkpoint` alone reads them, with torch's weights-only unpickler, and writes them anew.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, StrictDataclassError
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from transformers import GenerationConfig
from transformers.utils import logging

from babelcap.errors import UserError
from babelcap.models.checkpoints.published import convert_config, convert_weights, is_published, some_names
from babelcap.models.network.captioner import Captioner
from babelcap.models.network.configuration import CaptionerConfig
from babelcap.storage import read_json

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
PICKLED = ("*.bin", "*.pt", "*.pth", "*.ckpt")


def load_model(path_or_id: str | Path, *, dtype: torch.dtype | str | None = None) -> Captioner:
    """A captioner ready for use, in evaluation mode, in the type its weights are stored in unless `dtype` says else."""
    folder = resolve_folder(path_or_id)
    return build_model(folder, read_weights(folder), dtype=dtype)


def build_model(folder: Path, weights: dict[str, Tensor], *, dtype: torch.dtype | str | None = None) -> Captioner:
    """A captioner of a folder's configuration and of weights under our names or the published ones."""
    config, weights = read_config(folder, weights)
    account_for(config, weights)
    wanted = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if dtype is not None and not (isinstance(wanted, torch.dtype) and wanted.is_floating_point):
        raise UserError(f"dtype '{dtype}' is unknown; float32, bfloat16 and float16 are known")
    stored = next(tensor.dtype for tensor in weights.values() if tensor.is_floating_point())
    with _without_progress_bar():
        model: Captioner = Captioner.from_pretrained(None, config=config, state_dict=weights, dtype=wanted or stored)
    model.generation_config = read_generation_config(folder, config)
    model.folder = folder
    return model.eval()


@contextmanager
def _without_progress_bar() -> Iterator[None]:
    """The tensors are in memory by then, so transformers' bar has nothing to tell."""
    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if was_enabled:
            logging.enable_progress_bar()


def resolve_folder(path_or_id: str | Path, *, with_pickled: bool = False) -> Path:
    """A folder as it is; anything else is a model's name on the hub, from where pickled weights come only if asked."""
    path = Path(path_or_id)
    if path.is_dir():
        return path
    if path.exists():
        raise UserError(f"{path} is a file; name the folder that holds it and its {CONFIG_FILE}")
    if path.is_absolute() or str(path_or_id).startswith(".") or str(path_or_id).count("/") != 1:
        raise UserError(f"{path}: no such folder (and not a name on the hub, which has the form owner/model)")
    try:
        return Path(snapshot_download(str(path_or_id), ignore_patterns=None if with_pickled else list(PICKLED)))
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, OSError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"{path_or_id}: no such folder, and the hub did not give such a model ({reason})") from None


def read_weights(folder: Path) -> dict[str, Tensor]:
    if (folder / INDEX_FILE).is_file():
        return _read_shards(folder)
    if (folder / WEIGHTS_FILE).is_file():
        return read_safetensors(folder / WEIGHTS_FILE)
    pickled = sorted(path.name for pattern in PICKLED for path in folder.glob(pattern))
    if pickled:
        raise UserError(
            f"{folder}: {pickled[0]} is a pickled checkpoint, which could run code when read; "
            "convert it once with `babelcap model import`"
        )
    raise UserError(f"{folder}: no {WEIGHTS_FILE} and no {INDEX_FILE}; this is not a model's folder")


def read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path} is damaged or cut short ({error}); copy or download it again") from None


def _read_shards(folder: Path) -> dict[str, Tensor]:
    index = read_json(folder / INDEX_FILE)
    places = index.get("weight_map") if isinstance(index, dict) else None
    if not isinstance(places, dict) or not places:
        raise UserError(f"{folder / INDEX_FILE}: no weight_map; the index is damaged")
    weights: dict[str, Tensor] = {}
    for name in sorted(set(places.values())):
        if Path(name).name != name or not (folder / name).is_file():
            raise UserError(f"{folder / name}: the index names this shard, but it is not there; download it again")
        weights |= read_safetensors(folder / name)
    lost = places.keys() - weights.keys()
    if lost:
        raise UserError(f"{folder}: {len(lost)} parameters of the index are in no shard: {some_names(lost)}")
    return weights


def read_config(folder: Path, weights: dict[str, Tensor]) -> tuple[CaptionerConfig, dict[str, Tensor]]:
    """Our configuration and the weights under our names, whichever format the folder has."""
    path = folder / CONFIG_FILE
    values = read_json(path)
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a table of settings, found {type(values).__name__}")
    if is_published(values):
        return convert_config(values, weights), convert_weights(weights)
    if values.get("model_type") != CaptionerConfig.model_type:
        raise UserError(
            f"{path}: model_type is {values.get('model_type')!r}; a captioner's is '{CaptionerConfig.model_type}', "
            "or 'florence2' with an encoder_vocab_size in a published one"
        )
    return build_captioner_config(values, str(path)), weights


def build_captioner_config(values: dict[str, Any], where: str) -> CaptionerConfig:
    try:
        return CaptionerConfig.from_dict(values)
    except (StrictDataclassError, TypeError, ValueError, KeyError, AttributeError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"{where}: {reason}") from None


def account_for(config: CaptionerConfig, weights: dict[str, Tensor]) -> None:
    """Stops unless the weights are the model's own: none missing, none surplus, each in its shape."""
    try:
        with torch.device("meta"):
            expected = Captioner(config).state_dict()
    except (TypeError, ValueError, RuntimeError, IndexError, ZeroDivisionError) as error:
        raise UserError(f"{CONFIG_FILE}: no model can be built of it ({' '.join(str(error).split())})") from None
    findings = {
        "missing": expected.keys() - weights.keys(),
        "surplus": weights.keys() - expected.keys(),
        "misshapen": {
            f"{name} {list(weights[name].shape)} instead of {list(expected[name].shape)}"
            for name in expected.keys() & weights.keys()
            if expected[name].shape != weights[name].shape
        },
    }
    found = [f"{len(names)} {kind}: {some_names(names)}" for kind, names in findings.items() if names]
    if found:
        raise UserError(f"the weights do not fit {CONFIG_FILE}: {'; '.join(found)}")


def read_generation_config(folder: Path, config: CaptionerConfig) -> GenerationConfig:
    """The folder's own where it has one; settings that this transformers no longer has are left out."""
    special_ids = {
        name: getattr(config, name)
        for name in ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    }
    path = folder / "generation_config.json"
    values = read_json(path) if path.is_file() else {}
    known = GenerationConfig().to_dict().keys() - {"transformers_version"}
    try:
        return GenerationConfig(**{**special_ids, **{name: values[name] for name in known & values.keys()}})
    except (TypeError, ValueError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None
