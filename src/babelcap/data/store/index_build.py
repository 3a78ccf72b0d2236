"""Builds the flat files of an index from a corpus' Parquet, a batch at a time: memory does not grow with the corpus.

Every file is appended to in storage order; the row numbers of each (split, pair) go to a file of their own.
"""

import errno
import fcntl
import hashlib
import os
import shutil
import sys
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from babelcap.coverage import Style
from babelcap.data.store.format import ANNOTATION_TYPE, SCHEMA, read_batches
from babelcap.data.store.manifest import INDEX
from babelcap.data.store.store import Corpus
from babelcap.data.store.verify import CACHE_VARIABLE, cache_folder, matches, remembered, require_annotations
from babelcap.errors import UserError
from babelcap.jobs.progress import progress
from babelcap.storage import RememberedChecksums, atomic_folder, locked, read_json_object, text_sha256, write_json

INDEX_VERSION = 2
HEADER = "index.json"
IMAGES_PER_STEP = 4096
NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM, errno.EEXIST, errno.ENOTDIR}  # the last two: a file in its way
NUM_KEPT = 2  # indices of other contents, the last used ones, that stay beside a corpus
NUM_KEPT_IN_CACHE = 50  # they belong to other corpora
STYLES: tuple[str | None, ...] = (None, *map(str, Style))

# One file each. Per image: tar, offset, length, key_start (+1), first_row (+1). Per annotation: the rest, where
# text_start (+1) bounds the source text followed by the target text, and source_bytes is -1 where there is no source.
FILES: dict[str, np.dtype] = {
    "tar": np.dtype("<i4"),
    "offset": np.dtype("<i8"),
    "length": np.dtype("<i8"),
    "key": np.dtype("u1"),
    "key_start": np.dtype("<i8"),
    "first_row": np.dtype("<i8"),
    "image_of": np.dtype("<i4"),
    "pair": np.dtype("u1"),
    "style": np.dtype("u1"),
    "origin": np.dtype("<u2"),
    "score": np.dtype("<f8"),
    "text": np.dtype("u1"),
    "text_start": np.dtype("<i8"),
    "source_bytes": np.dtype("<i4"),
}


def ensure_index(corpus: Corpus) -> Path:
    """The folder of the corpus' index: beside the corpus, or in the cache where the corpus cannot be written to.

    Texts and index are compared with their checksums first. A damaged index is built again, since it is derived.
    """
    require_annotations(corpus.folder, corpus.manifest.shards)
    name = index_name(corpus)
    beside, cached = corpus.folder / INDEX, cache_folder() / INDEX
    memory = remembered(corpus.folder)
    for place in (beside, cached):
        if is_whole(place / name, memory):
            memory.save()
            with suppress(OSError):
                os.utime(place / name)  # the last used ones are kept
            return place / name
        if (place / name).is_dir():
            print(f"babelcap: {place / name} is damaged or unfinished; it is built again", file=sys.stderr)
    try:
        return _build_once(corpus, beside, name)
    except OSError as error:
        if error.errno not in NOT_WRITABLE:
            raise
    try:
        return _build_once(corpus, cached, name)
    except OSError as error:
        if error.errno not in NOT_WRITABLE:
            raise
        message = f"{corpus.folder} is read-only and so is {cached}; set {CACHE_VARIABLE} to a folder for its index"
        raise UserError(message) from None


def index_name(corpus: Corpus) -> str:
    return f"v{INDEX_VERSION}-{corpus.content_hash}"


def is_whole(folder: Path, memory: RememberedChecksums | None) -> bool:
    """Whether every file of an index is as it was built. Without a memory every byte is read."""
    try:
        header = read_json_object(folder / HEADER)
        stated = header.pop("sha256", None)
        if stated != text_sha256(header) or header.get("version") != INDEX_VERSION:
            return False
        return all(matches(folder / name, digest, memory) for name, digest in header["files"].items())
    except (UserError, OSError):
        return False


def _build_once(corpus: Corpus, place: Path, name: str) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    with locked(place / ".lock"):
        memory = remembered(corpus.folder)  # so that of many who waited here, one alone reads it all
        whole = is_whole(place / name, memory)
        memory.save()
        if not whole:
            with atomic_folder(place / name, overwrite=True) as partial:
                build_index(corpus, partial)
            _remove_old(place, name, NUM_KEPT if place.parent == corpus.folder else NUM_KEPT_IN_CACHE)
    return place / name


