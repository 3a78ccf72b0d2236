"""Weights packed once for products with a known, small number of rows, as each step of decoding has them.

MKL lays out a matrix for its kernels at every product anew. For a few rows that costs as much as the product itself, so
during a generation on the CPU in float32 it is done once, for as many weights as `MAX_BYTES` of copies allow.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

MAX_BYTES = 2**30  # of copies; the decoder layers and the whole head of the 0.4B size fit
MAX_ROWS = 64  # beyond, the layout is a small part of the product
MIN_STEPS = 32  # before, packing costs more than it saves

Product = Callable[[Tensor], Tensor]


def can_pack(weight: Tensor, num_rows: int) -> bool:
    return (
        weight.device.type == "cpu"
        and weight.dtype == torch.float32
        and num_rows <= MAX_ROWS
        and torch.backends.mkl.is_available()
        and hasattr(torch.ops.mkl, "_mkl_linear")
    )


def packed_product(weight: Tensor, bias: Tensor | None, num_rows: int) -> Product:
    """states -> states weight^T + bias. Other numbers of rows than the one packed for take the usual way."""
    weight = weight.detach()
    packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, num_rows)
    return partial(_multiply, packed, weight, None if bias is None else bias.detach(), num_rows)


def _multiply(packed: Tensor, weight: Tensor, bias: Tensor | None, num_rows: int, states: Tensor) -> Tensor:
    return torch.ops.mkl._mkl_linear(states, packed, weight, bias, num_rows)


@contextmanager
def packed_for_decoding(decoder: nn.Module, head: Any, head_weight: Tensor, num_rows: int) -> Iterator[None]:
    """Within, the decoder's linear layers and the head multiply by packed weights. Not for training: no gradients."""
    layers = [module for module in decoder.modules() if isinstance(module, nn.Linear) and "forward" not in vars(module)]
    budget = MAX_BYTES
    replaced: list[nn.Linear] = []
    try:
        for layer in layers:
            if can_pack(layer.weight, num_rows) and layer.weight.nbytes <= budget:
                budget -= layer.weight.nbytes
                vars(layer)["forward"] = packed_product(layer.weight, layer.bias, num_rows)
                replaced.append(layer)
        if can_pack(head_weight, num_rows) and head_weight.nbytes <= budget:
            head.product = packed_product(head_weight, None, num_rows)
        yield
    finally:
        head.product = None
        for layer in replaced:
            vars(layer).pop("forward", None)
