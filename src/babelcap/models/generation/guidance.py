"""Guidance: what the picture adds to a text weighs more than what a text would say of any picture.

log p'(t) = z0(t) + scale (z(t) - z0(t)) - log sum exp of the same, over the tokens t with p(t) >= .3 max p: z are the
logits with the picture, z0 those with the mean picture in its place, behind the same prompt and the same tokens, and p
the probability without guidance. Among what could be said anyway, what the picture speaks for is preferred; with a
wider choice more captions leave the language that was asked for. The first token is chosen without guidance: a picture
speaks for the languages that were captioned in training, and a text that begins in another stays in it. scale 1 leaves
the order of the tokens as it is. The whole head is multiplied for z alone. The mean picture, the mean of many images'
tokens, lies beside the weights.
"""

import math
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
PLAUSIBLE_SHARE = 0.3  # of the likeliest token's probability
NUM_LIKELIEST = 48  # tokens that are looked at beside those that a search needs
TOKENS = "image_tokens"
ADVICE = "make it again with `babelcap model mean-image CORPUS --model DIR`"


def guide(logits: Tensor, blind: Tensor, scale: float) -> Tensor:
    """[rows, tokens] of the likeliest tokens, with the picture and without -> log-probabilities among the plausible."""
    plausible = logits >= logits.amax(dim=1, keepdim=True) + math.log(PLAUSIBLE_SHARE)
    return torch.lerp(blind, logits, scale).masked_fill(~plausible, -torch.inf).log_softmax(dim=1)


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
    if tokens.dim() != 2 or not tokens.is_floating_point():
        raise UserError(f"{path}: holds {list(tokens.shape)} {tokens.dtype}, not the tokens of an image; {ADVICE}")
    require_finite(tokens, str(path))
    return tokens.float()
