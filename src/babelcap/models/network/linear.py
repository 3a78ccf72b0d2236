"""Products of float32 on processors, by oneDNN where torch's own leave half of the processor unused.

torch multiplies float32 by MKL, which takes its code for AVX2 on processors that Intel did not make. oneDNN, which
torch brings too, takes AVX-512 wherever it is: twice as fast on an AMD Zen 5, forwards and backwards, from weights as
they lie (bench/linear.py). The rule looks at the processor and not at a clock, so that a training goes on to the same
bits after a restart: `BABELCAP_ONEDNN=0` or `1` decides otherwise.
"""

import os
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from babelcap.errors import UserError

VARIABLE = "BABELCAP_ONEDNN"
MIN_PRODUCTS = 2**22  # multiplications of a product: of a smaller one the call itself takes most of the gain


@cache
def uses_onednn() -> bool:
    """Whether float32 is multiplied by oneDNN in this process."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "0", "1"):
        raise UserError(f"{VARIABLE} is '{wanted:.40}'; give 0 (torch's own products) or 1 (oneDNN's)")
    is_there = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return is_there and (wanted == "1" or (wanted == "" and _leaves_half_unused()))


def _leaves_half_unused() -> bool:
    try:
        told = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return False
    return "GenuineIntel" not in told and torch.backends.cpu.get_cpu_capability() == "AVX512"


def is_served(left: Tensor, right: Tensor) -> bool:
    """Whether oneDNN multiplies these: large enough, in float32, on a processor, and nothing else is asked for."""
    return (
        left.dtype == right.dtype == torch.float32
        and left.device.type == "cpu"
        and right.device.type == "cpu"
        and left.numel() * right.shape[0] >= MIN_PRODUCTS
        and uses_onednn()
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
    )


def times(left: Tensor, right: Tensor) -> Tensor:
    """left right of matrices, without a gradient of its own."""
    turned = right.t()
    return _product(left, turned, None) if is_served(left, turned) else left @ right


def _product(states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """states weight^T + bias, whatever the strides."""
    found: Tensor = torch.ops.mkldnn._linear_pointwise(states, weight, bias, "none", [], "")
    return found


class _Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, states: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        ctx.save_for_backward(states, weight)
        return _product(states, weight, bias)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        (states, weight), gradient = ctx.saved_tensors, outer[0].flatten(0, -2)
        of_states, of_weight, of_bias = ctx.needs_input_grad
        return (
            _product(gradient, weight.t(), None).view(states.shape) if of_states else None,
            _product(gradient.t(), states.flatten(0, -2).t(), None) if of_weight else None,
            gradient.sum(dim=0) if of_bias else None,
        )


class FastLinear(nn.Linear):
    """nn.Linear, weights and all; what differs is who multiplies."""

    def forward(self, input: Tensor) -> Tensor:
        if not is_served(input, self.weight) or input.ndim < 2:
            return functional.linear(input, self.weight, self.bias)
        given = (input, self.weight, self.bias)
        if torch.is_grad_enabled() and any(part is not None and part.requires_grad for part in given):
            found: Tensor = _Linear.apply(*given)
            return found
        return _product(*given)


def make_fast(model: nn.Module) -> None:
    """Its linear layers multiply as fast as this process can; weights, names and hooks stay."""
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = FastLinear
