"""Requests made ready for decoding: their token ids, the images they share, and which of them may run together."""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from babelcap.errors import UserError
from babelcap.models.checkpoints.processor import ImageSource
from babelcap.models.generation.requests import OWN_SHORTLIST, GenerationRequest

LENGTH_STEP = 16  # prompts this close in length are kept in their order: padding them costs nothing


class EncodedImage(NamedTuple):
    image: ImageSource  # held, so that its identity stays its own
    features: Tensor | None = None
    error: UserError | None = None


EncodedImages = dict[Hashable, EncodedImage]


class Prepared(NamedTuple):
    number: int  # among all requests
    request: GenerationRequest
    prefix: str
    prefix_ids: list[int]
    prompt_ids: list[int]
    num_tokens_cut: int = 0  # of the prompt
    guidance: float = 1.0  # none


def make_groups(prepared: Sequence[Prepared]) -> list[list[Prepared]]:
    """What may be decoded together, of similar prompt length first; that of the first request comes first."""
    groups: dict[Hashable, list[Prepared]] = defaultdict(list)
    for item in prepared:
        groups[_group_key(item)].append(item)
    return [sorted(group, key=lambda item: len(item.prompt_ids) // LENGTH_STEP) for group in groups.values()]


def make_batches(prepared: Sequence[Prepared], batch_size: int) -> list[list[Prepared]]:
    """Batches that start and end together, so that their prefixes must be equally long."""
    groups: dict[Hashable, list[Prepared]] = defaultdict(list)
    for group in make_groups(prepared):
        for item in group:
            groups[(id(group), len(item.prefix_ids))].append(item)
    batches = [
        group[start : start + batch_size] for group in groups.values() for start in range(0, len(group), batch_size)
    ]
    return sorted(batches, key=lambda batch: min(item.number for item in batch))


def stack_features(batch: Sequence[Prepared], encoded: EncodedImages) -> Tensor | None:
    """[rows, image tokens, width] of a batch; None for one without images."""
    found = [
        item.request.image_features if item.request.image is None else encoded[image_key(item.request)].features
        for item in batch
    ]
    given = [features for features in found if features is not None]
    return torch.stack(given) if given else None


def _group_key(item: Prepared) -> Hashable:
    request = item.request
    allowed = allowed_of(request)
    given = None if request.image_features is None else tuple(request.image_features.shape)
    return (
        request.settings,
        item.guidance,
        allowed if isinstance(allowed, str) else id(allowed),
        given or request.image is not None,
    )


def allowed_of(request: GenerationRequest) -> str | Sequence[int] | Tensor | None:
    is_own = isinstance(request.allowed_tokens, str) and request.allowed_tokens == OWN_SHORTLIST
    return request.language if is_own else request.allowed_tokens


def image_key(request: GenerationRequest) -> Hashable:
    """Equal for requests of one image; None where there is nothing to encode."""
    if request.image is None:
        return None
    return str(request.image) if isinstance(request.image, str | Path) else id(request.image)
