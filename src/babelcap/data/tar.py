"""Tar files without unpacking: where each member's bytes lie, read from the headers alone, and tars with fixed bytes.

A scan costs one 512-byte read a member, whatever the members' sizes. Understood: ustar, GNU long names, pax headers.
"""

import hashlib
import os
import tarfile
from collections import Counter
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np

from babelcap.errors import UserError

BLOCK = 512
IMAGE_EXTENSIONS = frozenset({"jpg", "jpeg", "png", "webp", "gif", "bmp", "tif", "tiff"})
REGULAR = (b"0", b"\0", b"7")
LONG_NAME, LONG_LINK, PAX, PAX_GLOBAL = b"L", b"K", b"x", b"g"
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


class TarScan(NamedTuple):
    path: Path
    num_bytes: int
    members: list[TarMember]  # regular files with a safe name, in the order of the tar
    problems: Counter[str]  # reason -> number of members left out; an unfinished tar counts as one
    headers_sha256: str  # over every header block and its place, not over the members' data


def is_safe_name(name: str) -> bool:
    """Relative, without `..`, without backslashes and control characters: may become a path below a folder."""
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
    try:
        descriptor = os.open(path, os.O_RDONLY)
    except FileNotFoundError:
        raise UserError(f"{path}: no such tar") from None
    try:
        return _scan(path, descriptor, os.fstat(descriptor).st_size)
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; name the tars in it, e.g. {path}/*.tar") from None
    finally:
        os.close(descriptor)


def _scan(path: Path, descriptor: int, num_bytes: int) -> TarScan:
    members: list[TarMember] = []
    problems: Counter[str] = Counter()
    headers: list[bytes] = []
    places: list[int] = []
    position = 0
    long_name: bytes | None = None
    pax: dict[str, str] = {}
    while True:
        header = os.pread(descriptor, BLOCK, position)
        if header[:1] == b"\0" or not header:  # the end: blocks of zeros, which some writers leave out
            break
        if len(header) < BLOCK:
            problems["truncated tar"] += 1
            break
        size = _number(header[124:136])
        if size is None or size < 0 or (header[257:262] != b"ustar" and not _checksum_fits(header)):
            if not headers:
                raise UserError(
                    f"{path} is not an uncompressed tar (no tar header at its start); unpack .gz files first"
                )
            problems["damaged tar header"] += 1
            break
        headers.append(header)
        places.append(position)
        kind = header[156:157]
        data = position + BLOCK
        if "size" in pax and kind in REGULAR:
            size = int(pax["size"])
        if data + size > num_bytes:
            problems["truncated tar"] += 1
            break
        position = data + (size + BLOCK - 1) // BLOCK * BLOCK
        if kind in REGULAR:
            raw = long_name if long_name is not None else _header_name(header)
            name = pax["path"] if "path" in pax else _decode(raw)
            if name is None or not is_safe_name(name):
                problems["unsafe member name"] += 1
            else:
                members.append(TarMember(name, data, size))
            long_name, pax = None, {}
        elif kind in (LONG_NAME, PAX) and size <= MAX_NAME_BYTES:
            content = os.pread(descriptor, size, data)
            if kind == LONG_NAME:
                long_name = content.rstrip(b"\0")
            else:
                pax = _parse_pax(content)
        elif kind not in (LONG_LINK, PAX_GLOBAL, b"5"):
            problems["not a regular file"] += 1
            long_name, pax = None, {}
    damaged = _first_damaged(headers)
    if damaged == 0:
        raise UserError(f"{path} is not an uncompressed tar (its first header is damaged); download it again")
    if damaged is not None:  # its size cannot be trusted, so neither can the places of what follows
        problems["damaged tar header"] += 1
        members = [member for member in members if member.offset <= places[damaged]]
    digest = hashlib.sha256(b"".join(headers))
    digest.update(np.array(places, dtype="<i8").tobytes())
    return TarScan(path, num_bytes, members, problems, digest.hexdigest())


def _number(field: bytes) -> int | None:
    if field[0] & 0x80:  # base 256, for sizes above 8 GiB
        return int.from_bytes(bytes([field[0] & 0x7F]) + field[1:], "big")
    try:
        return int(field.strip(b" \0") or b"0", 8)
    except ValueError:
        return None


def _header_name(header: bytes) -> bytes:
    name = header[:100].partition(b"\0")[0]
    prefix = header[345:500].partition(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    return prefix + b"/" + name if prefix else name


def _decode(raw: bytes) -> str | None:
    try:
        return raw.decode("utf-8").removeprefix("./")
    except UnicodeDecodeError:
        return None


def _parse_pax(content: bytes) -> dict[str, str]:
    """Records of the form `LENGTH KEYWORD=VALUE\\n`, where LENGTH counts the whole record."""
    values: dict[str, str] = {}
    position = 0
    while position < len(content):
        digits, space, _ = content[position : position + 20].partition(b" ")
        if not space or not digits.isdigit() or int(digits) <= len(digits):
            break
        record = content[position + len(digits) + 1 : position + int(digits) - 1]
        keyword, _, value = record.partition(b"=")
        if keyword in (b"path", b"size"):
            values[keyword.decode()] = _decode(value) or "/"  # a name that is not UTF-8 becomes an unsafe one
        position += int(digits)
    return values if values.get("size", "0").isdigit() else {"path": "/"}


def _checksum_fits(header: bytes) -> bool:
    return _number(header[148:156]) == sum(header) - sum(header[148:156]) + 8 * 32


def _first_damaged(headers: list[bytes]) -> int | None:
    """The first header whose checksum does not fit; all at once, since one by one would cost more than the reads."""
    blocks = np.frombuffer(b"".join(headers), dtype=np.uint8).reshape(-1, BLOCK)
    sums = blocks.sum(axis=1, dtype=np.int64) - blocks[:, 148:156].sum(axis=1, dtype=np.int64) + 8 * 32
    for index, (header, checksum) in enumerate(zip(headers, sums.tolist(), strict=True)):
        if _number(header[148:156]) != checksum:
            return index
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
