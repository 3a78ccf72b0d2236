"""Files that may be bad: of another kind, damaged, far too large, nested without end. Each is one clear line.

Every reader of a file that babelcap did not just write goes through here.
"""

import errno
import gzip
import json
import os
import stat
import tomllib
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, BinaryIO, NamedTuple

from babelcap.errors import UserError

MAX_BYTES = 256 * 2**20  # of a text file that is read whole
MAX_JSON_BYTES = 64 * 2**20  # which takes some twenty times its size in memory
MAX_TOML_BYTES = 2**20  # which takes a second
MAX_TOML_DOTS = 250  # of a line: a key of n parts costs the standard library the square of n, in time and memory
MAX_DEPTH = 100  # of nested tables and lists
WRONG_PLACES = {
    errno.ENOENT: "no such file",
    errno.ENOTDIR: "no such file; a part of its path is a file, not a folder",
    errno.EISDIR: "this is a folder; name the file in it",
    errno.ELOOP: "no such file; its links lead in a circle",
    errno.ENAMETOOLONG: "no such file; its name is too long",
    errno.ENXIO: "not a regular file",
}
MAX_LINE_BYTES = 64 * 2**20


def read_bytes(path: str | Path, max_bytes: int = MAX_BYTES) -> bytes:
    with open_regular(path) as file:
        try:
            found = b"".join(_pieces(file, max_bytes))
        except OSError as error:
            raise UserError(f"{path} cannot be read ({error})") from None
    if len(found) > max_bytes:
        raise UserError(f"{path} is larger than {max_bytes / 2**20:.0f} MiB; it is not a file of this kind")
    return found


def open_regular(path: str | Path) -> BinaryIO:
    """A file to read. A pipe or a device in its place, on which one would wait without end, is one clear line."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno not in WRONG_PLACES:
            raise  # permissions and the like, which the command line words
        raise UserError(f"{path}: {WRONG_PLACES[error.errno]}") from None
    except ValueError:
        raise UserError(f"{path}: no file can be called that") from None
    kind = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(kind):
        os.close(descriptor)
        raise UserError(f"{path}: {WRONG_PLACES[errno.EISDIR if stat.S_ISDIR(kind) else errno.ENXIO]}")
    return os.fdopen(descriptor, "rb")


def _pieces(file: IO[bytes] | gzip.GzipFile, max_bytes: int) -> Iterator[bytes]:
    """Not one read of all that is allowed, which would take that much memory whatever the file has."""
    left = max_bytes + 1
    while left > 0 and (piece := file.read(min(left, 2**18))):
        left -= len(piece)
        yield piece


def read_text(path: str | Path, max_bytes: int = MAX_BYTES) -> str:
    """UTF-8, with or without a byte order mark."""
    try:
        return read_bytes(path, max_bytes).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error}); it may be damaged or of another kind") from None


def read_gzip_text(path: str | Path, max_bytes: int = MAX_BYTES) -> str:
    """UTF-8 text of a gzip file, bounded as unpacked."""
    try:
        with open_regular(path) as packed, gzip.GzipFile(fileobj=packed) as file:
            found = b"".join(_pieces(file, max_bytes))
        text = found.decode("utf-8-sig")
    except (EOFError, UnicodeDecodeError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is not a gzip file of UTF-8 text ({_short(error)}); it may be damaged") from None
    if len(found) > max_bytes:
        raise UserError(f"{path} holds more than {max_bytes / 2**20:.0f} MiB; it is not a file of this kind")
    return text


def read_lines(file: IO[bytes] | gzip.GzipFile, path: str | Path, max_bytes: int) -> Iterator[str]:
    """Lines of a text that may be packed and may be long, without their ends; a longer line than allowed is cut."""
    while True:
        try:
            line = rest = file.readline(max_bytes)
            while rest and not rest.endswith(b"\n"):
                rest = file.readline(max_bytes)
        except (EOFError, OSError, zlib.error, zipfile.BadZipFile) as error:  # OSError: of gzip, of bzip2 in a zip
            raise UserError(f"{path} cannot be unpacked ({_short(error)}); it may be damaged") from None
        if not line:
            return
        yield line.removesuffix(b"\n").decode("utf-8", "replace")


def parse_json(text: str | bytes, where: str | Path) -> Any:
    try:
        value = json.loads(text, object_pairs_hook=_each_once)
    except RecursionError:
        raise UserError(f"{where} is nested too deeply; it may be damaged or of another kind") from None
    except (UnicodeDecodeError, ValueError) as error:  # ValueError: no JSON, or a number of thousands of digits
        raise UserError(f"{where} is not valid JSON ({_short(error)}); it may be damaged or of another kind") from None
    check_depth(value, where)
    _check_surrogates(text, value, where)
    return value


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Of two values under one name, one would be lost without a word."""
    found = dict(pairs)
    if len(found) < len(pairs):
        twice, _ = Counter(name for name, _ in pairs).most_common(1)[0]
        raise ValueError(f"{twice!r:.60} stands in one object twice")
    return found


