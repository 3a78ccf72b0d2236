"""torch's own pool of threads, for compiled code: a second one would fight with it for the same cores.

The one private hook: torch computes in the threads of an OpenMP runtime that libtorch_cpu links to, and every such
runtime on Linux (GNU's, and LLVM's and Intel's, which take code compiled for GNU's) has `GOMP_parallel`. A look-up in
libtorch_cpu finds the one that torch uses, however many are loaded. Where there is none, compiled code runs alone.
"""

import ctypes
import os
from functools import cache
from pathlib import Path

import torch

LIBRARY = Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"
FUNCTION = "GOMP_parallel"


@cache
def parallel_address() -> int:
    """Of `void GOMP_parallel(void (*work)(void *), void *data, unsigned num_threads, unsigned flags)`, or 0."""
    if not hasattr(os, "RTLD_NOLOAD"):
        return 0
    try:
        library = ctypes.CDLL(str(LIBRARY), mode=os.RTLD_NOLOAD | os.RTLD_LAZY)
        return ctypes.cast(getattr(library, FUNCTION), ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0
