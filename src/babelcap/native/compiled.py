"""What was compiled, which level of it is wanted, and the check of what it is given.

`BABELCAP_NATIVE=0` turns it off; the name of a level (`avx512vnni`, `avxvnni`, `avx2`) takes that one where the
processor has it; what multiplies floats knows only `avx512`, which the first of these stands for, and `avx2`, for the
others. Compiled code trusts addresses and sizes: they are checked before they are given to it.
"""

import importlib
import os
from functools import cache
from typing import Any

import torch
from torch import Tensor

from babelcap.errors import UserError

VARIABLE = "BABELCAP_NATIVE"
LEVELS = ("avx512vnni", "avxvnni", "avx2")  # that int8.c knows, whether a processor has them or not
ANY, NONE = ("", "1"), "0"
AVX512, AVX2 = "avx512", "avx2"


@cache
def compiled_module(name: str) -> Any:
    try:
        return importlib.import_module(f"babelcap.native._{name}")
    except ImportError:  # no compiler where it was installed
        return None


def wanted_level() -> str | None:
    """Of the environment: "0" for none, None for the fastest."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in (*ANY, NONE, *LEVELS):
        raise UserError(f"{VARIABLE} is '{wanted:.40}'; give 0 (none), 1 (the fastest) or one of {', '.join(LEVELS)}")
    return None if wanted in ANY else wanted


def known_float_levels(name: str) -> list[str]:
    """Of this processor and this build, the fastest first; none where nothing was compiled."""
    compiled = compiled_module(name)
    return [] if compiled is None else compiled.levels()


def find_float_level(name: str) -> str | None:
    """The fastest, or the one that the environment names."""
    wanted, known = wanted_level(), known_float_levels(name)
    if wanted is None:
        return next(iter(known), None)
    level = AVX512 if wanted.startswith(AVX512) else wanted.replace("avxvnni", AVX2)
    return level if wanted != NONE and level in known else None


def checked(values: Tensor, dtype: torch.dtype, num_dimensions: int) -> Tensor:
    if values.dtype != dtype or values.device.type != "cpu" or values.ndim != num_dimensions:
        raise ValueError(
            f"{list(values.shape)} of {values.dtype} on {values.device}: {num_dimensions} dimensions of {dtype} on the "
            "processor are taken"
        )
    return values


def checked_states(states: Tensor, num_inputs: int) -> Tensor:
    if states.dtype != torch.float32 or states.device.type != "cpu" or states.shape[-1] != num_inputs:
        given = f"states {list(states.shape)} of {states.dtype} on {states.device}"
        raise ValueError(f"{given}: [..., {num_inputs}] of float32 on the processor are multiplied")
    return states.contiguous()