def _check_surrogates(text: str | bytes, value: Any, where: str | Path) -> None:
    """JSON can spell half of a surrogate pair, which is no character: whoever writes it later would stumble."""
    spelled = "\\ud" in text.lower() if isinstance(text, str) else b"\\ud" in text.lower()
    if not spelled:
        return
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise UserError(f"{where} is not valid JSON (half of a surrogate pair); it may be damaged") from None


def read_json(path: str | Path, max_bytes: int = MAX_JSON_BYTES) -> Any:
    return parse_json(read_text(path, max_bytes), path)


def read_json_object(path: str | Path, max_bytes: int = MAX_JSON_BYTES) -> dict[str, Any]:
    value = read_json(path, max_bytes)
    if not isinstance(value, dict):
        raise UserError(f"{path}: expected an object, found a {type(value).__name__}; it may be of another kind")
    return value


def read_toml(path: str | Path, max_bytes: int = MAX_TOML_BYTES) -> dict[str, Any]:
    text = read_text(path, max_bytes)
    if any(line.count(".") > MAX_TOML_DOTS for line in text.split("\n")):
        raise UserError(f"{path} has a line of more than {MAX_TOML_DOTS} dots; it may be damaged or of another kind")
    try:
        value = tomllib.loads(text)
    except RecursionError:
        raise UserError(f"{path} is nested too deeply; it may be damaged or of another kind") from None
    except ValueError as error:
        raise UserError(f"{path} is not valid TOML: {_short(error)}") from None
    check_depth(value, path)
    return value


class JsonLine(NamedTuple):
    """A line of a file of JSON lines; `error` where it cannot be read."""

    number: int  # from 1
    value: Any
    error: str | None = None


def read_json_lines(path: str | Path) -> Iterator[JsonLine]:
    """Line by line, good ones and bad ones; blank lines are passed over."""
    with open_regular(path) as file:
        number = 0
        while line := file.readline(MAX_LINE_BYTES + 1):
            number += 1
            if len(line) > MAX_LINE_BYTES:
                yield JsonLine(number, None, f"longer than {MAX_LINE_BYTES / 2**20:.0f} MiB")
                return
            if not line.strip():
                continue
            try:
                yield JsonLine(number, parse_json(line, f"{path}:{number}"))
            except UserError as error:
                yield JsonLine(number, None, str(error))


def check_depth(value: Any, where: str | Path) -> None:
    """Stops what would exhaust the stack of whoever walks through it later."""
    level = [value]
    for _ in range(MAX_DEPTH):
        deeper: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                deeper.extend(item.values())
            elif isinstance(item, list):
                deeper.extend(item)
        if not deeper:
            return
        level = deeper
    raise UserError(f"{where} is nested more than {MAX_DEPTH} levels deep; it may be damaged or of another kind")


@contextmanager
def parquet_errors(path: str | Path, kind: str = "Parquet") -> Iterator[None]:
    """Whatever Arrow says of a damaged file, in one line. Hold it around opening *and* reading."""
    import pyarrow

    try:
        yield
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; name the {kind} file in it") from None
    except (pyarrow.ArrowException, OSError, MemoryError, OverflowError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise  # the disk's words, not the file's
        raise UserError(f"{path} is not a readable {kind} file ({_short(error)}); it may be damaged") from None


def _short(error: Exception) -> str:
    lines = str(error).splitlines()
    return (lines[0] if lines else type(error).__name__)[:200]
