"""Rows for any webdataset tars: annotations from a file beside them, captions from their own .txt or .json members."""

import json
import os
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from babelcap.coverage import CAPTION, Coverage, Style
from babelcap.data.importers.assemble import bare_images, file_state, image_members
from babelcap.data.store.format import TRAINING_SPLIT, BareImages, ImageRow, open_parquet
from babelcap.data.store.store import check_annotation
from babelcap.data.store.tar import TarScan
from babelcap.errors import UserError
from babelcap.records import Annotation

NOTHING: tuple[str | None, list[Annotation]] = (None, [])
ANNOTATION_FIELDS = tuple(Annotation.model_fields)


@dataclass(frozen=True)
class WebdatasetMaker:
    """`captions` is the extension of the members that hold captions: `txt`, or `json:FIELD` for a field of a JSON."""

    coverage: Coverage
    split: str = TRAINING_SPLIT
    annotations: Path | None = None
    captions: str | None = None
    language: str = "en"
    origin: str = ""

    def made_from(self, tar: Path) -> dict[str, Any]:
        return {
            "maker": "webdataset/1",
            "split": self.split,
            "annotations": file_state(self.annotations) if self.annotations and self.annotations.exists() else None,
            "captions": self.captions,
            "language": self.language,
            "origin": self.origin,
        }

    def make_rows(self, scan: TarScan, skipped: Counter[str]) -> list[ImageRow] | BareImages:
        given = load_annotations(self.annotations) if self.annotations else {}
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
                if member.extension != extension:
                    continue
                try:
                    text = _caption_text(os.pread(descriptor, member.length, member.offset), field)
                except UnicodeDecodeError:
                    skipped["text is not UTF-8"] += 1
                    continue
                except (ValueError, KeyError, TypeError):
                    skipped["bad JSON member"] += 1
                    continue
                if not text:
                    skipped["empty text"] += 1
                    continue
                caption = Annotation(
                    task=CAPTION, language=self.language, style=Style.SHORT, target=text, origin=self.origin
                )
                captions.setdefault(member.key, []).append(caption)
        finally:
            os.close(descriptor)
        return captions


def _caption_text(content: bytes, field: str) -> str:
    text = content.decode("utf-8")
    if field:
        text = json.loads(text)[field]
        if not isinstance(text, str):
            raise TypeError(f"{field} is not a text")
    return text.strip()


def load_annotations(path: Path) -> dict[str, tuple[str | None, list[Annotation]]]:
    """key -> (split or None, annotations) from JSON lines or Parquet, one annotation a row or a list of them."""
    if not path.is_file():
        raise UserError(f"{path}: no such file")
    return _load_annotations(path, tuple(file_state(path)))


@lru_cache(maxsize=1)
def _load_annotations(path: Path, state: tuple[Any, ...]) -> dict[str, tuple[str | None, list[Annotation]]]:
    if path.suffix == ".parquet":
        values = _read_parquet(path)
    elif path.suffix in {".jsonl", ".json"}:
        values = _read_json_lines(path)
    else:
        raise UserError(f"{path}: annotations are read from .parquet or .jsonl, not from '{path.suffix}'")
    found: dict[str, tuple[str | None, list[Annotation]]] = {}
    for number, row in enumerate(values, 1):
        key = row.get("key", row.get("__key__"))
        if not isinstance(key, str) or not key:
            raise UserError(f"{path}:{number}: no 'key', which names the image")
        split, annotations = found.setdefault(key, (row.get("split"), []))
        for item in row.get("annotations", [row]) or []:
            annotations.append(_annotation(item, f"{path}:{number}"))
        if row.get("split") != split:
            raise UserError(f"{path}:{number}: key '{key}' is in split '{row.get('split')}' and in '{split}'")
    return found


def _annotation(values: Any, where: str) -> Annotation:
    if not isinstance(values, dict):
        raise UserError(f"{where}: expected an annotation with the fields {', '.join(ANNOTATION_FIELDS)}")
    kept = {name: values[name] for name in ANNOTATION_FIELDS if values.get(name) is not None}
    try:
        return Annotation.model_validate(kept)
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"{where}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None


def _read_json_lines(path: Path) -> list[dict[str, Any]]:
    values = []
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                value = json.loads(line)
                if not isinstance(value, dict):
                    raise UserError(f"{path}:{number}: a line is one JSON object, found {type(value).__name__}")
                values.append(value)
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text ({error.reason} at byte {error.start})") from None
    except json.JSONDecodeError as error:
        raise UserError(f"{path}:{len(values) + 1}: not valid JSON ({error.msg})") from None
    return values


def _read_parquet(path: Path) -> list[dict[str, Any]]:
    with open_parquet(path, pa.schema([])) as file:
        names = set(file.schema_arrow.names)
        if not {"key", "__key__"} & names or not {"annotations", "target"} & names:
            raise UserError(f"{path}: needs the columns 'key' and 'annotations' (found: {', '.join(sorted(names))})")
        try:
            return file.read().to_pylist()
        except UnicodeDecodeError:
            raise UserError(f"{path} holds text that is not UTF-8; mend it before it is imported") from None
