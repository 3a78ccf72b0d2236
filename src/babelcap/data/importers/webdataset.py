"""Rows for any webdataset tars: annotations from a file, or beside each tar, or captions from members of the tar.

Beside `NAME.tar` may lie `NAME.annotations.parquet` with the columns key, split and annotations: `data export` writes
it, so that an export can be indexed again.
"""

import os
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from babelcap.coverage import CAPTION, Coverage, Style
from babelcap.data.importers.assemble import bare_images, file_state, image_members
from babelcap.data.store.format import (
    MAX_TEXT_CHARACTERS,
    BareImages,
    ImageRow,
    open_parquet,
    read_batches,
)
from babelcap.data.store.store import check_annotation
from babelcap.data.store.tar import TarMember, TarScan
from babelcap.errors import UserError
from babelcap.measures import TRAIN
from babelcap.records import Annotation
from babelcap.storage import parquet_errors, parse_json, read_json_lines, read_json_object

BESIDE = ".annotations.parquet"
RECEIPT = "export.json"  # what an export says of itself: among it the coverage
MAX_MEMBER_BYTES = 16 * 2**20  # of a text or JSON member
ANNOTATION_FIELDS = tuple(Annotation.model_fields)
Texts = dict[str, tuple[str | None, list[Annotation]]]  # key -> split, if it is told, and annotations
NOTHING: tuple[str | None, list[Annotation]] = (None, [])


@dataclass(frozen=True)
class WebdatasetMaker:
    """`captions` is the extension of the members that hold captions: `txt`, or `json:FIELD` for a field of a JSON."""

    coverage: Coverage
    split: str = TRAIN
    annotations: Path | None = None
    captions: str | None = None
    language: str = "en"
    origin: str = ""

    def made_from(self, tar: Path) -> dict[str, Any]:
        texts = self.annotations or annotations_beside(tar)
        return {
            "maker": "webdataset/2",
            "split": self.split,
            "annotations": file_state(texts) if texts.exists() else None,
            "captions": self.captions,
            "language": self.language,
            "origin": self.origin,
        }

    def make_rows(self, scan: TarScan, skipped: Counter[str]) -> list[ImageRow] | BareImages:
        given: Texts = {}
        if self.annotations:
            given = load_annotations(self.annotations)
        elif annotations_beside(scan.path).is_file():
            given = read_texts(annotations_beside(scan.path))
        inside = self._captions_inside(scan, skipped) if self.captions else {}
        if not given and not inside:
            return bare_images(scan, skipped, self.split)
        rows, tar = [], scan.path.name
        for key, member in image_members(scan, skipped).items():
            split, annotations = given.get(key, NOTHING)
            for annotation in annotations:
                check_annotation(annotation, self.coverage, key)
            texts = (*inside.get(key, ()), *annotations)
            rows.append(ImageRow(key, tar, member.offset, member.length, split or self.split, texts))
        return rows

    def _captions_inside(self, scan: TarScan, skipped: Counter[str]) -> dict[str, list[Annotation]]:
        extension, _, field = (self.captions or "").partition(":")
        captions: dict[str, list[Annotation]] = {}
        descriptor = os.open(scan.path, os.O_RDONLY)
        try:
            for member in scan.members:
                if member.extension == extension:
                    text = _member_text(descriptor, member, field, skipped)
                    if text:
                        captions.setdefault(member.key, []).append(self._caption(text))
        finally:
            os.close(descriptor)
        return captions

    def _caption(self, text: str) -> Annotation:
        return Annotation(task=CAPTION, language=self.language, style=Style.SHORT, target=text, origin=self.origin)


def _member_text(descriptor: int, member: TarMember, field: str, skipped: Counter[str]) -> str:
    """The caption that a member holds; one that holds none is counted by reason, and the import goes on."""
    if member.length > MAX_MEMBER_BYTES:
        skipped["text is too long"] += 1
        return ""
    content = os.pread(descriptor, member.length, member.offset)
    try:
        text: Any = parse_json(content, member.name)[field] if field else content.decode("utf-8")
    except UnicodeDecodeError:
        skipped["text is not UTF-8"] += 1
        return ""
    except UserError:
        skipped["bad JSON member"] += 1
        return ""
    except (KeyError, TypeError, IndexError):
        text = None
    if not isinstance(text, str):
        skipped[f"JSON member without a text '{field}'"] += 1
        return ""
    text = text.strip()
    reason = unusable(text)
    if reason:
        skipped[reason] += 1
    return "" if reason else text


