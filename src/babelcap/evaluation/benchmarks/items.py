"""One item type for all benchmarks, and the readers' common ground: files that are named where they are missing."""

import gzip
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from babelcap.errors import UserError
from babelcap.storage import read_bytes, read_json, read_json_lines


@dataclass(frozen=True)
class Item:
    """What a system is asked, and what its answer is held against."""

    id: str  # unique in its benchmark
    image: Path
    language: str  # of the answer
    task: str  # caption | translation
    style: str = "short"  # of a caption: short | detailed | more_detailed
    source: str | None = None  # what is to be translated, in English
    references: tuple[str, ...] = ()
    contrast: str | None = None  # an answer that fits the source but not the picture


def need_file(path: Path, origin: str) -> Path:
    """The file, or a line that says where to get it."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; get it from {origin}")
    return path


def need_lines(path: Path, origin: str, expected: int) -> list[str]:
    """The lines of a text file, gzipped where its name says so; as many as the benchmark has."""
    found = read_bytes(need_file(path, origin))
    try:
        text = (gzip.decompress(found) if path.suffix == ".gz" else found).decode("utf-8")
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read ({error}); it may be damaged; get it from {origin}") from None
    lines = [line.strip() for line in text.removesuffix("\n").split("\n")]
    check_count(path, "lines", len(lines), expected)
    return lines


def need_json(path: Path, origin: str) -> Any:
    return read_json(need_file(path, origin))


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


def require_images(items: Iterable[Item], origin: str) -> None:
    """All pictures are there, or a line that says how many are not, which is the first, and where to get them."""
    images = {item.image for item in items}
    missing = sorted(image for image in images if not image.is_file())
    if missing:
        raise UserError(
            f"{missing[0]}: no such picture ({len(missing)} of {len(images)} missing); get it from {origin}"
        )
