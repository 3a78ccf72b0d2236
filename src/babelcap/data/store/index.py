"""Random access to a corpus of any size: flat memory-mapped files derived from its Parquet, and images read by offset.

Nothing is held per annotation: 137 M of them open as fast as a thousand. The files are built once, in
`<corpus>/index/`, under the corpus' content hash; deleting them costs only the time to build them again.
"""

import fcntl
import os
from collections import OrderedDict
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from babelcap.coverage import Pair, Style
from babelcap.data.store.index_build import FILES, HEADER, ensure_index
from babelcap.data.store.store import Corpus
from babelcap.errors import BadSample, UserError
from babelcap.records import Annotation
from babelcap.storage import read_json

MAX_OPEN_TARS = 64


class CorpusIndex:
    """Annotations by row number, images by image number; both count in storage order over the whole corpus."""

    def __init__(self, corpus: Corpus, folder: Path) -> None:
        self.corpus = corpus
        self.folder = folder
        self._load()

    @classmethod
    def open(cls, corpus: Corpus | str | Path) -> "CorpusIndex":
        """Opens the index, building it first where there is none."""
        if not isinstance(corpus, Corpus):
            corpus = Corpus.open(corpus)
        return cls(corpus, ensure_index(corpus))

    def _load(self) -> None:
        self._in_use = _OpenFile(self.folder / HEADER)
        with suppress(OSError):  # file systems without locks; the index may then be removed under us, as before
            fcntl.flock(self._in_use.descriptor, fcntl.LOCK_SH)
        header = read_json(self.folder / HEADER)
        self.num_images: int = header["num_images"]
        self.num_annotations: int = header["num_annotations"]
        self._pairs = [self.corpus.coverage.pair(text) for text in header["pairs"]]
        self._origins: list[str] = header["origins"]
        self._styles: list[Style | None] = [None if text is None else Style(text) for text in header["styles"]]
        self._groups = {
            (group["split"], self.corpus.coverage.pair(group["pair"])): _map(
                self.folder / group["file"], np.dtype("<i8")
            )
            for group in header["groups"]
        }
        self._data = {name: _map(self.folder / name, dtype) for name, dtype in FILES.items()}
        self._tars = TarReader([self.corpus.tar_path(shard.tar) for shard in self.corpus.manifest.shards])

    def __getstate__(self) -> dict[str, Any]:
        return {"corpus": self.corpus, "folder": self.folder}  # a worker process maps the files itself

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._load()

    def pairs(self, split: str) -> tuple[Pair, ...]:
        """The pairs that have annotations in a split, in the order of the coverage."""
        found = [pair for name, pair in self._groups if name == split]
        if not found:
            known = ", ".join(dict.fromkeys(name for name, _ in self._groups)) or "none"
            raise UserError(f"{self.corpus.folder} has no annotated split '{split}' (it has: {known})")
        order = {pair: place for place, pair in enumerate(self.corpus.coverage.all_pairs)}
        return tuple(sorted(found, key=lambda pair: (order.get(pair, len(order)), pair)))

    def rows(self, split: str, pair: Pair) -> np.ndarray:
        """The row numbers of a pair's annotations, ascending: neighbours here are neighbours on disk."""
        if (split, pair) not in self._groups:
            known = ", ".join(map(str, self.pairs(split)))
            raise UserError(f"{self.corpus.folder}: split '{split}' has no {pair} (it has: {known})")
        return self._groups[split, pair]

    def annotation(self, row: int) -> Annotation:
        data = self._data
        start, end = int(data["text_start"][row]), int(data["text_start"][row + 1])
        source_bytes = int(data["source_bytes"][row])
        middle = start + max(source_bytes, 0)
        score = float(data["score"][row])
        pair = self._pairs[data["pair"][row]]
        try:
            return Annotation(
                task=pair.task,
                language=pair.language,
                style=self._styles[data["style"][row]],
                source=None if source_bytes < 0 else data["text"][start:middle].tobytes().decode("utf-8"),
                target=data["text"][middle:end].tobytes().decode("utf-8"),
                origin=self._origins[data["origin"][row]],
                score=None if np.isnan(score) else score,
            )
        except UnicodeDecodeError as error:
            raise BadSample("text is not UTF-8", f"annotation {row}: {error}") from None

    def pair(self, row: int) -> Pair:
        return self._pairs[self._data["pair"][row]]

    def text_bytes(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The lengths of the sources (0 where there is none) and of the targets, without reading them."""
        starts = self._data["text_start"]
        source_bytes = np.maximum(self._data["source_bytes"][rows], 0).astype(np.int64)
        return source_bytes, starts[rows + 1] - starts[rows] - source_bytes

    def image_number(self, row: int) -> int:
        return int(self._data["image_of"][row])

    def image_numbers(self, rows: np.ndarray) -> np.ndarray:
        return self._data["image_of"][rows]

    def images(self, split: str) -> list[int]:
        """The numbers of a split's images, in storage order."""
        rows = [self.image_numbers(self.rows(split, pair)) for pair in self.pairs(split)]
        found: list[int] = np.unique(np.concatenate(rows)).tolist()
        return found

    def image_rows(self, image_number: int) -> range:
        """The rows of all annotations of an image."""
        first = self._data["first_row"]
        return range(int(first[image_number]), int(first[image_number + 1]))

    def key(self, image_number: int) -> str:
        start = self._data["key_start"]
        return self._data["key"][int(start[image_number]) : int(start[image_number + 1])].tobytes().decode("utf-8")

    def tar_of(self, rows: np.ndarray) -> np.ndarray:
        """The number of the tar, in the order of the manifest, that each annotation's image lies in."""
        return self._data["tar"][self._data["image_of"][rows]]

    def images_of_tar(self, tar: int) -> tuple[range, np.ndarray]:
        """The numbers of a tar's images, and where they lie in it: [images, 2], offset and length in bytes."""
        first, last = np.searchsorted(self._data["tar"], np.array([tar, tar + 1], dtype=np.int32)).tolist()
        places = [self._data[name][first:last] for name in ("offset", "length")]
        return range(first, last), np.stack(places, axis=1)

    def read_image(self, image_number: int) -> bytes:
        """An image as encoded. Raises BadSample where the tar no longer holds it."""
        data = self._data
        offset, length = int(data["offset"][image_number]), int(data["length"][image_number])
        return self._tars.read(int(data["tar"][image_number]), offset, length)


class TarReader:
    """Reads byte ranges of many tars through a bounded number of open files, opened when first needed.

    Reads carry their own position, so forked workers may share the open files, and threads may share the reader.
    """

    def __init__(self, paths: Iterable[Path], max_open: int = MAX_OPEN_TARS) -> None:
        self._paths = list(paths)
        self._max_open = max_open
        self._open: OrderedDict[int, _OpenFile] = OrderedDict()

    def read(self, tar: int, offset: int, length: int) -> bytes:
        file = self._file(tar)
        if offset < 0 or length < 0:
            raise BadSample("damaged place", f"{length} bytes from byte {offset} of {self._paths[tar].name}")
        if offset + length > file.num_bytes:  # told before so many bytes are asked for
            raise BadSample("truncated tar", f"{self._paths[tar].name} ends before byte {offset + length}")
        content = os.pread(file.descriptor, length, offset)
        while len(content) < length:  # a network file system may answer in parts
            more = os.pread(file.descriptor, length - len(content), offset + len(content))
            if not more:
                raise BadSample("truncated tar", f"{self._paths[tar].name} ends before byte {offset + length}")
            content += more
        return content

    def _file(self, tar: int) -> "_OpenFile":
        file = self._open.get(tar)
        if file is None:
            try:
                file = _OpenFile(self._paths[tar])
            except FileNotFoundError:
                raise BadSample("missing tar", str(self._paths[tar])) from None
            self._open[tar] = file
            while len(self._open) > self._max_open:
                self._open.popitem(last=False)
        return file


class _OpenFile:
    """A descriptor that closes when the last reader lets go of it, so that eviction cannot cut a read short."""

    def __init__(self, path: Path) -> None:
        self.descriptor = -1
        self.descriptor = os.open(path, os.O_RDONLY)
        self.num_bytes = os.fstat(self.descriptor).st_size

    def __del__(self) -> None:
        if self.descriptor >= 0:
            os.close(self.descriptor)


def _map(path: Path, dtype: np.dtype) -> np.ndarray:
    if path.stat().st_size == 0:  # an empty file cannot be mapped
        return np.empty(0, dtype=dtype)
    return np.asarray(np.memmap(path, dtype=dtype, mode="r"))  # a plain array: single items are cheaper
