"""The decoders whose step is written out, and how to take it; others step through transformers' layers."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from torch import Tensor, nn

from babelcap.models.generation.bart_step import bart_joined, bart_step
from babelcap.models.generation.gemma_step import gemma_joined, gemma_step
from babelcap.models.generation.products import Product
from babelcap.models.generation.slots import Slots
from babelcap.models.network.bart_decoder import BartTextDecoder
from babelcap.models.network.gemma_decoder import GatedGemma


class WrittenStep(NamedTuple):
    joined: Callable[[Any], list[tuple[nn.Linear, ...]]]  # layers that have one input, and become one product
    run: Callable[[Any, Sequence[Product], Tensor, Slots], Tensor]  # decoder, those products, tokens [rows], caches


STEPS: dict[type, WrittenStep] = {
    BartTextDecoder: WrittenStep(bart_joined, bart_step),
    GatedGemma: WrittenStep(gemma_joined, gemma_step),
}


def written_step(decoder: Any) -> WrittenStep | None:
    return next((step for kind, step in STEPS.items() if isinstance(decoder, kind)), None)
