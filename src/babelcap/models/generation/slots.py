"""The cached states of the samples that are decoded together, which enter and leave while others go on.

Self-attention's states stand on one axis of columns, a column a step; a sample that entered later begins in a later
column, and what is before it is masked. Cross-attention's states are padded behind. Rows of a sample are its beams.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from transformers import PreTrainedConfig

from babelcap.models.generation.caches import SharedEncoderCache, generation_cache


class Entering(NamedTuple):
    """Samples that were read in, each in one row: what was cached of them ends in the same column."""

    cache: SharedEncoderCache
    encoder_mask: Tensor  # [samples, encoder positions]
    num_tokens: list[int]  # that each was given

    @property
    def num_columns(self) -> int:
        return max(self.num_tokens)


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

    def exchange(self, kept: Sequence[int], entering: Entering | None) -> None:
        """Samples `kept` stay, in this order, and others come behind them."""
        now = self.num_columns
        starts = [self.starts[place] for place in kept]
        starts += [now - number for number in entering.num_tokens] if entering is not None else []
        first = min(starts)  # columns before it are dropped; where it is below 0, there is room made in front
        cache = generation_cache(self.config, self.max_length)
        self._exchange_own(cache, kept, entering, first)
        self._exchange_across(cache, kept, entering)
        self.cache, self.starts = cache, [start - first for start in starts]

    def _exchange_own(
        self, cache: SharedEncoderCache, kept: Sequence[int], entering: Entering | None, first: int
    ) -> None:
        now, size = self.num_columns, self.num_beams
        rows = [place * size + beam for place in kept for beam in range(size)]
        caches = [(self.cache, self._tensor(rows), 0)] if kept else []
        if entering is not None:
            rows = [row for row in range(len(entering.num_tokens)) for _ in range(size)]
            caches.append((entering.cache, self._tensor(rows), now - entering.num_columns))
        for index in range(len(cache.self_attention_cache.layers)):
            layers = [(old.self_attention_cache.layers[index], rows, start) for old, rows, start in caches]
            keys = [_padded(layer.keys.index_select(0, rows), start - first, 0) for layer, rows, start in layers]
            values = [_padded(layer.values.index_select(0, rows), start - first, 0) for layer, rows, start in layers]
            cache.self_attention_cache.update(_cat(keys), _cat(values), index)

    def _tensor(self, places: Sequence[int]) -> Tensor:
        return torch.tensor(places, dtype=torch.long, device=self.encoder_mask.device)

    def _exchange_across(self, cache: SharedEncoderCache, kept: Sequence[int], entering: Entering | None) -> None:
        stay = self._tensor(kept)
        caches: list[tuple[Any, Tensor | None]] = [(self.cache.cross_attention_cache, stay)] if kept else []
        masks = [self.encoder_mask[stay]] if kept else []
        if entering is not None:
            caches.append((entering.cache.cross_attention_cache, None))  # all of its samples
            masks.append(entering.encoder_mask)
        num_positions = max(_num_positions(mask) for mask in masks)
        self.encoder_mask = torch.cat([functional.pad(mask, (0, num_positions - mask.shape[1])) for mask in masks])
        self._across_mask = None if bool(self.encoder_mask.all()) else _added(self.encoder_mask)[:, None, None]
        for index in [
            index
            for index, is_cached in (self.cache if entering is None else entering.cache).is_updated.items()
            if is_cached
        ]:
            layers = [(old.layers[index], samples) for old, samples in caches]
            keys = [_sized(layer.keys, samples, num_positions) for layer, samples in layers]
            values = [_sized(layer.values, samples, num_positions) for layer, samples in layers]
            cache.cross_attention_cache.update(_cat(keys), _cat(values), index)
            cache.is_updated[index] = True


def _sized(states: Tensor, samples: Tensor | None, num_positions: int) -> Tensor:
    chosen = states if samples is None else states.index_select(0, samples)
    return _padded(chosen, 0, num_positions - states.shape[2])


def _padded(states: Tensor, num_before: int, num_behind: int) -> Tensor:
    """Not copied where nothing is added; a negative number takes positions away."""
    return functional.pad(states, (0, 0, num_before, num_behind)) if num_before or num_behind else states


def _cat(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(list(parts))


def _num_positions(mask: Tensor) -> int:
    """Up to the last that is attended to."""
    return int((mask != 0).any(dim=0).nonzero().max()) + 1


def _added(mask: Tensor) -> Tensor:
    """0 where there is something to attend to."""
    return torch.zeros(mask.shape, device=mask.device).masked_fill_(mask == 0, -torch.inf)
