"""DaViT's attention within windows, without work on what fills up the windows at the right and at the bottom.

transformers' layer pads the image to whole windows; at 224 px the last two stages come to three times their positions.
A padded position is a row of zeros: its key and value are the layer's biases and need no product, nobody asks for what
it attends to, and so it is a key and a value and never a query.
"""

from collections.abc import Iterator

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.models.florence2.modeling_florence2 import (
    Florence2VisionBackbone,
    Florence2VisionSpatialBlock,
    Florence2VisionWindowAttention,
)

from babelcap.models.network.attention import attend


class LeanWindowAttention(Florence2VisionWindowAttention):
    """transformers' layer and parameters; equal to its results but for rounding."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        """[batch, height, width, channels] -> [batch, height * width, channels]"""
        qkv = self.qkv(hidden_states)
        rows = [
            torch.cat(
                [self._attend_in_windows(band[:, :, cols]) for cols in _whole_and_rest(qkv, 2, self.window_size)], 2
            )
            for band in (qkv[:, rows] for rows in _whole_and_rest(qkv, 1, self.window_size))
        ]
        return self.proj(torch.cat(rows, dim=1).flatten(1, 2))

    def _attend_in_windows(self, qkv: Tensor) -> Tensor:
        """A part of the image whose windows are all of one size, at most the layer's."""
        batch_size, height, width, _ = qkv.shape
        window = min(self.window_size, height), min(self.window_size, width)
        num_windows = height // window[0], width // window[1]
        parts = qkv.view(batch_size, num_windows[0], window[0], num_windows[1], window[1], 3, self.num_heads, -1)
        parts = parts.permute(5, 0, 1, 3, 6, 2, 4, 7).flatten(5, 6).flatten(1, 3)
        query, key, value = parts.unbind(0)  # [windows, heads, positions, head width]
        num_padded = self.window_size**2 - window[0] * window[1]
        if num_padded:
            key, value = (_and_padded(states, num_padded, part, self.qkv) for part, states in ((1, key), (2, value)))
        attended = attend(query, key, value, None, scaling=self.scale)
        attended = attended.view(batch_size, *num_windows, self.num_heads, *window, -1)
        return attended.permute(0, 1, 4, 2, 5, 3, 6).reshape(batch_size, height, width, self.dim)


def _whole_and_rest(states: Tensor, dim: int, window_size: int) -> Iterator[slice]:
    """The part of a side that whole windows cover, and what is left over."""
    length = states.shape[dim]
    covered = length // window_size * window_size
    if covered:
        yield slice(0, covered)
    if covered < length:
        yield slice(covered, length)


def _and_padded(states: Tensor, num_padded: int, part: int, qkv: nn.Linear) -> Tensor:
    """Keys (part 1) or values (part 2) with those of the padded positions behind them."""
    if qkv.bias is None:
        return functional.pad(states, (0, 0, 0, num_padded))
    num_windows, num_heads, _, head_width = states.shape
    padded = qkv.bias.view(3, num_heads, 1, head_width)[part].to(states.dtype)
    return torch.cat([states, padded.expand(num_windows, -1, num_padded, -1)], dim=2)


def use_lean_windows(tower: Florence2VisionBackbone) -> None:
    """The tower's own weights go on to serve, so nothing is drawn anew."""
    for stage, blocks in enumerate(tower.blocks):
        for block in blocks.modules():
            if isinstance(block, Florence2VisionSpatialBlock):
                with torch.device("meta"):
                    lean = LeanWindowAttention(tower.config, stage)
                lean.qkv, lean.proj = block.window_attn.qkv, block.window_attn.proj
                block.window_attn = lean
