"""Targets of a batch one behind the other in a single row, without padding: in training half of a padded row is empty.

A token sees the tokens before it of its own sample, and the encoder's states of its own sample: masks are blocks.
Losses are those of the padded batch, to rounding.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from babelcap.data.feed.batches import IGNORED_LABEL


class Packed(NamedTuple):
    input_ids: Tensor  # [1, tokens of all samples]
    position_ids: Tensor  # [1, tokens]: each sample begins at 0
    labels: Tensor  # [1, tokens]
    places: Tensor  # bool [samples, longest]: where the tokens stand in the padded batch
    masks: dict[str, Tensor]  # by kind of layer, bool [1, 1, tokens, tokens]
    cross_mask: Tensor  # bool [1, 1, tokens, states of all samples]

    def unpack(self, values: Tensor) -> Tensor:
        """Of each token -> of each place of the padded batch, 0 where there is no token."""
        return values.new_zeros(self.places.shape).masked_scatter(self.places, values)


def pack(input_ids: Tensor, labels: Tensor, encoder_mask: Tensor, sliding_window: int | None) -> Packed:
    """A sample ends with its last label that counts; `encoder_mask` is [samples, states]."""
    positions = torch.arange(labels.shape[1], device=labels.device).expand_as(labels)
    ends = positions.masked_fill(labels == IGNORED_LABEL, -1).amax(dim=1, keepdim=True)
    places = positions <= ends
    samples = torch.arange(len(labels), device=labels.device)[:, None]
    position, sample = positions[places], samples.expand_as(labels)[places]
    full = (sample[:, None] == sample) & (position[:, None] >= position)
    near = full if sliding_window is None else full & (position > position[:, None] - sliding_window)
    state_sample = samples.expand_as(encoder_mask).flatten()
    crossing = (sample[:, None] == state_sample) & encoder_mask.flatten().bool()
    return Packed(
        input_ids[places][None],
        position[None],
        labels[places][None],
        places,
        {"full_attention": full[None, None], "sliding_attention": near[None, None]},
        crossing[None, None],
    )


def added_mask(seen: Tensor, dtype: torch.dtype) -> Tensor:
    """0 where there is something to see, else the lowest number."""
    return torch.zeros_like(seen, dtype=dtype).masked_fill(~seen, torch.finfo(dtype).min)
