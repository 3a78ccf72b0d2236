"""A captioner whose decoder's weights are stored as whole numbers: NAME in int8, NAME.scales beside it, w = scale q.

The weights that every step of decoding reads are rounded, the head among them; the encoder's are stored as they are.
Loaded, they are floats again, of the rounded values, so that all but generation, which multiplies whole numbers, goes
on as usual.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor

from babelcap.errors import UserError
from babelcap.models.checkpoints.files import CAPTIONER_FILES, WEIGHTS_FILE
from babelcap.models.checkpoints.loading import load_model
from babelcap.models.checkpoints.saving import copy_all_but_weights
from babelcap.models.checkpoints.weights import SCALES
from babelcap.models.generation.packing import rounded_names
from babelcap.models.generation.products import INT8, round_weight
from babelcap.models.network.captioner import Captioner
from babelcap.storage import atomic_folder, update_manifest

QUANTISED = (INT8,)


class Quantised(NamedTuple):
    num_rounded: int  # weights, of all
    num_weights: int
    bytes_before: int
    bytes_after: int


def check_quantise(kind: str | None) -> str | None:
    if kind is not None and kind not in QUANTISED:
        raise UserError(f"quantise is '{kind}'; known is {', '.join(QUANTISED)}")
    return kind


def quantise_folder(source: str | Path, output: str | Path, kind: str = INT8) -> Quantised:
    """Everything else in the folder goes along: processor, shortlists, mean image, the account of its surgery."""
    from babelcap.models.checkpoints.card import write_card  # with pyarrow's functions, which loading does not need

    check_quantise(kind)
    model = load_model(source, dtype=torch.float32)
    if model.config.quantise is not None:
        raise UserError(f"{source}: quantised already ({model.config.quantise})")
    folder = Path(model.folder or source)
    weights = rounded_weights(model)
    with atomic_folder(output) as target:
        copy_all_but_weights(folder, target)
        model.config.quantise = kind
        model.config.save_pretrained(target)
        model.generation_config.save_pretrained(target)
        save_file(weights, target / WEIGHTS_FILE, metadata={"format": "pt"})
        update_manifest(target, CAPTIONER_FILES)
        write_card(target, Path(output).name)
    before = model.state_dict().values()
    return Quantised(
        sum(weight.numel() for weight in weights.values() if weight.dtype == torch.int8),
        sum(weight.numel() for weight in before),
        sum(weight.nbytes for weight in before),
        sum(weight.nbytes for weight in weights.values()),
    )


def rounded_weights(model: Captioner) -> dict[str, Tensor]:
    found = {name: weight.detach().contiguous() for name, weight in model.state_dict().items()}
    for name in rounded_names(model):
        found[name], found[name + SCALES] = round_weight(found[name])
    return found
