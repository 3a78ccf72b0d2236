"""The corpus: images in tars as they came, annotations in Parquet beside them, and a manifest that is written last.

images/NAME.tar  annotations/NAME.parquet  corpus.json     a folder without corpus.json is not a corpus
"""

import platform
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import pyarrow as pa

from babelcap.coverage import Coverage, Pair
from babelcap.data.store.format import (
    ANNOTATIONS,
    IMAGES,
    MAX_TEXT_CHARACTERS,
    BareImages,
    ImageRow,
    parquet_name,
    read_annotations,
    write_annotations,
)
from babelcap.data.store.manifest import (
    Manifest,
    Shard,
    SplitCounts,
    count_rows,
    make_manifest,
    read_manifest,
    write_manifest,
)
from babelcap.data.store.tar import IMAGE_EXTENSIONS, TarFileWriter, TarScan, is_safe_name, scan_tar
from babelcap.data.store.verify import require_annotations, require_file
from babelcap.errors import UserError
from babelcap.records import Annotation
from babelcap.storage import atomic_folder
from babelcap.version import VERSION


class Corpus:
    """A corpus opened for reading: its manifest, and its images row by row in storage order."""

    def __init__(self, folder: Path, manifest: Manifest) -> None:
        self.folder = folder
        self.manifest = manifest

    @classmethod
    def open(cls, folder: str | Path) -> "Corpus":
        folder = Path(folder)
        return cls(folder, read_manifest(folder))

    @property
    def content_hash(self) -> str:
        return self.manifest.content_hash

    @property
    def coverage(self) -> Coverage:
        return self.manifest.coverage

    @property
    def splits(self) -> tuple[str, ...]:
        return tuple(self.manifest.splits)

    def counts(self, split: str) -> dict[Pair, int]:
        """The number of annotations of each pair in a split."""
        return {self.coverage.pair(pair): number for pair, number in self._split(split).pairs.items()}

    def num_images(self, split: str | None = None) -> int:
        return self.manifest.num_images if split is None else self._split(split).num_images

    def tar_path(self, tar: str) -> Path:
        return self.folder / IMAGES / tar

    def annotations_path(self, shard: Shard) -> Path:
        return self.folder / ANNOTATIONS / shard.annotations

    def file(self, name: str) -> Path:
        """A file beside images and annotations, such as a world's truth; damage is found here."""
        return require_file(self.folder, self.manifest, name)

    def rows(self, split: str | None = None) -> Iterator[ImageRow]:
        """Every image with its texts, tar by tar. For training use `CorpusIndex`, which is random access."""
        if split is not None:
            self._split(split)
        for shard in self.manifest.shards:
            if split is None or split in shard.splits:
                yield from (row for row in self.shard_rows(shard) if split is None or row.split == split)

    def shard_rows(self, shard: Shard) -> Iterator[ImageRow]:
        """The images of one shard, once its texts are known to be those of the manifest."""
        require_annotations(self.folder, [shard])
        return read_annotations(self.annotations_path(shard))

    def _split(self, split: str) -> SplitCounts:
        if split not in self.manifest.splits:
            raise UserError(f"{self.folder} has no split '{split}' (it has: {', '.join(self.splits) or 'none'})")
        return self.manifest.splits[split]