def _remove_old(place: Path, name: str, num_kept: int) -> None:
    """Indices of contents that the corpus had before, but for the last used ones and those that are open somewhere."""
    others = [path for path in place.glob("v*-*") if path.name != name and path.is_dir() and not path.is_symlink()]
    others.sort(key=lambda path: path.stat().st_mtime_ns, reverse=True)
    for path in others[num_kept:]:
        with suppress(OSError), (path / HEADER).open("rb") as header:
            fcntl.flock(header, fcntl.LOCK_EX | fcntl.LOCK_NB)  # whoever reads an index holds a shared lock on this
            shutil.rmtree(path, ignore_errors=True)


def build_index(corpus: Corpus, folder: Path) -> None:
    manifest = corpus.manifest
    if manifest.num_images >= 2**31:
        raise UserError(f"{corpus.folder} has {manifest.num_images} images; an index holds fewer than 2^31")
    with ExitStack() as stack, progress("Indexing annotations", manifest.num_annotations) as advance:
        builder = _Builder(folder, stack)
        for number, shard in enumerate(manifest.shards):
            path = corpus.annotations_path(shard)
            for batch in read_batches(path, SCHEMA.names, IMAGES_PER_STEP):
                before = builder.num_annotations
                builder.append(batch, number, shard.tar, path)
                advance(builder.num_annotations - before)
    found, expected = (builder.num_images, builder.num_annotations), (manifest.num_images, manifest.num_annotations)
    if found != expected:
        raise UserError(
            f"{corpus.folder}: {found[0]} images and {found[1]} texts found, the manifest says {expected[0]} "
            f"and {expected[1]}; the corpus is damaged, see `babelcap data check`"
        )
    header = builder.header()
    write_json(folder / HEADER, {**header, "sha256": text_sha256(header)})


class _HashedFile:
    """A file that knows the SHA-256 of what was written to it."""

    def __init__(self, path: Path, stack: ExitStack) -> None:
        self._file = stack.enter_context(path.open("wb"))
        self._digest = hashlib.sha256()

    def write(self, content: bytes | memoryview) -> None:
        self._file.write(content)
        self._digest.update(content)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


