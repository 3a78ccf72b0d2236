"""Builds the flat files of an index from a corpus' Parquet, a batch at a time: memory does not grow with the corpus.

Every file is appended to in storage order; the row numbers of each (split, pair) go to a file of their own.
"""

import errno
import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from babelcap.coverage import Style
from babelcap.data.store.format import ANNOTATION_TYPE, SCHEMA, open_parquet
from babelcap.data.store.store import Corpus
from babelcap.errors import UserError
from babelcap.jobs.progress import progress
from babelcap.storage import atomic_folder, locked, write_json

INDEX_VERSION = 1
CACHE_VARIABLE = "BABELCAP_CACHE"
IMAGES_PER_STEP = 4096
NOT_WRITABLE = {errno.EROFS, errno.EACCES, errno.EPERM}
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
    """The folder of the corpus' index: beside the corpus, or in the cache where the corpus cannot be written to."""
    name = f"v{INDEX_VERSION}-{corpus.content_hash}"
    beside, cached = corpus.folder / "index", cache_folder() / "index"
    for place in (beside, cached):
        if (place / name / "index.json").is_file():
            return place / name
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


def cache_folder() -> Path:
    if os.environ.get(CACHE_VARIABLE):
        return Path(os.environ[CACHE_VARIABLE])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "babelcap"


def _build_once(corpus: Corpus, place: Path, name: str) -> Path:
    place.mkdir(parents=True, exist_ok=True)
    with locked(place / f".{name}.lock"):
        if not (place / name / "index.json").is_file():
            with atomic_folder(place / name, overwrite=True) as partial:
                build_index(corpus, partial)
    return place / name


def build_index(corpus: Corpus, folder: Path) -> None:
    manifest = corpus.manifest
    if manifest.num_images >= 2**31:
        raise UserError(f"{corpus.folder} has {manifest.num_images} images; an index holds fewer than 2^31")
    with ExitStack() as stack, progress("Indexing annotations", manifest.num_annotations) as advance:
        builder = _Builder(folder, stack)
        for number, shard in enumerate(manifest.shards):
            path = corpus.annotations_path(shard)
            file = stack.enter_context(open_parquet(path))
            for batch in file.iter_batches(batch_size=IMAGES_PER_STEP, columns=SCHEMA.names):
                before = builder.num_annotations
                builder.append(batch, number, shard.tar, path)
                advance(builder.num_annotations - before)
            file.close()
    found, expected = (builder.num_images, builder.num_annotations), (manifest.num_images, manifest.num_annotations)
    if found != expected:
        raise UserError(
            f"{corpus.folder}: {found[0]} images and {found[1]} texts found, the manifest says {expected[0]} "
            f"and {expected[1]}; the corpus is damaged, see `babelcap data check`"
        )
    write_json(folder / "index.json", builder.header())


class _Builder:
    """The open files of an index and what has been written to them."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._files: dict[str, BinaryIO] = {name: self._open(name) for name in FILES}
        self._groups: dict[tuple[str, int], tuple[str, BinaryIO]] = {}
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
            "styles": STYLES,
            "groups": groups,
        }

    def _open(self, name: str) -> BinaryIO:
        return self._stack.enter_context((self._folder / name).open("wb"))

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
