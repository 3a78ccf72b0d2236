"""Requests made ready for decoding: what they mean to a model, their token ids, the images they share, and which of
them may run together.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from babelcap.coverage import CAPTION, Coverage, Pair, Style
from babelcap.errors import UserError
from babelcap.models.checkpoints.processor import CaptionProcessor, ImageSource
from babelcap.models.generation.requests import OWN_SHORTLIST, GenerationRequest, NumberedRequest
from babelcap.models.network.captioner import Captioner

LENGTH_STEP = 16  # prompts this close in length are kept in their order: padding them costs nothing
MAX_TIMES_READ = 8  # a prompt of more times the tokens that the model reads is not cut but refused


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


class RequestReader:
    """What requests mean to this model: prompt, prefix and guidance, of which some are the model's own to choose."""

    def __init__(self, model: Captioner, processor: CaptionProcessor, coverage: Coverage) -> None:
        self.model, self.processor, self.coverage = model, processor, coverage

    def _prepare(self, numbered: Sequence[NumberedRequest]) -> list[Prepared]:
        """Everything that can be wrong with a request, but its image, is wrong here, before anything is computed."""
        prompts = [self.prompt_of(request) for _, request in numbered]
        different = list(dict.fromkeys(prompts))
        prompt_ids = dict(zip(different, self.processor.prompt_ids(different), strict=True))
        num_cut = {prompt: self._num_tokens_cut(prompt, ids) for prompt, ids in prompt_ids.items()}
        prefixes = [self.prefix_of(request) for _, request in numbered]
        prefix_ids = {prefix: self.processor.prefix_ids(prefix) for prefix in set(prefixes)}
        return [
            Prepared(
                number,
                request,
                prefix,
                prefix_ids[prefix],
                prompt_ids[prompt],
                num_cut[prompt],
                self.guidance_of(request),
            )
            for (number, request), prefix, prompt in zip(numbered, prefixes, prompts, strict=True)
        ]

    def _num_tokens_cut(self, prompt: str, read: Sequence[int]) -> int:
        """A little too long is cut and told; of what is much too long a beginning would say nothing."""
        num_tokens = self.processor.num_prompt_tokens(prompt, read)
        if num_tokens > MAX_TIMES_READ * self.processor.max_prompt_tokens:
            raise UserError(
                f"the text '{prompt[-40:]}' takes {num_tokens:,} tokens, and the model reads "
                f"{self.processor.max_prompt_tokens}; give it in pieces, such as sentences"
            )
        return num_tokens - len(read)

    def prompt_of(self, request: GenerationRequest) -> str:
        pair = self.coverage.possible_pair(request.task, request.language)
        try:
            return self.coverage.prompt(pair, Style(request.style), request.source)
        except ValueError as error:
            raise UserError(str(error)) from None

    def prefix_of(self, request: GenerationRequest) -> str:
        if request.prefix_text is not None:
            return request.prefix_text
        wants_prefix = request.prefix == "always"
        if request.prefix == "auto":
            pair = Pair(request.task, request.language)
            wants_prefix = self.coverage.task(pair.task).after_prefix and pair in self.coverage.hole
        return self.coverage.language(request.language).prefix if wants_prefix else ""

    def guidance_of(self, request: GenerationRequest) -> float:
        """As asked for, or the model's own for captions; none where there is no picture, or where tokens are drawn."""
        if request.settings.is_sampled or (request.image is None and request.image_features is None):
            return 1.0
        asked = request.settings.guidance_scale
        own = self.model.guidance_scale({}) if request.task == CAPTION else 1.0
        return own if asked is None else asked


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
