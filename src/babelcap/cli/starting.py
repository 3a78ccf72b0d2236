"""A command's start and end without the garbage collector.

torch, transformers and a model are millions of objects that stay until the end. The collector would walk them again and
again while they come, and once more when the process ends: half of what a cold caption takes besides its work.
"""

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def starting() -> Iterator[None]:
    """While heavy imports are made and a model is read. What is there afterwards is not looked through any more."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


@contextmanager
def ending() -> Iterator[None]:
    """Around a whole command: what is left at its end goes with the process, unlooked at."""
    try:
        yield
    finally:
        gc.freeze()
