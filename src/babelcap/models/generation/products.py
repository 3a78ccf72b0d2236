"""The ways to compute states weight^T + bias with a few rows of states, as each step of decoding does.

All give the same numbers up to rounding, but int8, whose weights and states are rounded to whole numbers:
w = scale_w q_w for each output, x = scale_x (q_x - zero) for each row. Its two ways, oneDNN's and our own where it was
compiled, give the same bits. Which is fastest depends on processor and shape (choosing.py). Results have no gradient.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from babelcap.native import float32 as native_float32
from babelcap.native import int8 as native
from babelcap.native.compiled import find_float_level

Product = Callable[[Tensor], Tensor]
MAX_ROWS = 256  # of states; with more, the usual product is at its best

PLAIN, MKL, ONEDNN, WEIGHTS_FIRST, INT8 = "plain", "mkl", "onednn", "weights first", "int8"
NATIVE, NATIVE_INT8 = "compiled", "int8, compiled"
MIN_INT8_WEIGHTS = 2**19  # a smaller matrix is multiplied before its states are rounded; it stays as it is
LARGEST = 127  # of a weight in int8
ROUNDED_AT_ONCE = 2**17  # numbers; as float32, half a megabyte


class Kind(NamedTuple):
    make: Callable[[Tensor, Tensor | None, int], Product]  # weight, bias, number of rows it is made for
    is_known: Callable[[], bool]  # whether this build of torch has it
    bytes_a_weight: int  # of the copy that it keeps


def _plain(weight: Tensor, bias: Tensor | None, num_rows: int) -> Product:
    return lambda states: functional.linear(states, weight, bias)


def _mkl(weight: Tensor, bias: Tensor | None, num_rows: int) -> Product:
    """MKL's own layout, for exactly so many rows; it multiplies others in the usual way."""
    packed = torch.ops.mkl._mkl_reorder_linear_weight(weight, num_rows)
    return lambda states: torch.ops.mkl._mkl_linear(states, packed, weight, bias, num_rows)


def _onednn(weight: Tensor, bias: Tensor | None, num_rows: int) -> Product:
    packed = torch.ops.mkldnn._reorder_linear_weight(weight, num_rows)
    return lambda states: torch.ops.mkldnn._linear_pointwise(states, packed, bias, "none", [], "")


def _weights_first(weight: Tensor, bias: Tensor | None, num_rows: int) -> Product:
    def multiply(states: Tensor) -> Tensor:
        found = torch.matmul(weight, states.flatten(0, -2).t()).t().contiguous()
        if bias is not None:
            found += bias
        return found.unflatten(0, states.shape[:-1])

    return multiply


def _native(weight: Tensor, bias: Tensor | None, num_rows: int) -> Product:
    level = find_float_level("float32")
    if level is None or not weight.is_contiguous():
        return _plain(weight, bias, num_rows)
    return native_float32.make_product(weight, bias, level=level)


def _int8(weight: Tensor, bias: Tensor | None, num_rows: int) -> Product:
    rounded, scales = round_weight(weight)
    packed = torch.ops.onednn.qlinear_prepack(rounded, None)
    zeros = torch.zeros(len(scales), dtype=torch.int64)
    largest, zero = _states_range()

    def multiply(states: Tensor) -> Tensor:
        whole, scale = round_rows(states, largest, zero)
        found = torch.ops.onednn.qlinear_pointwise(
            whole, 1.0, zero, packed, scales, zeros, None, 1.0, 0, torch.float32, "none", [], ""
        )
        # The scale is a row's own, so that an outlier costs no other row.
        return found.mul_(scale) if bias is None else torch.addcmul(bias, found, scale, out=found)

    return multiply


def _native_int8(weight: Tensor, bias: Tensor | None, num_rows: int) -> Product:
    largest, zero = _states_range()
    level = native.find_level(zero)
    if level is None or weight.shape[1] > native.MAX_INPUTS:
        return _int8(weight, bias, num_rows)
    rounded, scales = round_weight(weight)
    return native.make_product(rounded, scales, bias, largest=largest, zero=zero, level=level)


