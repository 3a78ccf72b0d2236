"""What an attack needs of a reader: files to damage, and a function that reads them."""

import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from PIL import Image

RESULTS = Path(__file__).parents[2] / "results" / "small"


class Target(NamedTuple):
    """Files to damage, and the reader that has to cope with them."""

    files: list[Path]
    read: Callable[[Path], object]  # with a new folder to write to


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path


def json_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def put_json(path: Path, value: Any) -> Path:
    """A list as JSON lines, unless the name says otherwise."""
    lines = isinstance(value, list) and path.suffix != ".json"
    return put(path, json_lines(value) if lines else json.dumps(value))


def photo(number: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (8, 6), (number * 20, 9, 99)).save(stream, "JPEG")
    return stream.getvalue()
