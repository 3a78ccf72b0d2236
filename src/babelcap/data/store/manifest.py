"""The manifest of a corpus, `corpus.json`: what it holds, counted and checksummed; itself covered by a checksum.

Paths in it are plain names below the corpus' own folders. Tars may be links to elsewhere, by design; their bytes are
covered all the same, by their headers always and by their SHA-256 where it was recorded.
"""

import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError, field_validator

from babelcap.coverage import Coverage
from babelcap.data.store.format import ANNOTATIONS, IMAGES, BareImages, ImageRow
from babelcap.errors import UserError
from babelcap.records import Record
from babelcap.storage import file_sha256, is_inside, read_json, sealed, text_sha256, write_json

FORMAT = "babelcap-corpus"
FORMAT_VERSION = 1
MANIFEST = "corpus.json"
INDEX = "index"  # the folder of what is derived from the rest
DERIVED = {INDEX, "features", "shortlists"}  # folders of what readers, trainings and studies compute of a corpus


class SplitCounts(Record):
    num_images: int
    pairs: dict[str, int]  # task-language pair -> number of annotations


class Shard(Record):
    """One tar and the Parquet beside it."""

    tar: str
    tar_bytes: int
    tar_headers_sha256: str  # names, sizes and places of all members, without reading their data
    tar_sha256: str | None = None  # of all bytes, where they were read anyway or asked for
    annotations: str
    annotations_sha256: str = ""
    splits: dict[str, SplitCounts]
    skipped: dict[str, int] = Field(default={})  # reason -> images or texts left out when the shard was made

    @field_validator("tar", "annotations")
    @classmethod
    def _plain_name(cls, name: str) -> str:
        if "/" in name or not is_inside(Path(), name):
            raise ValueError(f"'{name}' is not the plain name of a file below the corpus")
        return name

    @property
    def num_images(self) -> int:
        return sum(counts.num_images for counts in self.splits.values())

    @property
    def num_annotations(self) -> int:
        return sum(sum(counts.pairs.values()) for counts in self.splits.values())


class FileState(Record):
    """A file beside images and annotations that results depend on: truth, text, tokenizers."""

    bytes: int
    sha256: str


class Manifest(Record):
    """What `corpus.json` holds, but for the checksum of itself."""

    format: str = FORMAT
    version: int = FORMAT_VERSION
    content_hash: str
    num_images: int
    num_annotations: int
    splits: dict[str, SplitCounts]
    coverage: Coverage
    provenance: dict[str, Any]
    shards: list[Shard]
    files: dict[str, FileState] = Field(default={})  # path below the corpus -> its state

    @field_validator("files")
    @classmethod
    def _inside(cls, files: dict[str, FileState]) -> dict[str, FileState]:
        for name in files:
            if not is_inside(Path(), name):
                raise ValueError(f"'{name}' lies outside of the corpus")
        return files


def make_manifest(shards: list[Shard], coverage: Coverage, provenance: dict[str, Any]) -> Manifest:
    return Manifest(
        content_hash=content_hash(shards),
        num_images=sum(shard.num_images for shard in shards),
        num_annotations=sum(shard.num_annotations for shard in shards),
        splits=merge_counts(shard.splits for shard in shards),
        coverage=coverage,
        provenance=provenance,
        shards=shards,
    )


def content_hash(shards: Iterable[Shard]) -> str:
    """Sixteen hex digits over the tars' headers and the annotations, whether or not the tars' data was hashed too."""
    parts = [(shard.tar, shard.tar_bytes, shard.tar_headers_sha256, shard.annotations_sha256) for shard in shards]
    return hashlib.sha256(json.dumps([FORMAT_VERSION, parts]).encode()).hexdigest()[:16]


