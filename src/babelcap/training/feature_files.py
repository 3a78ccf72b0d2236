"""The files of image features: their room is taken first, each block has a checksum; a damaged one is computed anew."""

import errno
import hashlib
import math
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from babelcap.errors import UserError
from babelcap.jobs.progress import progress
from babelcap.storage import read_json_object, write_json
from babelcap.training.parallel import World
from babelcap.training.progress import say

BLOCK_IMAGES = 256
SUM_BYTES = 16
WHOLE = "whole.json"


class TarFeatures(NamedTuple):
    """The file of one tar's features; its images are numbered from `first` on."""

    path: Path
    first: int
    num_images: int


class Block(NamedTuple):
    """Up to 256 neighbouring images of one tar."""

    tar: TarFeatures
    number: int

    @property
    def images(self) -> range:
        """Numbers within the tar."""
        start = self.number * BLOCK_IMAGES
        return range(start, min(start + BLOCK_IMAGES, self.tar.num_images))


@dataclass
class FeatureFolder:
    """The files of one key: laid out, verified, completed."""

    place: Path
    tars: list[TarFeatures]
    shape: tuple[int, int]  # of an image: tokens, width
    world: World

    def complete(self, tokens_of: Callable[[range], np.ndarray]) -> None:
        """Afterwards every block is there and as its checksum says. `tokens_of` images, by their numbers."""
        known = self._read_known()
        tars = [tar for tar in self.tars if known.get(tar.path.name, 0) != _marks(tar.path)]
        if self.world.is_first:
            self._lay_out(tars)
        self.world.wait()
        blocks = [Block(tar, number) for tar in tars for number in range(_num_blocks(tar))]
        missing = [block for block in blocks[self.world.rank :: self.world.size] if not self._is_whole(block)]
        with progress("Image features", len(missing)) as advance, _room(self.place):
            for block in missing:
                first = block.tar.first
                self._write(block, tokens_of(range(first + block.images.start, first + block.images.stop)))
                advance(1)
        self.world.wait()
        if self.world.is_first and (tars or known.keys() - {tar.path.name for tar in self.tars}):
            self._remember()

    def _read_known(self) -> dict[str, Any]:
        try:
            known = read_json_object(self.place / WHOLE) if (self.place / WHOLE).is_file() else {}
        except UserError:  # a damaged memory is no memory
            known = {}
        return self.world.tell(known)

    def _remember(self) -> None:
        """Files of tars that the corpus no longer has go: each may be as large as the tar."""
        names = {tar.path.name for tar in self.tars}
        for path in self.place.glob("*.f32"):
            if path.name not in names:
                path.unlink()
                path.with_suffix(".sums").unlink(missing_ok=True)
        write_json(self.place / WHOLE, {tar.path.name: _marks(tar.path) for tar in self.tars})

    def _lay_out(self, tars: list[TarFeatures]) -> None:
        """Takes the room on the disk for all that is missing before any of it is computed."""
        self.place.mkdir(parents=True, exist_ok=True)
        sizes = {tar.path: tar.num_images * self._image_bytes for tar in tars}
        needed = sum(max(0, size - _allocated(path)) for path, size in sizes.items())
        free = shutil.disk_usage(self.place).free
        if needed > free:
            raise _no_room(self.place, f"needs {needed / 1e9:.2f} GB, {free / 1e9:.2f} GB are free")
        with _room(self.place):
            for tar in tars:
                for path, size in (
                    (tar.path, sizes[tar.path]),
                    (tar.path.with_suffix(".sums"), _num_blocks(tar) * SUM_BYTES),
                ):
                    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
                    try:
                        os.ftruncate(descriptor, size)
                        os.posix_fallocate(descriptor, 0, size)
                    finally:
                        os.close(descriptor)

    @property
    def _image_bytes(self) -> int:
        return math.prod(self.shape) * 4

    def _is_whole(self, block: Block) -> bool:
        expected = _read_at(block.tar.path.with_suffix(".sums"), block.number * SUM_BYTES, SUM_BYTES)
        if expected == bytes(SUM_BYTES):
            return False
        size = len(block.images) * self._image_bytes
        if _checksum(block, _read_at(block.tar.path, block.images.start * self._image_bytes, size)) == expected:
            return True
        first, last = block.images.start, block.images.stop - 1
        say(f"{block.tar.path}: the features of images {first} to {last} are damaged; computing them again")
        return False

    def _write(self, block: Block, tokens: np.ndarray) -> None:
        content = np.ascontiguousarray(tokens, dtype=np.float32).tobytes()
        _write_at(block.tar.path, block.images.start * self._image_bytes, content)  # before what vouches for it
        _write_at(block.tar.path.with_suffix(".sums"), block.number * SUM_BYTES, _checksum(block, content))


def _num_blocks(tar: TarFeatures) -> int:
    return -(-tar.num_images // BLOCK_IMAGES)


def _checksum(block: Block, content: bytes) -> bytes:
    """Of the contents in their place: a block that was moved is not whole either."""
    digest = hashlib.sha256(f"{block.tar.path.stem} {block.number}\n".encode())
    digest.update(content)
    return digest.digest()[:SUM_BYTES]


def _marks(path: Path) -> list[int] | None:
    """Of the features and their checksums: while these stay the files do."""
    try:
        states = [path.stat(), path.with_suffix(".sums").stat()]
    except OSError:
        return None
    return [number for state in states for number in (state.st_size, state.st_mtime_ns, state.st_ino)]


def _allocated(path: Path) -> int:
    return path.stat().st_blocks * 512 if path.exists() else 0


def _read_at(path: Path, offset: int, size: int) -> bytes:
    with path.open("rb") as file:
        file.seek(offset)
        return file.read(size)


def _write_at(path: Path, offset: int, content: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _room(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise _no_room(place, "finds the disk full") from None


def _no_room(place: Path, what: str) -> UserError:
    return UserError(
        f"data.image_features = 'cache' {what} in {place}; free some space, or set data.image_features=compute"
    )
