"""Files of distributed datasets: a missing one is named with where to get it, and counts are those that are known."""

from pathlib import Path
from typing import Any, NamedTuple

from babelcap.errors import UserError
from babelcap.storage import read_gzip_text, read_json, read_json_lines, read_text

MAX_JSON_BYTES = 2**30  # Karpathy's file of COCO has 144 MB, Visual Genome's larger ones have more


class Described(NamedTuple):
    """A picture of a dataset with what people wrote about it."""

    id: str
    image: Path
    split: str
    texts: tuple[str, ...]


def need_file(path: Path, origin: str) -> Path:
    """The file, or a line that says where to get it."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; get it from {origin}")
    return path


def need_lines(path: Path, origin: str, expected: int) -> list[str]:
    """The lines of a text file, gzipped where its name says so; as many as the benchmark has."""
    read = read_gzip_text if need_file(path, origin).suffix == ".gz" else read_text
    try:
        text = read(path)
    except UserError as error:
        raise UserError(f"{error}; get it from {origin}") from None
    lines = [line.strip() for line in text.removesuffix("\n").split("\n")]
    check_count(path, "lines", len(lines), expected)
    return lines


def need_json(path: Path, origin: str) -> Any:
    return read_json(need_file(path, origin), MAX_JSON_BYTES)


def need_json_lines(path: Path, origin: str) -> list[dict[str, Any]]:
    rows = []
    for line in read_json_lines(need_file(path, origin)):
        if line.error is not None or not isinstance(line.value, dict):
            raise UserError(f"{path}:{line.number}: {line.error or 'expected an object'}; get it from {origin}")
        rows.append(line.value)
    return rows


def check_count(path: Path, what: str, found: int, expected: int) -> None:
    if found != expected:
        raise UserError(f"{path}: expected {expected} {what}, found {found}; the file is not the distributed one")


def field_error(path: Path, error: Exception) -> UserError:
    return UserError(f"{path} is not in the distributed format ({type(error).__name__}: {error})")
