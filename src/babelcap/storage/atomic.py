"""Files and folders that are written whole or not at all: written beside their place, then moved into it."""

import errno
import json
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from babelcap.errors import UserError

_SYSTEM_ERROR = re.compile(r"\(os error (\d+)\)")  # as libraries in Rust word it


# Of places where nothing can be made, such as /proc, or under such a name. A full disk is another matter.
_NOWHERE = {errno.ENOENT, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.ENODEV, errno.EOPNOTSUPP}


def _beside(path: Path) -> Path:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise UserError(f"{path}: its folder cannot be made, because a file is in the way; choose another") from None
    except OSError as error:
        raise _told(path, error) from None
    return path.with_name(f".{path.name}.{os.getpid()}-{uuid4().hex[:8]}.partial")


def _told(path: Path, error: OSError) -> Exception:
    """Why nothing can be made there, where that is the place's fault; the error itself where it is not."""
    if error.errno not in _NOWHERE:
        return error
    return UserError(f"{path!s:.300}: nothing can be written there ({os.strerror(error.errno)}); choose another place")


def _check_name(path: Path) -> None:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        pass  # nothing there yet, or something in the way, which is told later
    except OSError as error:
        raise _told(path, error) from None


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _errors_of_the_disk(path: Path) -> Iterator[None]:
    """safetensors and tokenizers tell of a full disk by exceptions of their own: told as what it is."""
    try:
        yield
    except OSError:
        raise
    except Exception as error:
        if (found := _SYSTEM_ERROR.search(str(error))) is None:
            raise
        raise OSError(int(found[1]), os.strerror(int(found[1])), str(path)) from error


@contextmanager
def atomic_file(path: str | Path) -> Iterator[Path]:
    """Yields a path to write to. Leaving the block normally moves it into place; an exception removes it."""
    path = Path(path)
    _check_name(path)
    if path.is_dir():
        raise UserError(f"{path} is a folder; name a file")
    if path.exists() and not path.is_file():
        # For root a rename would put a file in the place of /dev/null, for all of the machine.
        raise UserError(f"{path} is a device or a pipe; name a file")
    partial = _beside(path)
    try:
        os.close(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666))
        partial.unlink()  # whoever writes makes it, or it is missing
    except OSError as error:
        raise _told(path, error) from None
    try:
        with _errors_of_the_disk(path):
            yield partial
        _sync(partial)
        os.replace(partial, path)
        _sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def atomic_folder(path: str | Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Like `atomic_file` for a folder. An existing, non-empty folder is an error unless `overwrite`.

    A link that leads to an empty folder or to none yet, on a larger disk say, stays and is followed. One to something
    that is there is replaced where `overwrite` says so, and what it leads to stays.
    """
    _check_name(Path(path))
    path = Path(path) if overwrite else _followed(Path(path))
    taken = UserError(f"{path} exists already; choose another output or remove it")
    if path.exists() and (not path.is_dir() or (not overwrite and any(path.iterdir()))):
        raise taken
    partial = _beside(path)
    try:
        partial.mkdir()
    except OSError as error:
        raise _told(path, error) from None
    try:
        with _errors_of_the_disk(path):
            yield partial
        _move_folder(partial, path, overwrite)
        _sync(path.parent)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST) and error.filename2 == str(path):
            raise taken from None  # another process was faster
        raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _move_folder(partial: Path, path: Path, overwrite: bool) -> None:
    if not overwrite or not os.path.lexists(path):
        os.replace(partial, path)  # takes the place of an empty folder, and of no other
        return
    old = _beside(path)
    os.replace(path, old)
    try:
        os.replace(partial, path)
    except BaseException:
        os.replace(old, path)
        raise
    if old.is_symlink():
        old.unlink()
    else:
        shutil.rmtree(old, ignore_errors=True)


def _followed(path: Path) -> Path:
    real = Path(os.path.realpath(path)) if path.is_symlink() else path
    if real.is_symlink():
        raise UserError(f"{path}: its links lead in a circle; choose another output")
    return real


def sweep_partials(folder: Path) -> None:
    """What a killed process was writing when it died. One run at a time holds the folder's lock."""
    for path in list(folder.rglob(".*.partial")):
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_json(path: str | Path, value: Any) -> None:
    write_text(path, json.dumps(value, ensure_ascii=False, indent=2) + "\n")