def round_rows(states: Tensor, largest: int, zero: int) -> tuple[Tensor, Tensor]:
    """[..., inputs] -> whole numbers from zero - largest to zero + largest, and a scale for each row.

    Many rows are rounded part by part, so that what lies between is in the processor's cache and takes no new memory.
    """
    rows = states if states.ndim == 2 else states.flatten(0, -2)
    if rows.numel() <= ROUNDED_AT_ONCE:  # as in a step of decoding, whose time is the number of operations
        scale = _scales(rows.abs(), largest)
        whole = (rows / scale).round_().to(torch.int8)
    else:
        step = max(1, ROUNDED_AT_ONCE // rows.shape[1])
        whole, scale = torch.empty(rows.shape, dtype=torch.int8), torch.empty(len(rows), 1)
        room = torch.empty(step, rows.shape[1])
        for first in range(0, len(rows), step):
            part, last = rows[first : first + step], first + step
            between = room[: len(part)]
            scale[first:last] = _scales(torch.abs(part, out=between), largest)
            whole[first:last] = torch.div(part, scale[first:last], out=between).round_()
    whole = whole.view(torch.uint8).add_(zero)  # modulo 256; torch converts to int8 in half of the time of uint8
    return (whole, scale) if states.ndim == 2 else (whole.view(states.shape), scale.view(*states.shape[:-1], 1))


def _scales(sizes: Tensor, largest: int) -> Tensor:
    return sizes.amax(dim=-1, keepdim=True).clamp_(min=1e-12).div_(largest)


def _states_range() -> tuple[int, int]:
    """The largest whole number of a state, and its zero."""
    return (127, 128) if _has_exact_sums() else (63, 64)


@cache
def _has_exact_sums() -> bool:
    """Processors without VNNI add pairs of products in 16 bits: with 7 bits of the states they do not overflow."""
    return bool(torch.cpu._is_vnni_supported())


def round_weight(weight: Tensor) -> tuple[Tensor, Tensor]:
    """[outputs, inputs] -> whole numbers from -127 to 127, and a scale for each output.

    What was rounded once is rounded to the same again: the largest of a row is 127 of its scales.
    """
    scales = weight.abs().amax(dim=1).clamp(min=1e-12) / LARGEST
    return torch.round(weight / scales[:, None]).clamp_(-LARGEST, LARGEST).to(torch.int8), scales


def _has(namespace: str, name: str) -> bool:
    return hasattr(getattr(torch.ops, namespace), name)


def _knows_int8() -> bool:
    return torch.backends.mkldnn.is_available() and _has("onednn", "qlinear_pointwise")


@cache
@torch.no_grad()
def _knows_native_int8() -> bool:
    """Whether it was compiled for this processor, and is asked: another torch may round otherwise, and what a model
    says must not depend on a compiler."""
    if not _knows_int8() or native.find_level(_states_range()[1]) is None:
        return False
    generator = torch.Generator().manual_seed(0)
    weight, states = torch.randn(80, 131, generator=generator), torch.randn(9, 131, generator=generator)
    biases = (None, torch.randn(80, generator=generator))
    return all(torch.equal(_int8(weight, b, 9)(states), _native_int8(weight, b, 9)(states)) for b in biases)


KINDS: dict[str, Kind] = {
    PLAIN: Kind(_plain, lambda: True, 0),
    MKL: Kind(_mkl, lambda: torch.backends.mkl.is_available() and _has("mkl", "_mkl_linear"), 4),
    ONEDNN: Kind(_onednn, lambda: torch.backends.mkldnn.is_available() and _has("mkldnn", "_linear_pointwise"), 4),
    WEIGHTS_FIRST: Kind(_weights_first, lambda: True, 0),
    NATIVE: Kind(_native, lambda: find_float_level("float32") is not None, 0),
    INT8: Kind(_int8, _knows_int8, 1),
    NATIVE_INT8: Kind(_native_int8, _knows_native_int8, 1),
}
EXACT = (PLAIN, MKL, ONEDNN, WEIGHTS_FIRST, NATIVE)
ROUNDED = (INT8, NATIVE_INT8)


def can_choose(weight: Tensor, num_rows: int) -> bool:
    return weight.device.type == "cpu" and weight.dtype == torch.float32 and num_rows <= MAX_ROWS


def make_product(kind: str, weight: Tensor, bias: Tensor | None, num_rows: int) -> Product:
    """states [..., inputs] -> [..., outputs]. Many rows, such as a whole prompt's, are multiplied in the usual way."""
    weight, bias = weight.detach(), None if bias is None else bias.detach()
    few = KINDS[kind].make(weight, bias, num_rows)
    if kind in ROUNDED:
        return few

    def multiply(states: Tensor) -> Tensor:
        is_few = states.numel() <= num_rows * states.shape[-1]
        return few(states) if is_few else functional.linear(states, weight, bias)

    return multiply
