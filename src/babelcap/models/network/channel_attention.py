"""DaViT's attention between channels, without scaled copies of queries, keys and values.

softmax(q^T k / sqrt(positions)) v^T within each group of channels. transformers' layer gives fused attention its states
with positions last, which it cannot take: it falls back to scaled copies of queries, keys and values. Here the products
read the states where they stand, image by image.
"""

import torch
from torch import Tensor
from transformers.models.florence2.modeling_florence2 import (
    Florence2VisionBackbone,
    Florence2VisionChannelAttention,
    Florence2VisionChannelBlock,
)


class LeanChannelAttention(Florence2VisionChannelAttention):
    """transformers' layer and parameters; equal to its results but for rounding."""

    def forward(self, hidden_states: Tensor) -> Tensor:
        """[batch, positions, channels]. A tower that learns and graphics cards have transformers' own way.

        One that is frozen has this one in a training too, or what is computed there would differ from what is kept.
        """
        learns = hidden_states.requires_grad or self.qkv.weight.requires_grad
        if (torch.is_grad_enabled() and learns) or hidden_states.device.type != "cpu":
            found: Tensor = super().forward(hidden_states)
            return found
        qkv = self.qkv(hidden_states).unflatten(-1, (3, self.groups, -1))
        query, key, value = qkv.transpose(1, 3).unbind(2)  # [batch, groups, positions, channels of a group]
        scores = torch.stack([one.transpose(1, 2) @ other for one, other in zip(query, key, strict=True)])
        weights = scores.mul_(hidden_states.shape[1] ** -0.5).softmax(dim=-1).transpose(2, 3)
        attended = torch.stack([one @ other for one, other in zip(value, weights, strict=True)])
        return self.proj(attended.transpose(1, 2).flatten(2))


def use_lean_channels(tower: Florence2VisionBackbone) -> None:
    """The tower's own weights go on to serve, so nothing is drawn anew."""
    for stage, blocks in enumerate(tower.blocks):
        for block in blocks.modules():
            if isinstance(block, Florence2VisionChannelBlock):
                with torch.device("meta"):
                    lean = LeanChannelAttention(tower.config, stage)
                lean.qkv, lean.proj = block.channel_attn.qkv, block.channel_attn.proj
                block.channel_attn = lean