def count_rows(rows: Sequence[ImageRow] | BareImages) -> dict[str, SplitCounts]:
    if isinstance(rows, BareImages):
        return {rows.split: SplitCounts(num_images=len(rows.keys), pairs={})} if rows.keys else {}
    images = Counter([row.split for row in rows])
    pairs: dict[str, Counter[str]] = {split: Counter() for split in images}
    for row in rows:
        if row.annotations:
            pairs[row.split].update([str(annotation.pair) for annotation in row.annotations])
    return {split: SplitCounts(num_images=images[split], pairs=_sorted(pairs[split])) for split in sorted(images)}


def merge_counts(parts: Iterable[dict[str, SplitCounts]]) -> dict[str, SplitCounts]:
    images: Counter[str] = Counter()
    pairs: dict[str, Counter[str]] = {}
    for part in parts:
        for split, counts in part.items():
            images[split] += counts.num_images
            pairs.setdefault(split, Counter()).update(counts.pairs)
    return {split: SplitCounts(num_images=images[split], pairs=_sorted(pairs[split])) for split in sorted(images)}


def _sorted(counts: Counter[str]) -> dict[str, int]:
    return {name: counts[name] for name in sorted(counts)}


def read_corpus_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    if not folder.is_dir():
        raise UserError(f"{folder}: no such corpus folder")
    if not path.is_file():
        if path.is_dir():
            raise UserError(f"{path} is a folder, not the manifest of a corpus")
        if (folder / ANNOTATIONS).is_dir():
            raise UserError(f"{folder} is an unfinished corpus (no {MANIFEST}); run the command that made it again")
        raise UserError(f"{folder} is not a corpus (no {MANIFEST}); `babelcap data index TARS -o DIR` makes one")
    values = read_json(path)
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise UserError(f"{path} is not the manifest of a babelcap corpus; it may be damaged")
    if values.get("version") != FORMAT_VERSION:
        raise UserError(f"{path}: format version {values.get('version')}, this babelcap reads {FORMAT_VERSION}")
    stated = values.pop("sha256", None)
    try:
        manifest = Manifest.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(
            f"{path}: {'.'.join(map(str, first['loc'])):.300}: {first['msg']:.300}; it may be damaged"
        ) from None
    except RecursionError:
        raise UserError(f"{path} is nested too deeply; it may be damaged") from None
    if stated is None:
        _note_once(f"{folder} has no checksum of its manifest; `babelcap data check {folder} --record` adds it")
    elif stated != text_sha256(values):
        raise UserError(f"{path} is damaged: its contents are not those of its checksum; make the corpus again")
    expected = make_manifest(manifest.shards, manifest.coverage, manifest.provenance)
    for name in ("content_hash", "num_images", "num_annotations", "splits"):
        if getattr(manifest, name) != getattr(expected, name):
            raise UserError(f"{path} is damaged: its {name} is not that of its shards; make the corpus again")
    return manifest


def write_corpus_manifest(folder: Path, manifest: Manifest) -> None:
    """With the checksum of all that it says. The last thing that is written into a corpus."""
    text = json.dumps(manifest.model_dump(mode="json"), ensure_ascii=False)
    # What a file system calls a file need not be text, and may stand in the provenance.
    values = json.loads(text.encode("utf-8", "backslashreplace"))
    write_json(folder / MANIFEST, sealed(values))


def record_files(folder: Path) -> None:
    """Adds whatever lies beside images and annotations to the manifest of a corpus."""
    manifest = read_corpus_manifest(folder)
    write_corpus_manifest(folder, manifest.model_copy(update={"files": describe_files(folder)}))


def describe_files(folder: Path) -> dict[str, FileState]:
    paths = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    derived = {IMAGES, ANNOTATIONS, MANIFEST} | DERIVED
    return {
        name.as_posix(): FileState(bytes=path.stat().st_size, sha256=file_sha256(path))
        for name, path in paths.items()
        if name.parts[0] not in derived and not any(part.startswith(".") for part in name.parts)
    }


@cache
def _note_once(text: str) -> None:
    print(f"babelcap: {text}", file=sys.stderr)