class CorpusWriter:
    """Writes a new corpus with its own tars. The folder appears whole on a normal exit, else not at all.

    with CorpusWriter("corpus", provenance={"source": "..."}) as writer:
        writer.add("000000001", jpeg, "jpg", "train", [Annotation(...)])
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        provenance: dict[str, Any],
        coverage: Coverage | None = None,
        images_per_tar: int = 1000,
    ) -> None:
        if images_per_tar < 1:
            raise UserError(f"images_per_tar is {images_per_tar}; at least 1 image goes into a tar")
        self.folder = Path(folder)
        self.coverage = coverage or Coverage()
        self._provenance = provenance
        self._images_per_tar = images_per_tar
        self._keys: set[str] = set()
        self._shards: list[Shard] = []
        self._rows: list[ImageRow] = []
        self._skipped: Counter[str] = Counter()
        self._tar: TarFileWriter | None = None
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self._partial = self._stack.enter_context(atomic_folder(self.folder))
        (self._partial / IMAGES).mkdir()
        (self._partial / ANNOTATIONS).mkdir()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The stack's own exit removes the partial folder when what is raised inside it is an error.
        with self._stack:
            try:
                if error is not None:
                    raise error
                self._finish_tar()
                if not self._shards:
                    reasons = "".join(f"; {reason}: {number}" for reason, number in self._skipped.most_common(3))
                    raise UserError(f"{self.folder}: no image was added, so there is no corpus to write{reasons}")
                skipped = Counter(self._shards[-1].skipped) + self._skipped
                self._shards[-1] = self._shards[-1].model_copy(update={"skipped": dict(sorted(skipped.items()))})
                manifest = make_manifest(self._shards, self.coverage, with_versions(self._provenance))
                write_manifest(self._partial, manifest)
            finally:
                if self._tar is not None:
                    self._tar.abandon()

    def skip(self, reasons: Mapping[str, int]) -> None:
        """Counts what was left out, by reason; the manifest says so."""
        self._skipped.update(reasons)

    def add(self, key: str, image: bytes, extension: str, split: str, annotations: list[Annotation]) -> None:
        """Adds one encoded image with its texts. A mistake in either is an error here, not later in training."""
        extension = extension.lstrip(".").lower()
        if not is_key(key):
            raise UserError(f"key '{key}' cannot be used: a key is a relative path without '..' or a dot in its name")
        if key in self._keys:
            raise UserError(f"key '{key}' was added twice; keys are unique in a corpus")
        if extension not in IMAGE_EXTENSIONS:
            raise UserError(
                f"key '{key}': '{extension}' is not an image extension ({', '.join(sorted(IMAGE_EXTENSIONS))})"
            )
        if not split.isprintable():
            raise UserError(f"key '{key}': the split {split!r:.80} is not a name")
        if not split or not image:
            raise UserError(f"key '{key}': the {'split' if image else 'image'} is empty")
        for annotation in annotations:
            check_annotation(annotation, self.coverage, key)
        if self._tar is None:
            self._tar = TarFileWriter(self._partial / IMAGES / f"{len(self._shards):05d}.tar")
        offset = self._tar.add(f"{key}.{extension}", image)
        self._keys.add(key)
        self._rows.append(
            ImageRow(
                key=key,
                tar=f"{len(self._shards):05d}.tar",
                offset=offset,
                length=len(image),
                split=split,
                annotations=tuple(annotations),
            )
        )
        if len(self._rows) == self._images_per_tar:
            self._finish_tar()

    def _finish_tar(self) -> None:
        if self._tar is None:
            return
        self._tar.close()
        name = f"{len(self._shards):05d}"
        tar = self._partial / IMAGES / f"{name}.tar"
        self._shards.append(write_shard(self._partial, self._rows, scan_tar(tar), tar_sha256=self._tar.sha256))
        self._tar, self._rows = None, []


def write_shard(
    folder: Path,
    rows: list[ImageRow] | BareImages,
    scan: TarScan,
    *,
    tar_sha256: str | None = None,
    skipped: dict[str, int] | None = None,
    made_from: dict[str, Any] | None = None,
) -> Shard:
    """Writes `annotations/NAME.parquet` for `NAME.tar`; `made_from` lets a later run see that it is done."""
    shard = Shard(
        tar=scan.path.name,
        tar_bytes=scan.num_bytes,
        tar_headers_sha256=scan.headers_sha256,
        tar_sha256=tar_sha256,
        annotations=parquet_name(scan.path),
        splits=count_rows(rows),
        skipped=skipped or {},
    )
    if not isinstance(rows, BareImages):
        rows = sorted(rows, key=attrgetter("offset"))
    metadata = {"shard": shard.model_dump(mode="json"), "made_from": made_from or {}}
    digest = write_annotations(folder / ANNOTATIONS / shard.annotations, rows, metadata)
    return shard.model_copy(update={"annotations_sha256": digest})


def is_key(key: str) -> bool:
    file = key.rpartition("/")[2]
    return bool(file) and "." not in file and is_safe_name(key)


def check_annotation(annotation: Annotation, coverage: Coverage, key: str) -> None:
    try:
        coverage.language(annotation.language)
        needed = coverage.task(annotation.task).text
    except UserError as error:
        raise UserError(f"key '{key}': {error}") from None
    if not annotation.target.strip():
        raise UserError(f"key '{key}': {annotation.pair} has an empty target text")
    longest = max(len(annotation.target), len(annotation.source or ""))
    if longest > MAX_TEXT_CHARACTERS:
        raise UserError(
            f"key '{key}': {annotation.pair} has a text of {longest} characters, above {MAX_TEXT_CHARACTERS}"
        )
    if needed is not None and not (annotation.source or "").strip():
        raise UserError(f"key '{key}': {annotation.pair} has no {needed} text; a {annotation.task} needs one")


def with_versions(provenance: dict[str, Any]) -> dict[str, Any]:
    return {
        **provenance,
        "versions": {"babelcap": VERSION, "python": platform.python_version(), "pyarrow": pa.__version__},
    }
