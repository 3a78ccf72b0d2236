"""Tar files without unpacking: where each member's bytes lie, read from the headers alone, and tars with fixed bytes.

A scan costs one 512-byte read a member, whatever the members' sizes. Understood: ustar, GNU long names, pax headers.
"""

import hashlib
import os
import re
import tarfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from babelcap.errors import UserError
from babelcap.storage import open_regular

BLOCK = 512
IMAGE_EXTENSIONS = frozenset({"jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff", "avif", "heic", "heif"})
REGULAR = frozenset(b"0\x007")  # kinds of members, as bytes of the header
USUAL = ord("0")
GNU_LONG_NAME = ord("L")
EXTENDED = frozenset(b"Lx")  # a long name or pax header, which tells of the member that follows
SILENT = frozenset(b"LxKg5")  # nothing is lost by leaving these out: headers of headers, and folders
MAX_NAME_CHARACTERS = 1000  # of a member: file systems and Parquet's readers want less than any length
PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]++(?:[./][A-Za-z0-9_-]++)*+")  # safe at a glance, as nearly all names are
PLAIN_NAMES = re.compile(rb"[A-Za-z0-9_-]++(?:[./\n][A-Za-z0-9_-]++)*+")
MAX_SIZE_DIGITS = 19  # of a size in a pax header
MAX_NAME_BYTES = 1 << 20  # of a long name or a pax header: a damaged size must not be read into memory


class TarMember(NamedTuple):
    name: str
    offset: int  # of the data, in bytes from the start of the tar
    length: int

    @property
    def key(self) -> str:
        """The path up to the first dot of the file name, as webdataset groups members into samples."""
        folder, slash, file = self.name.rpartition("/")
        return folder + slash + file.partition(".")[0]

    @property
    def extension(self) -> str:
        return self.name.rpartition("/")[2].partition(".")[2].lower()

    @property
    def is_image(self) -> bool:
        return self.extension.rpartition(".")[2] in IMAGE_EXTENSIONS


@dataclass(frozen=True)
class TarScan:
    path: Path
    num_bytes: int
    names: list[str]  # of regular files with a safe name, in the order of the tar
    offsets: list[int]
    lengths: list[int]
    problems: Counter[str]  # reason -> number of members left out; an unfinished tar counts as one
    headers_sha256: str  # over the members' names, sizes, places and header checksums, not over their data

    @cached_property
    def members(self) -> list[TarMember]:
        return list(map(TarMember, self.names, self.offsets, self.lengths))


def is_safe_name(name: str) -> bool:
    """Relative, without `..`, without backslashes and control characters: may become a path below a folder."""
    if len(name) > MAX_NAME_CHARACTERS:
        return False
    if PLAIN_NAME.fullmatch(name):
        return True
    parts = PurePosixPath(name).parts
    return (
        bool(parts)
        and not name.startswith(("/", "~"))
        and "\\" not in name
        and ".." not in parts
        and name.isprintable()
        and not (len(name) > 1 and name[1] == ":")
    )


def scan_tar(path: str | Path) -> TarScan:
    """All members of a tar. What cannot be used is counted; what is not a tar at all is the user's mistake."""
    path = Path(path)
    if path.is_dir():
        raise UserError(f"{path} is a folder; name the tars in it, e.g. {path}/*.tar")
    with open_regular(path) as file:
        return _scan(path, file.fileno(), os.fstat(file.fileno()).st_size)


def _scan(path: Path, descriptor: int, num_bytes: int) -> TarScan:
    problems: Counter[str] = Counter()
    walk = _walk(path, descriptor, num_bytes, problems)
    headers, sizes, given_names = walk.headers, walk.sizes, walk.names
    lengths = np.array(sizes, dtype="<i8")
    ends = np.cumsum(BLOCK + (lengths + BLOCK - 1) // BLOCK * BLOCK)
    data_places = np.concatenate([[0], ends[:-1]])[: len(sizes)].astype("<i8") + BLOCK
    blocks = np.frombuffer(b"".join(headers), dtype=np.uint8).reshape(-1, BLOCK)
    damaged = _first_damaged(blocks)
    if damaged is not None:  # its size cannot be trusted, so neither can the places of what follows
        problems["damaged tar header"] += 1
        blocks = blocks[:damaged]
    raw_names = np.ascontiguousarray(blocks[:, :100]).view("S100").ravel().tolist()
    # The checksums stand for the rest of each header, so that hashing need not read it all again.
    digest = hashlib.sha256(b"\n".join(raw_names) + blocks[:, 148:156].tobytes())
    digest.update(data_places.tobytes() + lengths.tobytes())
    is_regular = np.isin(blocks[:, 156], list(REGULAR))
    names = _plain_names(raw_names) if is_regular.all() and not given_names and not blocks[:, 345].any() else None
    if names is not None:
        places = data_places[: len(names)].tolist()
        return TarScan(path, num_bytes, names, places, sizes[: len(names)], problems, digest.hexdigest())
    kept: list[int] = []
    names = []
    for number in np.flatnonzero(is_regular).tolist():
        name = given_names[number] if number in given_names else _decode(_header_name(headers[number]))
        if name is None or not is_safe_name(name):
            problems["unsafe member name"] += 1
        else:
            names.append(name)
            kept.append(number)
    places, sizes = data_places[kept].tolist(), lengths[kept].tolist()
    return TarScan(path, num_bytes, names, places, sizes, problems, digest.hexdigest())


def _plain_names(raw_names: list[bytes]) -> list[str] | None:
    """All names at once where each is a plain one, as in nearly all tars; else they are looked at one by one."""
    if not raw_names or not PLAIN_NAMES.fullmatch(joined := b"\n".join(raw_names)):
        return None
    names = joined.decode("ascii").split("\n")
    return names if len(names) == len(raw_names) else None  # a name may hold a line break


@dataclass
class _Walk:
    """What is known so far of a tar while its headers are walked through."""

    descriptor: int
    problems: Counter[str]
    headers: list[bytes] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)  # of the members' data
    names: dict[int, str | None] = field(default_factory=dict)  # number of a header -> a name that is not in it
    told: dict[str, str | None] = field(
        default_factory=dict
    )  # name and size by a long-name or pax header, for the next

    def look_closer(self, header: bytes, size: int, position: int) -> int:
        """A header that is not a plain file's, or that follows one which tells its name or size: the size."""
        kind = header[156]
        if kind in EXTENDED and size <= MAX_NAME_BYTES:
            self.told = self.told | _read_extended(kind, os.pread(self.descriptor, size, position + BLOCK))
            return size
        if kind in SILENT:
            return size
        if kind not in REGULAR:
            self.problems["not a regular file"] += 1
        elif "size" in self.told:
            size = int(self.told["size"] or 0)
        if "path" in self.told:
            self.names[len(self.headers)] = self.told["path"]
        self.told = {}
        return size


