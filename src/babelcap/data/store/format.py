"""The corpus on disk: the columns of `annotations/*.parquet`, the manifest `corpus.json`, and reading them safely."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field, ValidationError

from babelcap.coverage import Coverage
from babelcap.errors import UserError
from babelcap.records import Annotation, Record
from babelcap.storage import atomic_file, file_sha256, read_json

FORMAT = "babelcap-corpus"
FORMAT_VERSION = 1
TRAINING_SPLIT = "train"
MANIFEST = "corpus.json"
IMAGES, ANNOTATIONS = "images", "annotations"
ROWS_PER_GROUP = 4096  # images in a Parquet row group: some tens of megabytes of text
REPEATED_COLUMNS = [
    "tar",
    "split",
    *(f"annotations.list.element.{name}" for name in ("task", "language", "style", "origin")),
]
SHARD_METADATA = b"babelcap.shard"  # where a shard's Parquet says what it was made from

ANNOTATION_TYPE = pa.struct(
    [
        ("task", pa.string()),
        ("language", pa.string()),
        ("style", pa.string()),
        ("source", pa.string()),
        ("target", pa.string()),
        ("origin", pa.string()),
        ("score", pa.float64()),
    ]
)
SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("tar", pa.string()),
        ("offset", pa.int64()),
        ("length", pa.int64()),
        ("split", pa.string()),
        ("annotations", pa.list_(ANNOTATION_TYPE)),
    ]
)


class ImageRow(NamedTuple):
    """One image of a corpus: where its bytes lie, and its texts."""

    key: str
    tar: str  # file name below images/
    offset: int
    length: int
    split: str
    annotations: tuple[Annotation, ...] = ()

    @classmethod
    def from_values(cls, values: dict[str, Any]) -> "ImageRow":
        """From a row of the Parquet, whose column types are right already. Raises ValueError where a value is not."""
        if any(values[name] is None for name in cls._fields):
            raise ValueError(f"{next(name for name in cls._fields if values[name] is None)} is empty")
        annotations = tuple(Annotation.model_validate(annotation) for annotation in values["annotations"])
        return cls(**{**values, "annotations": annotations})


class BareImages(NamedTuple):
    """Images of one split without texts, by column: what a freshly indexed tar is, at a fraction of the rows' cost."""

    keys: list[str]
    tar: str
    offsets: list[int]
    lengths: list[int]
    split: str


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

    @property
    def num_images(self) -> int:
        return sum(counts.num_images for counts in self.splits.values())

    @property
    def num_annotations(self) -> int:
        return sum(sum(counts.pairs.values()) for counts in self.splits.values())


class Manifest(Record):
    """What `corpus.json` holds."""

    format: str = FORMAT
    version: int = FORMAT_VERSION
    content_hash: str
    num_images: int
    num_annotations: int
    splits: dict[str, SplitCounts]
    coverage: Coverage
    provenance: dict[str, Any]
    shards: list[Shard]


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


def read_manifest(folder: Path) -> Manifest:
    path = folder / MANIFEST
    if not folder.is_dir():
        raise UserError(f"{folder}: no such corpus folder")
    if not path.is_file():
        if (folder / ANNOTATIONS).is_dir():
            raise UserError(f"{folder} is an unfinished corpus (no {MANIFEST}); run the command that made it again")
        raise UserError(f"{folder} is not a corpus (no {MANIFEST}); `babelcap data index TARS -o DIR` makes one")
    values = read_json(path)
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise UserError(f"{path} is not the manifest of a babelcap corpus")
    if values.get("version") != FORMAT_VERSION:
        raise UserError(f"{path}: format version {values.get('version')}, this babelcap reads {FORMAT_VERSION}")
    try:
        return Manifest.model_validate(values)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}; it may be damaged") from None


def write_annotations(path: Path, rows: Sequence[ImageRow] | BareImages, shard: dict[str, Any]) -> str:
    """Writes a shard's rows in storage order; the SHA-256 of the file. `shard` is kept in the file's metadata."""
    schema = SCHEMA.with_metadata({SHARD_METADATA: json.dumps(shard, sort_keys=True, ensure_ascii=False).encode()})
    table = pa.table(_columns(rows), schema=schema)
    with atomic_file(path) as partial:
        options = {"compression": "zstd", "use_dictionary": REPEATED_COLUMNS, "write_statistics": False}
        pq.write_table(table, partial, row_group_size=ROWS_PER_GROUP, **options)
        return file_sha256(partial)


def _columns(rows: Sequence[ImageRow] | BareImages) -> dict[str, Any]:
    if isinstance(rows, BareImages):
        number = len(rows.keys)
        texts = pa.ListArray.from_arrays(pa.repeat(pa.scalar(0, pa.int32()), number + 1), pa.nulls(0, ANNOTATION_TYPE))
        tar, split = pa.repeat(rows.tar, number), pa.repeat(rows.split, number)
        return dict(zip(SCHEMA.names, (rows.keys, tar, rows.offsets, rows.lengths, split, texts), strict=True))
    columns: list[Any] = list(zip(*rows, strict=True)) or [()] * len(SCHEMA)
    columns[-1] = [list(map(dict, annotations)) for annotations in columns[-1]]
    return dict(zip(SCHEMA.names, columns, strict=True))


def open_parquet(path: Path, needed: pa.Schema = SCHEMA) -> pq.ParquetFile:
    """A Parquet file that has the needed columns with the needed types, or a message that names what is wrong."""
    try:
        file = pq.ParquetFile(path, memory_map=False)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; the corpus is incomplete") from None
    except (pa.ArrowInvalid, pa.ArrowIOError) as error:
        raise UserError(f"{path} is not a readable Parquet file ({str(error).splitlines()[0]})") from None
    found = file.schema_arrow
    for field in needed:
        if field.name not in found.names:
            file.close()
            raise UserError(f"{path}: column '{field.name}' is missing (found: {', '.join(found.names)})")
        if found.field(field.name).type != field.type:
            file.close()
            kind = found.field(field.name).type
            raise UserError(f"{path}: column '{field.name}' is of type {kind}, expected {field.type}")
    return file


def read_annotations(path: Path) -> Iterator[ImageRow]:
    with open_parquet(path) as file:
        for batch in file.iter_batches(batch_size=1024, columns=SCHEMA.names):
            try:
                yield from map(ImageRow.from_values, batch.to_pylist())
            except UnicodeDecodeError:
                raise UserError(f"{path} holds text that is not UTF-8; `babelcap data check` says where") from None
            except ValueError as error:
                reason = " ".join(str(error).split())[:200]
                raise UserError(f"{path} holds a bad annotation ({reason}); `babelcap data check` says where") from None


def parquet_name(tar: Path) -> str:
    return f"{tar.name.removesuffix('.tar')}.parquet"
