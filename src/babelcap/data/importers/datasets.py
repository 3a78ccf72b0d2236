"""Hugging Face `datasets`: as saved by `save_to_disk`, as Parquet files, or by the name of a dataset of the hub.

All are Arrow tables with a column of encoded images and columns of text, read here without the `datasets` library.
The split of a file is its folder's name (save_to_disk) or its own up to a dash (`train-00000-of-00002.parquet`).
"""

import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from babelcap.coverage import CAPTION, Coverage, Pair, Style
from babelcap.data.importers.download import download_dataset
from babelcap.data.importers.files import files_below
from babelcap.data.importers.webdataset import unusable
from babelcap.data.store.format import open_parquet, python_rows, read_batches
from babelcap.data.store.store import Corpus, CorpusWriter
from babelcap.errors import UserError
from babelcap.measures import TRAIN
from babelcap.records import Annotation
from babelcap.storage import parquet_errors

ROWS_AT_ONCE = 64  # images are in the rows
SAVE_FIRST = "save it with `datasets.load_dataset(...).save_to_disk(DIR)` and name that folder"
# The first bytes of an encoded image -> its extension.
MAGIC = (
    (re.compile(rb"\xff\xd8\xff"), "jpg"),
    (re.compile(rb"\x89PNG\r\n"), "png"),
    (re.compile(rb"RIFF....WEBP", re.DOTALL), "webp"),
    (re.compile(rb"GIF8[79]a"), "gif"),
    (re.compile(rb"BM"), "bmp"),
    (re.compile(rb"II\*\0|MM\0\*"), "tif"),
    (re.compile(rb"....ftypavi[fs]", re.DOTALL), "avif"),
    (re.compile(rb"....ftyp(he[ivc]|m[is]f)", re.DOTALL), "heic"),
)


@dataclass(frozen=True)
class DatasetColumns:
    """Which columns hold what: texts as language -> column, each a text or a list of texts."""

    image: str = "image"
    texts: tuple[tuple[str, str], ...] = (("en", "text"),)
    split: str | None = None  # of all rows, in place of the files' own

    @classmethod
    def parse(cls, image: str, texts: Sequence[str], language: str, split: str | None) -> "DatasetColumns":
        """`texts` are COLUMN, or LANGUAGE=COLUMN."""
        pairs = []
        for text in texts:
            before, sign, column = text.partition("=")
            pairs.append((before, column) if sign else (language, text))
        for code, column in pairs:
            Coverage().language(code)
            if not column:
                raise UserError(f"--text '{code}=': name the column, as in --text de=caption_de")
        return cls(image, tuple(pairs), split)


def import_datasets(output: str | Path, source: str, columns: DatasetColumns) -> Corpus:
    """Rows whose image or texts cannot be used are left out and counted."""
    folder = Path(source)
    if not os.path.exists(source):  # unlike Path's, it takes names that are too long for a file
        if not re.fullmatch(r"[\w.-]{1,96}/[\w.-]{1,96}", source):
            raise UserError(f"{source:.200}: no such folder, and not the name of a dataset of the hub (OWNER/NAME)")
        folder = download_dataset(source, Path(f"{output}-download"), ["*.parquet"])
    files = _data_files(folder, source)
    languages = list(dict.fromkeys(code for code, _ in columns.texts))
    coverage = Coverage(seen=tuple(str(Pair(CAPTION, code)) for code in languages))
    provenance = {
        "source": source,
        "command": "babelcap data import datasets",
        "parameters": {"image": columns.image, "texts": [f"{code}={name}" for code, name in columns.texts]},
    }
    skipped: Counter[str] = Counter()
    numbers: Counter[str] = Counter()
    with CorpusWriter(output, provenance=provenance, coverage=coverage) as writer:
        for path in files:
            split = columns.split or _split_of(path)
            for row in _rows(path, columns, skipped):
                image = _image_bytes(row[columns.image])
                extension = image_extension(image)
                annotations = _annotations(row, columns, skipped)
                key = f"{split}-{numbers[split]:09d}"
                numbers[split] += 1  # counted where the image is bad too: a key is a row's number
                if extension is None:
                    skipped["not an image"] += 1
                elif not annotations:
                    skipped["image without annotation"] += 1
                else:
                    writer.add(key, image, extension, split, annotations)
        writer.skip(skipped)
    return Corpus.open(output)


def _data_files(folder: Path, source: str) -> list[Path]:
    if folder.is_file():
        return [folder]
    found = sorted(path for path in files_below(folder) if path.suffix in {".parquet", ".arrow"})
    files = [path for path in found if not path.name.startswith("cache-")]  # what `datasets` keeps of its own
    if not files:
        raise UserError(f"{source} holds neither Parquet nor Arrow files; {SAVE_FIRST}")
    return files


def _split_of(path: Path) -> str:
    if path.suffix == ".arrow":  # a saved DatasetDict has a folder for each split, a saved Dataset is one
        return path.parent.name if (path.parent.parent / "dataset_dict.json").is_file() else TRAIN
    name = re.match(r"[A-Za-z_]+", path.name.partition("-")[0])
    return name[0] if name and "-" in path.name else TRAIN


def _rows(path: Path, columns: DatasetColumns, skipped: Counter[str]) -> Iterator[dict[str, Any]]:
    wanted = list(dict.fromkeys([columns.image, *(column for _, column in columns.texts)]))
    if path.suffix == ".arrow":
        batches = _arrow_batches(path, wanted)
    else:
        with open_parquet(path, pa.schema([])) as file:
            _require_columns(path, wanted, file.schema_arrow)
        batches = read_batches(path, wanted, ROWS_AT_ONCE, pa.schema([]))
    for batch in batches:
        yield from python_rows(batch, skipped)


def _arrow_batches(path: Path, wanted: list[str]) -> Iterator[pa.RecordBatch]:
    with parquet_errors(path, "Arrow"), pa.OSFile(str(path)) as source, pa.ipc.open_stream(source) as reader:
        _require_columns(path, wanted, reader.schema)
        for whole in reader:
            whole.validate(full=True)
            for start in range(0, whole.num_rows, ROWS_AT_ONCE):
                yield whole.select(wanted).slice(start, ROWS_AT_ONCE)


def _require_columns(path: Path, wanted: list[str], schema: pa.Schema) -> None:
    for name in wanted:
        if name not in schema.names:
            raise UserError(
                f"{path}: column '{name}' is missing (found: {', '.join(schema.names)}); see --image, --text"
            )


def _image_bytes(value: Any) -> bytes:
    """`datasets` keeps an image as {bytes, path}; others as bytes."""
    content = value.get("bytes") if isinstance(value, dict) else value
    return content if isinstance(content, bytes) else b""


def image_extension(content: bytes) -> str | None:
    return next((extension for magic, extension in MAGIC if magic.match(content)), None)


def _annotations(row: dict[str, Any], columns: DatasetColumns, skipped: Counter[str]) -> list[Annotation]:
    found = []
    for language, column in columns.texts:
        value = row[column]
        for text in value if isinstance(value, list) else [value]:
            reason = unusable(text.strip()) if isinstance(text, str) else "empty text"
            if reason:
                skipped[reason] += 1
            else:
                annotation = Annotation(task=CAPTION, language=language, style=Style.SHORT, target=text.strip())
                found.append(annotation)
    return found
