"""Window attention without padded positions against transformers' own layer: results, gradients and work saved."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import Florence2VisionConfig
from transformers.models.florence2.modeling_florence2 import Florence2VisionWindowAttention

from babelcap.models import Captioner
from babelcap.models.network.window_attention import LeanWindowAttention

from ..conftest import tiny_config

WINDOW_SIZE = 4


def layers(qkv_bias: bool) -> tuple[Florence2VisionWindowAttention, LeanWindowAttention]:
    torch.manual_seed(0)
    config = Florence2VisionConfig(
        embed_dim=(16,), num_heads=(2,), num_groups=(2,), depths=(1,), window_size=WINDOW_SIZE, qkv_bias=qkv_bias
    )
    padded, lean = (kind(config, 0).double() for kind in (Florence2VisionWindowAttention, LeanWindowAttention))
    lean.load_state_dict(padded.state_dict())
    return padded, lean


@pytest.mark.parametrize("qkv_bias", [True, False])
@pytest.mark.parametrize("side", [(8, 8), (3, 3), (6, 8), (8, 5), (9, 10), (1, 7)])
def test_equal_to_the_padded_layer(side: tuple[int, int], qkv_bias: bool) -> None:
    padded, lean = layers(qkv_bias)
    states = torch.randn(2, *side, 16, dtype=torch.double)
    results = []
    for layer in (padded, lean):
        given = states.clone().requires_grad_()
        result = layer(given)
        result.square().sum().backward()
        results.append((result, given.grad, *(parameter.grad for parameter in layer.parameters())))
    for expected, found in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_work_grows_with_positions_not_with_windows() -> None:
    padded, lean = layers(qkv_bias=True)
    counts = []
    for layer in (padded, lean):
        with FlopCounterMode(display=False) as counter:
            layer(torch.randn(1, 5, 5, 16, dtype=torch.double))
        counts.append(counter.get_total_flops())
    assert counts[1] < counts[0] * 25 / 64 * 1.1  # 25 positions in windows that hold 64


def test_the_captioner_uses_it_with_the_towers_weights() -> None:
    model = Captioner(tiny_config("bart"))
    used = [module for module in model.modules() if isinstance(module, Florence2VisionWindowAttention)]
    assert used
    assert all(isinstance(module, LeanWindowAttention) for module in used)
    assert not any(parameter.is_meta for parameter in model.parameters())
