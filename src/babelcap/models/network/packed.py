"""Targets of a batch one behind the other in a single row, without padding, of which half a padded batch consists.

Matrices are multiplied with the row, which holds tokens alone. Attention is small beside them, and is done on the
padded batch, to which the row is spread: a token sees the tokens before it of its own sample, and its sample's encoder
states. Losses are those of the padded batch, to rounding.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import AttentionInterface

from babelcap.data.feed.batches import IGNORED_LABEL
from babelcap.models.network.attention import attend

NAME = "babelcap_packed"  # among transformers' implementations of attention


class Packing(NamedTuple):
    """Where the tokens of the row stand in the padded batch."""

    places: Tensor  # [tokens], counted through the padded batch row by row
    shape: tuple[int, int]  # samples, longest

    def spread(self, row: Tensor) -> Tensor:
        """[tokens, ...] -> [samples, longest, ...], 0 where there is no token."""
        found = row.new_zeros((self.shape[0] * self.shape[1], *row.shape[1:]))
        return found.index_copy(0, self.places, row).unflatten(0, self.shape)

    def gather(self, padded: Tensor) -> Tensor:
        """[samples, longest, ...] -> [tokens, ...]."""
        return padded.flatten(0, 1)[self.places]

    def positions(self) -> Tensor:
        """[tokens]: each sample begins at 0."""
        return self.places % self.shape[1]

    def masks(self, sliding_window: int | None) -> dict[str, Tensor]:
        """By kind of layer, bool [1, 1, longest, longest]: what the places of a sample see of each other."""
        place = torch.arange(self.shape[1], device=self.places.device)
        full = place[:, None] >= place
        near = full if sliding_window is None else full & (place > place[:, None] - sliding_window)
        return {"full_attention": full[None, None], "sliding_attention": near[None, None]}


def packing_of(labels: Tensor) -> Packing:
    """A sample ends with its last label that counts."""
    positions = torch.arange(labels.shape[1], device=labels.device)
    ends = positions.masked_fill(labels == IGNORED_LABEL, -1).amax(dim=1, keepdim=True)
    return Packing((positions <= ends).flatten().nonzero()[:, 0], (labels.shape[0], labels.shape[1]))


def attend_packed(
    module: Any,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    packing: Packing,
    scaling: float,
    dropout: float = 0.0,
    softcap: float | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """As transformers calls its attention: [1, heads, tokens, width] each -> [1, tokens, heads, width]."""
    query, key, value = (packing.spread(part[0].transpose(0, 1)).transpose(1, 2) for part in (query, key, value))
    found = attend(query, key, value, attention_mask, scaling=scaling, softcap=softcap, dropout=dropout)
    return packing.gather(found.transpose(1, 2))[None], None


AttentionInterface.register(NAME, attend_packed)


@contextmanager
def packed_attention(config: Any) -> Iterator[None]:
    """While this lasts, the layers of this configuration attend to rows that are packed."""
    before = config._attn_implementation
    config._attn_implementation_internal = NAME
    try:
        yield
    finally:
        config._attn_implementation_internal = before
