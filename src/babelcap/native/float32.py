"""A few rows of states times a weight as it lies in memory, without a copy of it, in one compiled call (float32.c).

A row's results depend neither on the rows beside it nor on the number of threads.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from babelcap.native.compiled import checked, checked_states, compiled_module, known_float_levels
from babelcap.native.threads import parallel_address


def make_product(weight: Tensor, bias: Tensor | None, *, level: str) -> Callable[[Tensor], Tensor]:
    """states [..., inputs] -> [..., outputs]. The weight is not copied; one that does not lie row by row is refused."""
    num_outputs, num_inputs = checked(weight, torch.float32, 2).shape
    if not weight.is_contiguous() or not weight.numel():
        raise ValueError(
            f"a weight of {num_outputs} x {num_inputs} with strides {weight.stride()}: rows are multiplied"
        )
    if bias is not None and len(checked(bias, torch.float32, 1)) != num_outputs:
        raise ValueError(f"{len(bias)} values for {num_outputs} outputs")
    bias = None if bias is None else bias.contiguous()
    compiled, parallel, number = (
        compiled_module("float32"),
        parallel_address(),
        known_float_levels("float32").index(level),
    )

    def multiply(states: Tensor) -> Tensor:
        states = checked_states(states, num_inputs)
        found = torch.empty(*states.shape[:-1], num_outputs)
        num_rows = states.numel() // num_inputs
        if num_rows:
            compiled.multiply(
                number,
                parallel,
                torch.get_num_threads(),
                states.data_ptr(),
                num_rows,
                num_inputs,
                weight.data_ptr(),
                0 if bias is None else bias.data_ptr(),
                num_outputs,
                found.data_ptr(),
            )
        return found

    return multiply
