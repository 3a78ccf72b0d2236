"""Rounds rows of states, multiplies them by whole weights and scales the results in one compiled call (int8.c).

`BABELCAP_NATIVE=0` turns it off; the name of a level (`avx512vnni`, `avxvnni`, `avx2`) takes that one where the
processor has it. The compiled code trusts addresses and sizes: they are checked here.
"""

import importlib
import os
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from babelcap.errors import UserError
from babelcap.native.threads import parallel_address

VARIABLE = "BABELCAP_NATIVE"
LEVELS = ("avx512vnni", "avxvnni", "avx2")  # that int8.c knows, whether a processor has them or not
ANY, NONE = ("", "1"), "0"
GROUP = 4  # inputs that lie together; as int8.c has them
MAX_INPUTS = 2**16  # with more, sums of 255 * 127 would leave 32 bits


class Level(NamedTuple):
    """What a processor can do."""

    number: int  # as the compiled code counts
    name: str
    max_zero: int  # 64 where products are added in 16 bits, so that states have 7 bits
    panel: int  # outputs that lie together


@cache
def _compiled() -> Any:
    try:
        return importlib.import_module("babelcap.native._int8")
    except ImportError:  # no compiler where it was installed
        return None


def known_levels() -> list[Level]:
    """Of this processor and this build, the fastest first; none where nothing was compiled."""
    compiled = _compiled()
    return [] if compiled is None else [Level(number, *level) for number, level in enumerate(compiled.levels())]


def find_level(zero: int) -> Level | None:
    """The fastest that multiplies states around this zero point, or the one that the environment names."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in (*ANY, NONE, *LEVELS):
        raise UserError(f"{VARIABLE} is '{wanted:.40}'; give 0 (none), 1 (the fastest) or one of {', '.join(LEVELS)}")
    known = [level for level in known_levels() if zero <= level.max_zero and wanted in (*ANY, level.name)]
    return known[0] if known else None


def pack(whole: Tensor, panel: int) -> Tensor:
    """[outputs, inputs] -> [panel, group of inputs, output, input of the group], with zeros where there is none."""
    num_outputs, num_inputs = whole.shape
    padded = functional.pad(whole, (0, -num_inputs % GROUP, 0, -num_outputs % panel))
    return padded.view(-1, panel, padded.shape[1] // GROUP, GROUP).transpose(1, 2).contiguous()


def make_product(
    whole: Tensor, scales: Tensor, bias: Tensor | None, *, largest: int, zero: int, level: Level
) -> Callable[[Tensor], Tensor]:
    """states [..., inputs] -> [..., outputs], of weights scales * whole; states are rounded to zero +- largest."""
    num_outputs, num_inputs = _checked(whole, torch.int8, 2).shape
    if not (0 < num_inputs <= MAX_INPUTS and num_outputs):
        raise ValueError(f"a weight of {num_outputs} x {num_inputs}: between 1 and {MAX_INPUTS} inputs are multiplied")
    for values in (scales, bias):
        if values is not None and len(_checked(values, torch.float32, 1)) != num_outputs:
            raise ValueError(f"{len(values)} values for {num_outputs} outputs")
    if not 0 < largest < zero <= level.max_zero:
        raise ValueError(f"{level.name} multiplies no states of {zero} +- {largest}")
    packed = pack(whole, level.panel)
    start = functional.pad(-zero * whole.sum(dim=1), (0, -num_outputs % level.panel)).to(torch.int32)
    scales, bias = scales.contiguous(), None if bias is None else bias.contiguous()
    compiled, parallel = _compiled(), parallel_address()

    def multiply(states: Tensor) -> Tensor:
        if states.dtype != torch.float32 or states.device.type != "cpu" or states.shape[-1] != num_inputs:
            given = f"states {list(states.shape)} of {states.dtype} on {states.device}"
            raise ValueError(f"{given}: [..., {num_inputs}] of float32 on the processor are multiplied")
        states = states.contiguous()
        found = torch.empty(*states.shape[:-1], num_outputs)
        num_rows = states.numel() // num_inputs
        if num_rows:
            compiled.multiply(
                level.number,
                parallel,
                torch.get_num_threads(),
                states.data_ptr(),
                num_rows,
                num_inputs,
                packed.data_ptr(),
                start.data_ptr(),
                scales.data_ptr(),
                0 if bias is None else bias.data_ptr(),
                num_outputs,
                largest,
                zero,
                found.data_ptr(),
            )
        return found

    return multiply


def _checked(values: Tensor, dtype: torch.dtype, num_dimensions: int) -> Tensor:
    if values.dtype != dtype or values.device.type != "cpu" or values.ndim != num_dimensions:
        raise ValueError(
            f"{list(values.shape)} of {values.dtype} on {values.device}: {num_dimensions} dimensions of {dtype} on the "
            "processor are multiplied"
        )
    return values
