"""Where images come from that a user names: files, folders, patterns and addresses, each bounded in size and time."""

import glob
import hashlib
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator
from http.client import HTTPException
from pathlib import Path

from babelcap.data.feed.images import MAX_FILE_BYTES, read_encoded
from babelcap.errors import BadSample, UserError

MAX_DOWNLOAD_BYTES = min(MAX_FILE_BYTES, 64 * 2**20)
TIMEOUT_SECONDS = 20.0  # without an answer
MAX_SECONDS = 60.0  # for all of it
PIECE_BYTES = 2**16
SUFFIXES = frozenset(
    {".jpg", ".jpeg", ".jfif", ".png", ".webp", ".gif", ".bmp", ".tif", ".tiff", ".avif", ".heic", ".heif"}
)
STANDARD_INPUT = "-"


def is_url(name: str) -> bool:
    return name.lower().startswith(("http://", "https://"))


def expand_sources(names: list[str]) -> Iterator[str]:
    """Files, addresses and "-" as they are, the images of a folder and the files of a pattern in order of their names.

    A file that is not there stays in, so that it is reported in its place, beside those that can be used.
    """
    for name in names:
        path = Path(name)
        if name == STANDARD_INPUT or is_url(name) or path.is_file():
            yield name
        elif path.is_dir():
            found = sorted(str(file) for file in path.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
            if not found:
                raise UserError(f"{name}: no images in this folder (looked for {', '.join(sorted(SUFFIXES))})")
            yield from found
        elif glob.has_magic(name):
            found = sorted(file for file in glob.glob(name, recursive=True) if Path(file).is_file())
            if not found:
                raise UserError(f"{name}: no file has such a name")
            yield from found
        else:
            yield name


def open_sources(names: Iterable[str]) -> list[tuple[str, str | bytes]]:
    """Names, each with what holds the image. What comes on standard input is named by its content, for the next image
    that comes there is another one."""
    return [_read_standard_input() if name == STANDARD_INPUT else (name, name) for name in names]


def _read_standard_input() -> tuple[str, bytes]:
    try:
        content = read_encoded(sys.stdin.buffer)
    except BadSample as error:
        raise UserError(f"standard input: {error}") from None
    return f"stdin:{hashlib.sha256(content).hexdigest()[:16]}", content


def fetch_image(url: str, max_bytes: int = MAX_DOWNLOAD_BYTES, max_seconds: float = MAX_SECONDS) -> bytes:
    """The bytes at an address; BadSample where it gives none, or too many, or none in time."""
    deadline = time.monotonic() + max_seconds
    pieces: list[bytes] = []
    num_bytes = 0
    try:
        request = urllib.request.Request(url, headers={"User-Agent": "babelcap"})
        with urllib.request.urlopen(request, timeout=min(TIMEOUT_SECONDS, max_seconds)) as response:
            while piece := response.read1(PIECE_BYTES):
                pieces.append(piece)
                num_bytes += len(piece)
                if num_bytes > max_bytes:
                    raise BadSample("file too large", f"more than {max_bytes / 2**20:g} MiB")
                if time.monotonic() > deadline:
                    raise BadSample("unreachable image", f"not there after {max_seconds:g} s")
    except urllib.error.HTTPError as error:
        error.close()
        raise BadSample("unreachable image", f"the server answers {error.code} {error.reason}") from None
    except (OSError, HTTPException, ValueError) as error:  # ValueError: not an address
        reason = getattr(error, "reason", None) or error
        raise BadSample("unreachable image", f"{reason}") from None
    return b"".join(pieces)