def unusable(text: str) -> str | None:
    """Why a text cannot be one of a corpus, if it cannot."""
    if not text:
        return "empty text"
    if len(text) > MAX_TEXT_CHARACTERS:
        return "text is too long"
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can spell
        return "text is not UTF-8"
    return None


def annotations_beside(tar: Path) -> Path:
    return tar.with_name(tar.name.removesuffix(".tar") + BESIDE)


def exported_coverage(places: Iterable[str]) -> Coverage | None:
    """That of the export which the tars are, or are a split of."""
    for place in map(Path, places):
        for folder in (place, place.parent):
            if (folder / RECEIPT).is_file():
                try:
                    return Coverage.model_validate(read_json_object(folder / RECEIPT).get("coverage"))
                except ValidationError as error:
                    first = error.errors()[0]
                    raise UserError(f"{folder / RECEIPT}: coverage: {first['msg']:.300}; it may be damaged") from None
    return None


def load_annotations(path: Path) -> Texts:
    """From JSON lines or Parquet, one annotation a row or a list of them; once a process, since every tar asks."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    return _load_annotations(path, tuple(file_state(path)))


@lru_cache(maxsize=1)
def _load_annotations(path: Path, state: tuple[Any, ...]) -> Texts:
    return read_texts(path)


def read_texts(path: Path) -> Texts:
    if path.suffix == ".parquet":
        values = _read_parquet(path)
    elif path.suffix in {".jsonl", ".json"}:
        values = _read_json_lines(path)
    else:
        raise UserError(f"{path}: annotations are read from .parquet or .jsonl, not from '{path.suffix}'")
    found: Texts = {}
    for number, row in enumerate(values, 1):
        key, split = row.get("key", row.get("__key__")), row.get("split")
        if not isinstance(key, str) or not key:
            raise UserError(f"{path}:{number}: no 'key', which names the image")
        if split is not None and (not isinstance(split, str) or unusable(split)):
            raise UserError(f"{path}:{number}: split is {split!r:.80}; a split is a name")
        items = row["annotations"] if row.get("annotations") is not None else [] if "annotations" in row else [row]
        if not isinstance(items, list):
            raise UserError(f"{path}:{number}: annotations is a {type(items).__name__}; expected a list")
        known_split, annotations = found.setdefault(key, (split, []))
        annotations += [_annotation(item, f"{path}:{number}") for item in items]
        if split != known_split:
            raise UserError(f"{path}:{number}: key '{key}' is in split '{split}' and in '{known_split}'")
    return found


def _annotation(values: Any, where: str) -> Annotation:
    if not isinstance(values, dict):
        raise UserError(f"{where}: expected an annotation with the fields {', '.join(ANNOTATION_FIELDS)}")
    kept = {name: values[name] for name in ANNOTATION_FIELDS if values.get(name) is not None}
    try:
        return Annotation.model_validate(kept)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']:.300}") from None


def _read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    for line in read_json_lines(path):
        if line.error is not None:
            raise UserError(line.error)
        if not isinstance(line.value, dict):
            raise UserError(f"{path}:{line.number}: a line is one JSON object, found {type(line.value).__name__}")
        yield line.value


def _read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    with open_parquet(path, pa.schema([])) as file:
        names = file.schema_arrow.names
    if not {"key", "__key__"} & set(names) or not {"annotations", "target"} & set(names):
        raise UserError(f"{path}: needs the columns 'key' and 'annotations' (found: {', '.join(sorted(names))})")
    wanted = [name for name in ("key", "__key__", "split", "annotations", *ANNOTATION_FIELDS) if name in names]
    for batch in read_batches(path, wanted, 64, pa.schema([])):  # a text may be long, and be in all rows
        try:
            with parquet_errors(path):
                rows = batch.to_pylist()
        except UserError as error:
            raise UserError(f"{error}; mend it before it is imported") from None
        yield from rows
