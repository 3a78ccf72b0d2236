"""Caches of generation that move little: a step writes its own position, beams exchange only what they differ in."""

import math
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig
from transformers.cache_utils import DynamicCache, DynamicLayer, EncoderDecoderCache

MIN_ROOM = 32  # positions that a layer has room for at first; it doubles when it is full


class GrowingLayer(DynamicLayer):
    """transformers' layer copies all states at every step to append one; here they stand where they will stay."""

    keys: Tensor
    values: Tensor
    room: tuple[Tensor, Tensor] | None = None  # keys and values are the front of these

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        start = self.get_seq_length()
        end = start + key_states.shape[2]
        if self.room is None or self.room[0].shape[2] < end or self.room[0].data_ptr() != self.keys.data_ptr():
            num_positions = max(MIN_ROOM, 2 * start, end)
            self.room = (
                self._grown(self.keys, key_states, num_positions),
                self._grown(self.values, value_states, num_positions),
            )
        for room, states in zip(self.room, (key_states, value_states), strict=True):
            room[:, :, start:end] = states
        self.keys, self.values = (room[:, :, :end] for room in self.room)
        return self.keys, self.values

    @staticmethod
    def _grown(kept: Tensor, states: Tensor, num_positions: int) -> Tensor:
        room = states.new_empty(*states.shape[:2], num_positions, states.shape[3])
        if kept.numel():
            room[:, :, : kept.shape[2]] = kept
        return room

    def move_rows(self, sources: Tensor, targets: Tensor, first: int) -> None:
        """Rows take over another row's states from a position on; before it they are the same."""
        for states in (self.keys, self.values):
            ends = states[:, :, first:]
            ends.index_copy_(0, targets, ends.index_select(0, sources))


class BeamCache(DynamicCache):
    """Beams descend from common ancestors: up to the last of them their states are copies of one row's.

    So taking over another beam's history is taking over its end. `origins` knows for each row and position which row
    computed it; where it is unknown, every row is taken to have computed its own.
    """

    layers: list[Any]
    origins: Tensor | None = None

    def __init__(self, config: PreTrainedConfig, max_length: int | None) -> None:
        """A window that no sequence outgrows is none; of an unknown length, all windows stay."""
        if getattr(config, "sliding_window", None) is None:  # transformers copies a configuration to look for windows
            super().__init__()
            self.layers = [GrowingLayer() for _ in range(config.num_hidden_layers)]
            return
        super().__init__(config=config)
        self.layers = [
            GrowingLayer() if not layer.is_sliding or (max_length or math.inf) < layer.sliding_window else layer
            for layer in self.layers
        ]

    def reorder_cache(self, beam_idx: Tensor) -> None:
        own_row = torch.arange(len(beam_idx), device=beam_idx.device)
        known = beam_idx.new_empty(len(beam_idx), 0) if self.origins is None else self.origins
        num_new = self.get_seq_length() - known.shape[1]
        origins = torch.cat([known, own_row[:, None].expand(-1, num_new)], dim=1)
        self.origins = origins[beam_idx]
        differing = (self.origins != origins).any(dim=0).nonzero()
        if len(differing) == 0:
            return
        moved = (beam_idx != own_row).nonzero().flatten()
        for layer in self.layers:
            if isinstance(layer, GrowingLayer):
                layer.move_rows(beam_idx[moved], moved, int(differing[0]))
            else:
                layer.reorder_cache(beam_idx)

    def reset(self) -> None:
        self.origins = None
        super().reset()

    def crop(self, tokens_to_remove: int) -> None:
        self.origins = None
        super().crop(tokens_to_remove)

    def batch_repeat_interleave(self, repeats: int) -> None:
        self.origins = None
        super().batch_repeat_interleave(repeats)

    def batch_select_indices(self, indices: Tensor) -> None:
        self.origins = None
        super().batch_select_indices(indices)


class SharedEncoderCache(EncoderDecoderCache):
    """The rows of a sample have the same encoder states, so choosing among its beams reorders self-attention only."""

    def reorder_cache(self, beam_idx: Tensor) -> None:
        self.self_attention_cache.reorder_cache(beam_idx)


def generation_cache(config: PreTrainedConfig, max_length: int | None) -> SharedEncoderCache:
    """Cross-attention sees all of the encoder's states, also in layers whose self-attention has a window."""
    return SharedEncoderCache(BeamCache(config, max_length), DynamicCache())
