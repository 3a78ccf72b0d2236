"""Files that may be bad: of another kind, damaged, far too large, nested without end. Each is one clear line.

Every reader of a file that babelcap did not just write goes through here.
"""

import gzip
import json
import tomllib
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from babelcap.errors import UserError

MAX_BYTES = 256 * 2**20  # of a text file that is read whole
MAX_DEPTH = 100  # of nested tables and lists
MAX_LINE_BYTES = 64 * 2**20


def read_bytes(path: str | Path, max_bytes: int = MAX_BYTES) -> bytes:
    path = Path(path)
    try:
        with path.open("rb") as file:
            found = b"".join(_pieces(file, max_bytes))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; name the file in it") from None
    except NotADirectoryError:
        raise UserError(f"{path}: no such file; a part of its path is a file, not a folder") from None
    except OSError as error:
        if error.errno is None or error.filename is not None:
            raise  # permissions and the like, which the command line words
        raise UserError(f"{path} cannot be read ({error})") from None
    if len(found) > max_bytes:
        raise UserError(f"{path} is larger than {max_bytes / 2**20:.0f} MiB; it is not a file of this kind")
    return found


def _pieces(file: BinaryIO | gzip.GzipFile, max_bytes: int) -> Iterator[bytes]:
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
    path = Path(path)
    try:
        with path.open("rb") as packed, gzip.GzipFile(fileobj=packed) as file:
            found = b"".join(_pieces(file, max_bytes))
        text = found.decode("utf-8-sig")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (EOFError, UnicodeDecodeError, zlib.error, gzip.BadGzipFile) as error:
        raise UserError(f"{path} is not a gzip file of UTF-8 text ({_short(error)}); it may be damaged") from None
    if len(found) > max_bytes:
        raise UserError(f"{path} holds more than {max_bytes / 2**20:.0f} MiB; it is not a file of this kind")
    return text


def parse_json(text: str | bytes, where: str | Path) -> Any:
    try:
        value = json.loads(text)
    except RecursionError:
        raise UserError(f"{where} is nested too deeply; it may be damaged or of another kind") from None
    except (UnicodeDecodeError, ValueError) as error:  # ValueError: no JSON, or a number of thousands of digits
        raise UserError(f"{where} is not valid JSON ({_short(error)}); it may be damaged or of another kind") from None
    check_depth(value, where)
    _check_surrogates(text, value, where)
    return value


def _check_surrogates(text: str | bytes, value: Any, where: str | Path) -> None:
    """JSON can spell half of a surrogate pair, which is no character: whoever writes it later would stumble."""
    spelled = "\\ud" in text.lower() if isinstance(text, str) else b"\\ud" in text.lower()
    if not spelled:
        return
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise UserError(f"{where} is not valid JSON (half of a surrogate pair); it may be damaged") from None


def read_json(path: str | Path, max_bytes: int = MAX_BYTES) -> Any:
    return parse_json(read_text(path, max_bytes), path)


def read_json_object(path: str | Path, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    value = read_json(path, max_bytes)
    if not isinstance(value, dict):
        raise UserError(f"{path}: expected an object, found a {type(value).__name__}; it may be of another kind")
    return value


def read_toml(path: str | Path, max_bytes: int = MAX_BYTES) -> dict[str, Any]:
    text = read_text(path, max_bytes)
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
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    with path.open("rb") as file:
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
