"""A captioner out of a folder or the hub, in our format or the published one, with every parameter accounted for."""

from pathlib import Path
from typing import Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import Tensor
from transformers import GenerationConfig

from babelcap.errors import UserError
from babelcap.models.checkpoints.files import CONFIG_FILE, GENERATION_FILE
from babelcap.models.checkpoints.published import (
    SPECIAL_IDS,
    convert_config,
    convert_weights,
    is_published,
    some_names,
)
from babelcap.models.checkpoints.weights import Checkpoint, tensor_type, without_progress_bar
from babelcap.models.network.captioner import Captioner
from babelcap.models.network.configuration import CaptionerConfig
from babelcap.models.sizing.flops import meta_captioner
from babelcap.storage import read_json_object

MAX_NUMBER = 10**9  # of a setting; a larger one is damage, and could ask for any amount of memory
MAX_LAYERS = 1000


def load_model(path_or_id: str | Path, *, dtype: torch.dtype | str | None = None, verify: bool = False) -> Captioner:
    """A captioner ready for use, in evaluation mode, in the type its weights are stored in unless `dtype` says else.

    What has a manifest is checked against it: small files whole and of large ones a sample, or all with `verify`.
    """
    return build_model(Checkpoint(path_or_id, verify=verify), dtype=dtype)


def build_model(source: Checkpoint, *, dtype: torch.dtype | str | None = None) -> Captioner:
    wanted = None if dtype is None else tensor_type(dtype)
    config, weights = read_config(source), source.read_all()
    if is_published(source.config):
        weights = convert_weights(weights)
    account_for(config, weights)
    stored = next(iter(weights.values())).dtype
    with without_progress_bar():
        model: Captioner = Captioner.from_pretrained(None, config=config, state_dict=weights, dtype=wanted or stored)
    model.generation_config = read_generation_config(source.folder, config)
    model.folder = source.folder
    return model.eval()


def read_config(source: Checkpoint) -> CaptionerConfig:
    """Our configuration, whichever format the folder has. Which layers cross, the published format's weights tell."""
    values, path = source.config, source.folder / CONFIG_FILE
    check_numbers(values, str(path))
    if is_published(values):
        return convert_config(values, source.shapes)
    if values.get("model_type") != CaptionerConfig.model_type:
        raise UserError(
            f"{path}: model_type is {values.get('model_type')!r}; a captioner's is '{CaptionerConfig.model_type}', "
            "or 'florence2' with an encoder_vocab_size in a published one"
        )
    return build_captioner_config(values, str(path))


def build_captioner_config(values: dict[str, Any], where: str) -> CaptionerConfig:
    try:
        return CaptionerConfig.from_dict(values)
    except (StrictDataclassError, TypeError, ValueError, LookupError, AttributeError, ArithmeticError) as error:
        raise UserError(f"{where}: {' '.join(str(error).split())}") from None


def check_numbers(values: Any, where: str, field: str = "") -> None:
    """Before a configuration is made of them, which for some of them allocates as much as they say."""
    if isinstance(values, dict):
        for name, value in values.items():
            check_numbers(value, where, name)
    elif isinstance(values, list):
        for value in values:
            check_numbers(value, where, field)
    elif isinstance(values, int | float) and not abs(values) <= MAX_NUMBER:  # nor one that is no number
        raise UserError(f"{where}: {field} is {values!r:.40}; no model has such a number, the file may be damaged")
    elif isinstance(values, int) and values > MAX_LAYERS and ("layers" in field or field == "depths"):
        raise UserError(f"{where}: {field} is {values}; at most {MAX_LAYERS} layers can be built")


def account_for(config: CaptionerConfig, weights: dict[str, Tensor]) -> None:
    """Stops unless the weights are the model's own: none missing, none surplus, each in its shape."""
    try:
        expected = meta_captioner(config).state_dict()
    except Exception as error:  # whatever a strange number leads to in transformers' and torch's code
        raise UserError(f"{CONFIG_FILE}: no model can be built of it ({' '.join(str(error).split())})") from None
    findings = {
        "missing": expected.keys() - weights.keys(),
        "surplus": weights.keys() - expected.keys(),
        "misshapen": {
            f"{name} {list(weights[name].shape)} instead of {list(expected[name].shape)}"
            for name in expected.keys() & weights.keys()
            if expected[name].shape != weights[name].shape
        },
        "of another type": {name for name, tensor in weights.items() if not tensor.is_floating_point()},
    }
    found = [f"{len(names)} {kind}: {some_names(names)}" for kind, names in findings.items() if names]
    if found:
        raise UserError(f"the weights do not fit {CONFIG_FILE}: {'; '.join(found)}")
    for name in SPECIAL_IDS:
        token_id = getattr(config, name)
        if token_id is not None and not 0 <= token_id < config.vocab_size:
            raise UserError(f"{CONFIG_FILE}: {name} is {token_id}; the vocabulary has {config.vocab_size} tokens")


def read_generation_config(folder: Path, config: CaptionerConfig) -> GenerationConfig:
    """The folder's own where it has one; settings that this transformers no longer has are left out."""
    special_ids = {name: getattr(config, name) for name in SPECIAL_IDS}
    path = folder / GENERATION_FILE
    values = read_json_object(path) if path.is_file() else {}
    check_numbers(values, str(path))
    known = GenerationConfig().to_dict().keys() - {"transformers_version"}
    try:
        return GenerationConfig(**{**special_ids, **{name: values[name] for name in known & values.keys()}})
    except (TypeError, ValueError, AttributeError) as error:
        raise UserError(f"{path}: {' '.join(str(error).split())}") from None
