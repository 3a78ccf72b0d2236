"""The cached states of the samples that are decoded together, which enter and leave while others go on.

Self-attention's states stand on one axis of columns, a column a step; a sample that entered later begins in a later
column, and what is before it is masked. Cross-attention's states are padded behind. Rows of a sample are its beams.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedConfig

from babelcap.models.generation.caches import SharedEncoderCache, generation_cache


class Entering(NamedTuple):
    """Samples that were given equally many tokens, each in one row, and what the decoder cached of them."""

    cache: SharedEncoderCache
    encoder_mask: Tensor  # [samples, encoder positions]
    num_tokens: int


class Slots:
    def __init__(self, config: PreTrainedConfig, num_beams: int, max_length: int, device: torch.device) -> None:
        self.config, self.num_beams, self.max_length = config, num_beams, max_length
        self.cache = generation_cache(config, max_length)
        self.starts: list[int] = []  # of each sample, the column of its first token
        self.encoder_mask = torch.ones(0, 0, device=device)
        self._across_mask: Tensor | None = None

    @property
    def num_columns(self) -> int:
        return int(self.cache.get_seq_length()) if self.starts else 0

    def positions(self) -> Tensor:
        """[rows, 1] of the tokens that come next."""
        now = self.num_columns
        found = [now - start for start in self.starts for _ in range(self.num_beams)]
        return torch.tensor(found, device=self.encoder_mask.device)[:, None]

    def mask(self) -> Tensor | None:
        """[rows, columns and the next one], or None where all samples began in the first."""
        if not any(self.starts):
            return None
        columns = torch.arange(self.num_columns + 1, device=self.encoder_mask.device)
        starts = torch.tensor(self.starts, device=columns.device).repeat_interleave(self.num_beams)
        return (columns >= starts[:, None]).long()

    def own_mask(self) -> Tensor | None:
        """The same as it is added to scores, [rows, 1, 1, columns]."""
        mask = self.mask()
        return None if mask is None else _added(mask)[:, None, None]

    def across_mask(self) -> Tensor | None:
        """[samples, 1, 1, encoder positions], to be added to scores."""
        return self._across_mask

    def exchange(self, kept: Sequence[int], entering: Sequence[Entering]) -> None:
        """Samples `kept` stay, in this order, and others come behind them."""
        now = self.num_columns
        starts = [self.starts[place] for place in kept]
        starts += [now - part.num_tokens for part in entering for _ in range(len(part.encoder_mask))]
        first = min(starts)  # columns before it are dropped; where it is below 0, there is room made in front
        cache = generation_cache(self.config, self.max_length)
        self._exchange_own(cache, kept, entering, first)
        self._exchange_across(cache, kept, entering)
        self.cache, self.starts = cache, [start - first for start in starts]

    def _exchange_own(
        self, cache: SharedEncoderCache, kept: Sequence[int], entering: Sequence[Entering], first: int
    ) -> None:
        now, size = self.num_columns, self.num_beams
        rows = [place * size + beam for place in kept for beam in range(size)]
        caches = [(self.cache, rows, 0)] if kept else []
        caches += [
            (part.cache, [row for row in range(len(part.encoder_mask)) for _ in range(size)], now - part.num_tokens)
            for part in entering
        ]
        for index in range(len(cache.self_attention_cache.layers)):
            layers = [(old.self_attention_cache.layers[index], rows, start) for old, rows, start in caches]
            keys = [functional.pad(layer.keys[rows], (0, 0, start - first, 0)) for layer, rows, start in layers]
            values = [functional.pad(layer.values[rows], (0, 0, start - first, 0)) for layer, rows, start in layers]
            cache.self_attention_cache.update(torch.cat(keys), torch.cat(values), index)

    def _exchange_across(self, cache: SharedEncoderCache, kept: Sequence[int], entering: Sequence[Entering]) -> None:
        caches = [(self.cache.cross_attention_cache, list(kept))] if kept else []
        caches += [(part.cache.cross_attention_cache, list(range(len(part.encoder_mask)))) for part in entering]
        masks = [self.encoder_mask[list(kept)]] if kept else []
        masks += [part.encoder_mask for part in entering]
        num_positions = max(_num_positions(mask) for mask in masks)
        self.encoder_mask = torch.cat([functional.pad(mask, (0, num_positions - mask.shape[1])) for mask in masks])
        self._across_mask = None if bool(self.encoder_mask.all()) else _added(self.encoder_mask)[:, None, None]
        for index in [
            index
            for index, is_cached in (entering[0].cache if entering else self.cache).is_updated.items()
            if is_cached
        ]:
            keys = [_sized(old.layers[index].keys[samples], num_positions) for old, samples in caches]
            values = [_sized(old.layers[index].values[samples], num_positions) for old, samples in caches]
            cache.cross_attention_cache.update(torch.cat(keys), torch.cat(values), index)
            cache.is_updated[index] = True


def _sized(states: Tensor, num_positions: int) -> Tensor:
    return functional.pad(states, (0, 0, 0, num_positions - states.shape[2]))


def _num_positions(mask: Tensor) -> int:
    """Up to the last that is attended to."""
    return int((mask != 0).any(dim=0).nonzero().max()) + 1


def _added(mask: Tensor) -> Tensor:
    """0 where there is something to attend to."""
    return torch.zeros(mask.shape, device=mask.device).masked_fill_(mask == 0, -torch.inf)
