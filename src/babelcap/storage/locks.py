"""Locks that a process holds and that the system gives back when it dies. The file says who holds it."""

import fcntl
import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from babelcap.errors import UserError

_HELD: set[int] = set()  # descriptors of this process's locks
LEFT_BEHIND_SECONDS = 5.0  # how long a lock may outlive its holder: see `_taken_from_the_dead`


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
            if refuse is None:
                fcntl.flock(descriptor, fcntl.LOCK_EX)
            elif not _taken_from_the_dead(descriptor):
                raise UserError(f"{refuse} (held by {_holder(descriptor)})") from None
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


def _taken_from_the_dead(descriptor: int) -> bool:
    """Where the holder is dead, its lock is on its way back: a child that it forked at its end lets go soon after."""
    until = time.monotonic() + LEFT_BEHIND_SECONDS
    while not _is_alive(_read_holder(descriptor)):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() > until:
                return False
            time.sleep(0.02)
    return False


def _is_alive(holder: tuple[int, str] | None) -> bool:
    """Of what is not known, or on another machine, it is supposed."""
    if holder is None or holder[1] != socket.gethostname():
        return True
    try:
        os.kill(holder[0], 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass  # another user's
    return True


def _holder(descriptor: int) -> str:
    holder = _read_holder(descriptor)
    return "another process" if holder is None else f"process {holder[0]} on {holder[1]}"


def _read_holder(descriptor: int) -> tuple[int, str] | None:
    try:
        holder = json.loads(os.pread(descriptor, 4096, 0))
        process, host = int(holder["process"]), str(holder["host"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return (process, host) if process > 0 else None
