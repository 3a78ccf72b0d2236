"""Rounds rows of states, multiplies them by whole weights and scales the results in one compiled call (int8.c)."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from babelcap.native.compiled import checked, checked_states, compiled_module, wanted_level
from babelcap.native.threads import parallel_address

GROUP = 4  # inputs that lie together; as int8.c has them
MAX_INPUTS = 2**16  # with more, sums of 255 * 127 would leave 32 bits


class Level(NamedTuple):
    """What a processor can do."""

    number: int  # as the compiled code counts
    name: str
    max_zero: int  # 64 where products are added in 16 bits, so that states have 7 bits
    panel: int  # outputs that lie together


def known_levels() -> list[Level]:
    """Of this processor and this build, the fastest first; none where nothing was compiled."""
    compiled = compiled_module("int8")
    return [] if compiled is None else [Level(number, *level) for number, level in enumerate(compiled.levels())]


def find_level(zero: int) -> Level | None:
    """The fastest that multiplies states around this zero point, or the one that the environment names."""
    wanted = wanted_level()
    known = [level for level in known_levels() if zero <= level.max_zero and wanted in (None, level.name)]
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
    num_outputs, num_inputs = checked(whole, torch.int8, 2).shape
    if not (0 < num_inputs <= MAX_INPUTS and num_outputs):
        raise ValueError(f"a weight of {num_outputs} x {num_inputs}: between 1 and {MAX_INPUTS} inputs are multiplied")
    for values in (scales, bias):
        if values is not None and len(checked(values, torch.float32, 1)) != num_outputs:
            raise ValueError(f"{len(values)} values for {num_outputs} outputs")
    if not 0 < largest < zero <= level.max_zero:
        raise ValueError(f"{level.name} multiplies no states of {zero} +- {largest}")
    packed = pack(whole, level.panel)
    start = functional.pad(-zero * whole.sum(dim=1), (0, -num_outputs % level.panel)).to(torch.int32)
    scales, bias = scales.contiguous(), None if bias is None else bias.contiguous()
    compiled, parallel = compiled_module("int8"), parallel_address()

    def multiply(states: Tensor) -> Tensor:
        states = checked_states(states, num_inputs)
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