def _walk(path: Path, descriptor: int, num_bytes: int, problems: Counter[str]) -> _Walk:
    """All headers with the sizes of their data, and the names that do not stand in a header itself.

    This loop is the cost of a scan, so for the usual member it does no more than find the next header.
    """
    walk = _Walk(descriptor, problems)
    headers, sizes = walk.headers, walk.sizes
    first = os.pread(descriptor, BLOCK, 0)
    if first and first[0] and (len(first) < BLOCK or not _checksum_fits(first)):
        raise UserError(f"{path} is not an uncompressed tar (no tar header at its start); unpack .gz files first")
    position = 0
    while (header := os.pread(descriptor, BLOCK, position)) and header[0]:  # it ends in zeros, or without them
        try:
            size = int(header[124:135], 8)
        except ValueError:
            size = _number(header[124:136])
        if size < 0 or position + BLOCK + size > num_bytes:
            problems["damaged tar header" if size < 0 and len(header) == BLOCK else "truncated tar"] += 1
            break
        if walk.told or header[156] != USUAL:
            size = walk.look_closer(header, size, position)
            if position + BLOCK + size > num_bytes:
                problems["truncated tar"] += 1
                break
        headers.append(header)
        sizes.append(size)
        position += BLOCK + (size + BLOCK - 1) // BLOCK * BLOCK
    return walk


def _number(field: bytes) -> int:
    """A number of a header: octal digits, or base 256 for sizes above 8 GiB. -1 where it is none."""
    try:
        return int(field.rstrip(b"\0 "), 8)
    except ValueError:
        if field[:1] >= b"\x80":
            return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
        return -1 if field.strip(b" \0") else 0


def _header_name(header: bytes) -> bytes:
    name = header[:100].partition(b"\0")[0]
    prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _decode(raw: bytes) -> str | None:
    try:
        return raw.decode("utf-8").removeprefix("./")
    except UnicodeDecodeError:
        return None


def _read_extended(kind: int, content: bytes) -> dict[str, str | None]:
    """A long name, or the pax records `LENGTH KEYWORD=VALUE\\n`, where LENGTH counts the whole record."""
    if kind == GNU_LONG_NAME:
        return {"path": _decode(content.rstrip(b"\0"))}
    values: dict[str, str | None] = {}
    position = 0
    while position < len(content):
        digits, space, _ = content[position : position + 20].partition(b" ")
        if not space or not digits.isdigit() or int(digits) <= len(digits):
            break
        record = content[position + len(digits) + 1 : position + int(digits) - 1]
        keyword, _, value = record.partition(b"=")
        if keyword == b"path" or (keyword == b"size" and value.isdigit() and len(value) <= MAX_SIZE_DIGITS):
            values[keyword.decode()] = _decode(value)
        position += int(digits)
    return values


def _checksum_fits(header: bytes) -> bool:
    return _number(header[148:156]) == sum(header) - sum(header[148:156]) + 8 * 32


def _first_damaged(blocks: np.ndarray) -> int | None:
    """The first header whose checksum does not fit; all at once, since one by one would cost more than the reads."""
    sums = blocks.sum(axis=1, dtype=np.uint32) - blocks[:, 148:156].sum(axis=1, dtype=np.uint32) + 8 * 32
    digits = blocks[:, 148:154].astype(np.int64) - ord("0")
    stored = digits @ (8 ** np.arange(5, -1, -1))
    plain = ((digits >= 0) & (digits < 8)).all(axis=1)
    for number in np.flatnonzero((stored != sums) | ~plain).tolist():
        if not _checksum_fits(blocks[number].tobytes()):
            return number
    return None


class TarFileWriter:
    """Writes a tar whose bytes depend on names and contents only: no times, no owners."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("wb")
        self._digest = hashlib.sha256()
        self.num_bytes = 0

    def add(self, name: str, content: bytes) -> int:
        """The offset of the content."""
        info = tarfile.TarInfo(name)
        info.size = len(content)
        self._write(info.tobuf(tarfile.PAX_FORMAT))
        offset = self.num_bytes
        self._write(content)
        self._write(bytes(-len(content) % BLOCK))
        return offset

    def close(self) -> None:
        if not self._file.closed:
            self._write(bytes(2 * BLOCK))
            self._file.close()

    def abandon(self) -> None:
        """Lets go of the file, whose content no longer matters: not even a full disk is an error now."""
        with suppress(OSError):
            self._file.close()

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()

    def _write(self, content: bytes) -> None:
        self._file.write(content)
        self._digest.update(content)
        self.num_bytes += len(content)
