"""The corpus on disk: the columns of `annotations/*.parquet`, and reading them safely."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from babelcap.errors import UserError
from babelcap.records import Annotation
from babelcap.storage import atomic_file, file_sha256, parquet_errors

IMAGES, ANNOTATIONS = "images", "annotations"
MAX_TEXT_CHARACTERS = 100_000  # of a source or target: a page is 3,000; what is longer is not a text about an image
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
    with parquet_errors(path):
        file = pq.ParquetFile(path, memory_map=False)
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


def read_batches(path: Path, columns: list[str], size: int, needed: pa.Schema = SCHEMA) -> Iterator[pa.RecordBatch]:
    """Rows of a Parquet file, so many at a time; damage in it is one line, wherever it is met."""
    with open_parquet(path, needed) as file:
        batches = file.iter_batches(batch_size=size, columns=columns)
        while True:
            with parquet_errors(path):
                batch = next(batches, None)
                if batch is not None:
                    batch.validate()
            if batch is None:
                return
            yield batch


def python_rows(batch: pa.RecordBatch, skipped: Counter[str]) -> list[dict[str, Any]]:
    """The rows of a batch; one whose text is not UTF-8 is left out and counted."""
    try:
        return batch.to_pylist()
    except UnicodeDecodeError:
        pass
    rows = []
    for place in range(batch.num_rows):
        try:
            rows += batch.slice(place, 1).to_pylist()
        except UnicodeDecodeError:
            skipped["text is not UTF-8"] += 1
    return rows


def read_annotations(path: Path) -> Iterator[ImageRow]:
    for batch in read_batches(path, SCHEMA.names, 1024):
        try:
            yield from map(ImageRow.from_values, batch.to_pylist())
        except UnicodeDecodeError:
            raise UserError(f"{path} holds text that is not UTF-8; `babelcap data check` says where") from None
        except ValueError as error:
            reason = " ".join(str(error).split())[:200]
            raise UserError(f"{path} holds a bad annotation ({reason}); `babelcap data check` says where") from None


def parquet_name(tar: Path) -> str:
    return f"{tar.name.removesuffix('.tar')}.parquet"
