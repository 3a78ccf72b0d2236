"""Guidance: what the picture adds to a text weighs more than what a text would say of any picture.

logits = cap(W (h0 + scale (h - h0))): h are the decoder's states with the picture, h0 those with the mean picture in
its place, behind the same prompt and the same tokens. scale 1 is no guidance; the head is linear before its soft cap,
so that it is multiplied once. The mean picture, the mean of the image tokens of many, lies beside the model's weights.
"""

from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load, save_file
from torch import Tensor

from babelcap.errors import UserError
from babelcap.models.checkpoints.files import GUIDANCE_FILES, MEAN_IMAGE_FILE
from babelcap.models.checkpoints.weights import require_finite
from babelcap.storage import atomic_file, read_bytes, require_manifest, update_manifest

MAX_BYTES = 1 << 28
TOKENS = "image_tokens"
ADVICE = "make it again with `babelcap model mean-image CORPUS --model DIR`"


def guided(states: Tensor, blind: Tensor, scale: float) -> Tensor:
    return torch.lerp(blind, states, scale)


def mean_of(batches: Iterable[Tensor]) -> Tensor:
    """[images, tokens, width] each -> [tokens, width]."""
    total, number = None, 0
    for batch in batches:
        summed = batch.double().sum(dim=0)
        total, number = summed if total is None else total + summed, number + len(batch)
    if total is None:
        raise UserError("no image to take the mean of")
    return (total / number).float()


def write_mean_image(folder: str | Path, tokens: Tensor) -> Path:
    path = Path(folder) / MEAN_IMAGE_FILE
    with atomic_file(path) as partial:
        save_file({TOKENS: tokens.contiguous()}, partial)
    update_manifest(folder, GUIDANCE_FILES)
    return path


def read_mean_image(folder: str | Path) -> Tensor:
    path = Path(folder) / MEAN_IMAGE_FILE
    if not path.is_file():
        raise UserError(f"{folder}: no {MEAN_IMAGE_FILE}, which guidance compares with; {ADVICE}")
    require_manifest(folder, only=GUIDANCE_FILES, advice=ADVICE)
    try:
        tokens = load(read_bytes(path, MAX_BYTES))[TOKENS]
    except (SafetensorError, KeyError) as error:
        raise UserError(f"{path}: damaged ({' '.join(str(error).split())[:200]}); {ADVICE}") from None
    require_finite(tokens, str(path))
    return tokens.float()
