"""Locks that a process holds and that the system gives back when it dies. The file says who holds it."""

import fcntl
import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from babelcap.errors import UserError

_HELD: set[int] = set()  # descriptors of this process's locks


def _let_go_in_child() -> None:
    """A forked child would go on holding its parent's locks after the parent's death."""
    for descriptor in _HELD:
        with suppress(OSError):
            os.close(descriptor)
    _HELD.clear()


os.register_at_fork(after_in_child=_let_go_in_child)


@contextmanager
def locked(path: Path, *, refuse: str | None = None) -> Iterator[None]:
    """Held by one process at a time. A second one waits, or stops with the line `refuse` that names the first.

    Where the file system has no locks, several may go on: what they write is whole all the same.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{path.parent}: a file is in the way of this folder; choose another") from None
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    _HELD.add(descriptor)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if refuse is not None:
                raise UserError(f"{refuse} (held by {_holder(descriptor)})") from None
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        except OSError:
            pass  # no locks on this file system
        with suppress(OSError):  # who holds it is a help, not a need: the disk may be full
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, json.dumps({"process": os.getpid(), "host": socket.gethostname()}).encode(), 0)
        yield
    finally:
        if descriptor in _HELD:  # not where this is a forked child, which has let go of it
            _HELD.remove(descriptor)
            os.close(descriptor)


def _holder(descriptor: int) -> str:
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        return f"process {holder['process']} on {holder['host']}"
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
