"""Attention between channels without copies against transformers' own layer."""

import pytest
import torch
from transformers import Florence2VisionConfig
from transformers.models.florence2.modeling_florence2 import Florence2VisionChannelAttention

from babelcap.models import Captioner
from babelcap.models.network.channel_attention import LeanChannelAttention

from ..conftest import tiny_config


def layers(qkv_bias: bool) -> tuple[Florence2VisionChannelAttention, LeanChannelAttention]:
    torch.manual_seed(0)
    config = Florence2VisionConfig(
        embed_dim=(24,), num_heads=(2,), num_groups=(3,), depths=(1,), qkv_bias=qkv_bias, attn_implementation="sdpa"
    )
    theirs, lean = (kind(config, 0).double() for kind in (Florence2VisionChannelAttention, LeanChannelAttention))
    lean.load_state_dict(theirs.state_dict())
    return theirs, lean


@pytest.mark.parametrize("qkv_bias", [True, False])
@pytest.mark.parametrize(("batch_size", "num_positions"), [(1, 1), (2, 9), (3, 50)])
def test_equal_to_transformers_layer(batch_size: int, num_positions: int, qkv_bias: bool) -> None:
    theirs, lean = layers(qkv_bias)
    states = torch.randn(batch_size, num_positions, 24, dtype=torch.double)
    with torch.no_grad():
        torch.testing.assert_close(lean(states), theirs(states), rtol=1e-10, atol=1e-10)


def test_gradients_are_transformers_own() -> None:
    theirs, lean = layers(qkv_bias=True)
    states = torch.randn(2, 9, 24, dtype=torch.double)
    for layer in (theirs, lean):
        layer(states).square().sum().backward()
    for expected, found in zip(theirs.parameters(), lean.parameters(), strict=True):
        torch.testing.assert_close(found.grad, expected.grad, rtol=1e-10, atol=1e-10)


def test_the_captioner_uses_it_with_the_towers_weights() -> None:
    model = Captioner(tiny_config("bart"))
    used = [module for module in model.modules() if isinstance(module, Florence2VisionChannelAttention)]
    assert used
    assert all(isinstance(module, LeanChannelAttention) for module in used)
    assert not any(parameter.is_meta for parameter in model.parameters())