class _Builder:
    """The open files of an index and what has been written to them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._files: dict[str, _HashedFile] = {name: self._open(name) for name in FILES}
        self._groups: dict[tuple[str, int], tuple[str, _HashedFile]] = {}
        self._pairs: dict[str, int] = {}
        self._origins: dict[str, int] = {}
        self._num_text_bytes = 0
        self._num_key_bytes = 0
        self._last_place = (-1, -1)
        self.num_images = 0
        self.num_annotations = 0
        for name in ("key_start", "first_row", "text_start"):
            self._write(name, np.zeros(1))

    def append(self, batch: pa.RecordBatch, tar_number: int, tar: str, path: Path) -> None:
        """One batch of images, whole columns at a time."""
        self._check_order(batch, tar_number, tar, path)
        counts = pc.fill_null(pc.list_value_length(batch.column("annotations")), 0).to_numpy(zero_copy_only=False)
        fields = dict(zip(ANNOTATION_TYPE.names, batch.column("annotations").flatten().flatten(), strict=True))
        for name in ("task", "language", "target"):
            if fields[name].null_count:
                raise UserError(f"{path}: {fields[name].null_count} annotations have no {name}")
        keys, key_bytes = _text(batch.column("key"))
        self._write("tar", np.full(len(counts), tar_number))
        self._write("offset", batch.column("offset").to_numpy())
        self._write("length", batch.column("length").to_numpy())
        self._files["key"].write(keys)
        self._num_key_bytes = self._write_ends("key_start", self._num_key_bytes, key_bytes)
        self._write_ends("first_row", self.num_annotations, counts)
        self._write("image_of", self.num_images + np.repeat(np.arange(len(counts)), counts))
        pairs = _codes(pc.binary_join_element_wise(fields["task"], fields["language"], "-"), self._pairs, 255, path)
        self._write("pair", pairs)
        self._append_annotations(fields, path)
        self._append_groups(np.repeat(_strings(batch.column("split")), counts), pairs)
        self.num_images += len(counts)
        self.num_annotations += len(pairs)

    def _append_annotations(self, fields: dict[str, pa.Array], path: Path) -> None:
        styles = {name or "": code for code, name in enumerate(STYLES)}
        self._write("style", _codes(pc.fill_null(fields["style"], ""), styles, len(STYLES), path))
        self._write("origin", _codes(pc.fill_null(fields["origin"], ""), self._origins, 65535, path))
        self._write("score", pc.fill_null(fields["score"], float("nan")).to_numpy(zero_copy_only=False))
        lengths = pc.fill_null(pc.binary_length(fields["source"]), -1).to_numpy(zero_copy_only=False)
        self._write("source_bytes", lengths)
        joined = pc.binary_join_element_wise(pc.fill_null(fields["source"], ""), fields["target"], "")
        texts, text_bytes = _text(joined)
        self._files["text"].write(texts)
        self._num_text_bytes = self._write_ends("text_start", self._num_text_bytes, text_bytes)

    def _append_groups(self, splits: np.ndarray, pairs: np.ndarray) -> None:
        for split in dict.fromkeys(splits.tolist()):
            inside = splits == split
            for pair in np.unique(pairs[inside]).tolist():
                if (split, pair) not in self._groups:
                    name = f"rows-{len(self._groups):04d}"
                    self._groups[split, pair] = (name, self._open(name))
                rows = np.flatnonzero(inside & (pairs == pair)) + self.num_annotations
                self._groups[split, pair][1].write(rows.astype("<i8").tobytes())

    def _check_order(self, batch: pa.RecordBatch, tar_number: int, tar: str, path: Path) -> None:
        for name in ("key", "tar", "offset", "length", "split"):
            if batch.column(name).null_count:
                raise UserError(f"{path}: column '{name}' has empty values")
        offsets = batch.column("offset").to_numpy()
        if pc.any(pc.not_equal(batch.column("tar"), tar)).as_py():
            raise UserError(f"{path}: rows of another tar than {tar}; one Parquet file belongs to one tar")
        last = self._last_place[1] if self._last_place[0] == tar_number else -1
        if len(offsets) and (offsets[0] <= last or np.any(np.diff(offsets) <= 0)):
            raise UserError(f"{path}: rows are not in the order of the tar; make the corpus again")
        self._last_place = (tar_number, int(offsets[-1]) if len(offsets) else last)

    def header(self) -> dict[str, Any]:
        pairs = list(self._pairs)
        groups = [
            {"split": split, "pair": pairs[pair], "file": name} for (split, pair), (name, _) in self._groups.items()
        ]
        return {
            "version": INDEX_VERSION,
            "num_images": self.num_images,
            "num_annotations": self.num_annotations,
            "pairs": pairs,
            "origins": list(self._origins),
            "styles": list(STYLES),
            "groups": groups,
            "files": {name: file.sha256 for name, file in (*self._files.items(), *self._groups.values())},
        }

    def _open(self, name: str) -> _HashedFile:
        return _HashedFile(self._folder / name, self._stack)

    def _write(self, name: str, values: np.ndarray) -> None:
        self._files[name].write(values.astype(FILES[name]).tobytes())

    def _write_ends(self, name: str, start: int, lengths: np.ndarray) -> int:
        ends = start + np.cumsum(lengths, dtype=np.int64)
        self._write(name, ends)
        return int(ends[-1]) if len(ends) else start


def _text(column: pa.Array) -> tuple[memoryview, np.ndarray]:
    """The bytes of all strings of a column, one after the other, and the length of each."""
    if not len(column):
        return memoryview(b""), np.zeros(0, dtype=np.int64)
    ends = np.frombuffer(column.buffers()[1], dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    data = column.buffers()[2]
    return memoryview(data)[ends[0] : ends[-1]] if data is not None else memoryview(b""), np.diff(ends)


def _strings(column: pa.Array) -> np.ndarray:
    return np.array(column.to_pylist(), dtype=object)


def _codes(column: pa.Array, table: dict[str, int], limit: int, path: Path) -> np.ndarray:
    """Small numbers for strings, the same over the whole corpus; `table` grows by what is new."""
    encoded = column.dictionary_encode()
    for text in encoded.dictionary.to_pylist():
        table.setdefault(text, len(table))
        if len(table) > limit:
            raise UserError(f"{path}: '{text}' is one more than the {limit} different values an index can hold here")
    mapping = np.array([table[text] for text in encoded.dictionary.to_pylist()] or [0], dtype=np.int64)
    return mapping[encoded.indices.to_numpy(zero_copy_only=False)]
