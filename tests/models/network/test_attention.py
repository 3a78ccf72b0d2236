"""Attention by plain products, as a processor trains in bfloat16, against torch's fused attention in float32."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from babelcap.models.network import attention
from babelcap.models.network.attention import attend

CAUSAL = torch.ones(7, 7, dtype=torch.bool).tril()[None, None]
PADDED = torch.tensor([[True] * 7, [True] * 4 + [False] * 3])[:, None, None]


def heads(num_key_heads: int) -> list[Tensor]:
    """Queries of four heads, keys and values of as many or of fewer."""
    generator = torch.Generator().manual_seed(num_key_heads)
    shapes = [(2, 4, 7, 8), (2, num_key_heads, 7, 8), (2, num_key_heads, 7, 8)]
    return [torch.randn(shape, generator=generator).requires_grad_() for shape in shapes]


@pytest.mark.parametrize("mask", [CAUSAL, PADDED, None])
@pytest.mark.parametrize("num_key_heads", [4, 2, 1])
def test_bfloat16_training_attends_as_float32_does(
    mask: Tensor | None, num_key_heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = heads(num_key_heads)
    exact = attend(*given, mask, scaling=0.3)
    wanted = torch.autograd.grad(exact.square().sum(), given)

    def fused(*args: object, **kwargs: object) -> Tensor:
        raise AssertionError("torch's fused attention, whose backward pass in bfloat16 is slow")

    monkeypatch.setattr(functional, "scaled_dot_product_attention", fused)
    with torch.autocast("cpu", torch.bfloat16):
        found = attend(*given, mask, scaling=0.3)
    gradients = torch.autograd.grad(found.float().square().sum(), given)
    torch.testing.assert_close(found.float(), exact, rtol=0.03, atol=0.03)
    for gradient, right in zip(gradients, wanted, strict=True):
        assert (gradient - right).norm() < 0.03 * right.norm()


def test_fused_attention_stays_where_nothing_trains_or_in_float32() -> None:
    query, *_ = heads(4)
    assert not attention._trains_low(query)
    with torch.autocast("cpu", torch.bfloat16):
        assert attention._trains_low(query)
        assert not attention._trains_low(query.detach())
