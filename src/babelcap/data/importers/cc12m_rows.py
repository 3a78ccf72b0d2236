"""Conceptual 12M with the published captions and translations: its files, and the preparation that training expects.

Per image: captions in English and German (first sentence: short; whole: detailed with two sentences, more detailed with
three or more), their translation into each other, the sentence pairs aligned to the image, and paragraphs made of them.
"""

import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa

from babelcap.coverage import CAPTION, TRANSLATION, Style
from babelcap.data.importers.assemble import file_state, image_members
from babelcap.data.sentences import join_sentences, split_sentences
from babelcap.data.store.format import (
    MAX_TEXT_CHARACTERS,
    ImageRow,
    open_parquet,
    python_rows,
    read_batches,
)
from babelcap.data.store.tar import TarScan
from babelcap.errors import UserError
from babelcap.measures import EVAL, TRAIN
from babelcap.records import Annotation

IMAGES_REPOSITORY = "pixparse/cc12m-wds"
ANNOTATIONS_REPOSITORY = "spravil/cc12m_ccmatrix_captions_and_translations"
MIN_CHARACTERS = 26  # of the English side; pairs with 25 or fewer are dropped
CAPTION_COLUMN = "caption_en_de"
TRANSLATION_COLUMNS = {f"translation_en_{language}": language for language in ("de", "fr", "es", "ru", "zh")}
EVAL_CAPTIONS = ("en", "de", "es", "zh")
EVAL_TRANSLATIONS = ("es", "zh")
CAPTIONER, TRANSLATOR, WEB = "llava-next", "nllb-3.3b", "ccmatrix"


@dataclass(frozen=True)
class Cc12mMaker:
    """Rows of one tar: training annotations from the Parquet of the same number, eval ones from the eval file."""

    annotations: dict[str, Path]  # name of a tar -> its Parquet
    eval_file: Path | None = None
    seed: int = 0

    def made_from(self, tar: Path) -> dict[str, Any]:
        annotations = self.annotations.get(tar.name)
        return {
            "maker": "cc12m/1",
            "annotations": file_state(annotations) if annotations else None,
            "eval": file_state(self.eval_file) if self.eval_file else None,
            "seed": self.seed,
        }

    def make_rows(self, scan: TarScan, skipped: Counter[str]) -> list[ImageRow]:
        found: dict[str, list[Annotation]] = {}
        path = self.annotations.get(scan.path.name)
        for key, values in read_training_file(path, skipped) if path else ():
            if key in found:
                skipped["duplicate key in annotations"] += 1
                continue
            found[key] = prepare_image(key, values, self.seed, skipped)
        held_out = read_eval_file(self.eval_file) if self.eval_file else {}
        rows = []
        for key, member in image_members(scan, skipped).items():
            split = EVAL if key in held_out else TRAIN
            annotations = held_out[key] if key in held_out else found.pop(key, [])
            if annotations:
                rows.append(ImageRow(key, scan.path.name, member.offset, member.length, split, tuple(annotations)))
            else:
                skipped["image without annotation"] += 1
        skipped["held out for eval"] += sum(key in held_out for key in found)
        skipped["annotation without image"] += sum(key not in held_out for key in found)
        return rows


def prepare_image(
    key: str, values: dict[str, list[tuple[str, str]]], seed: int, skipped: Counter[str]
) -> list[Annotation]:
    """The published preparation of one image's pairs; the same for any order of images and number of processes."""
    annotations: list[Annotation] = []
    for english, german in _long_enough(values[CAPTION_COLUMN][:1], skipped):
        annotations += prepare_captions(english, "en", CAPTIONER) + prepare_captions(german, "de", TRANSLATOR)
        annotations.append(_translation("de", english, german, TRANSLATOR))
        sides = split_sentences(english, "en"), split_sentences(german, "de")
        if len(sides[0]) == len(sides[1]):  # else nothing says which sentence is whose translation
            pairs = list(zip(*sides, strict=True))
            annotations += prepare_paragraph(pairs, "de", TRANSLATOR, (seed, key, CAPTION_COLUMN))
    for column, language in TRANSLATION_COLUMNS.items():
        pairs = _long_enough(values[column], skipped)
        annotations += [_translation(language, english, other, WEB) for english, other in pairs]
        annotations += prepare_paragraph(pairs, language, WEB, (seed, key, column))
    return annotations


def prepare_captions(text: str, language: str, origin: str) -> list[Annotation]:
    sentences = split_sentences(text, language)
    captions = [(Style.SHORT, sentences[0])]
    if len(sentences) > 1:
        captions.append((Style.DETAILED if len(sentences) == 2 else Style.MORE_DETAILED, text))
    return [
        Annotation(task=CAPTION, language=language, style=style, target=target, origin=origin)
        for style, target in captions
    ]


def prepare_paragraph(
    pairs: list[tuple[str, str]], language: str, origin: str, seed: tuple[int, str, str]
) -> list[Annotation]:
    """At least two of the pairs, drawn and shuffled, joined on both sides in the same order."""
    if len(pairs) < 2:
        return []
    digest = hashlib.sha256("\n".join(("paragraph", *map(str, seed))).encode()).digest()
    generator = random.Random(int.from_bytes(digest[:8], "big"))
    chosen = generator.sample(pairs, generator.randint(2, len(pairs)))
    source = join_sentences([english for english, _ in chosen], "en")
    target = join_sentences([other for _, other in chosen], language)
    return [_translation(language, source, target, f"{origin}/paragraph")]


def _translation(language: str, source: str, target: str, origin: str) -> Annotation:
    return Annotation(task=TRANSLATION, language=language, source=source, target=target, origin=origin)


def _long_enough(pairs: list[tuple[str, str]], skipped: Counter[str]) -> list[tuple[str, str]]:
    kept = []
    for english, other in pairs:
        english, other = english.strip(), other.strip()
        if max(len(english), len(other)) > MAX_TEXT_CHARACTERS:
            skipped["text is too long"] += 1
        elif len(english) < MIN_CHARACTERS:
            skipped["English side of 25 characters or fewer"] += 1
        elif not other:
            skipped["empty text"] += 1
        else:
            kept.append((english, other))
    return kept


def read_training_file(path: Path, skipped: Counter[str]) -> Iterator[tuple[str, dict[str, list[tuple[str, str]]]]]:
    """key and, per column, its (English, other) pairs. A row whose text is not UTF-8 is skipped and counted."""
    columns = [CAPTION_COLUMN, *TRANSLATION_COLUMNS]
    for values in _read_rows(path, columns, skipped, _is_list_of_pairs):
        yield values["key"], {name: _pairs(values[name]) for name in columns}


def read_eval_file(path: Path) -> dict[str, list[Annotation]]:
    """key -> annotations of the eval split. Read once a process, since every tar asks for it."""
    return _read_eval_file(path, tuple(file_state(path)))


@lru_cache(maxsize=1)
def _read_eval_file(path: Path, state: tuple[Any, ...]) -> dict[str, list[Annotation]]:
    captions = [f"caption_{language}" for language in EVAL_CAPTIONS]
    translations = [f"translation_en_{language}" for language in EVAL_TRANSLATIONS]
    columns = [*captions, *(f"{name}_style" for name in captions), *translations]
    found: dict[str, list[Annotation]] = {}
    skipped: Counter[str] = Counter()
    for values in _read_rows(path, columns, skipped, _is_text_or_pair):
        annotations = []
        for language in EVAL_CAPTIONS:
            target = _first_text(values[f"caption_{language}"])
            if target:
                style = _style(_first_text(values[f"caption_{language}_style"]), path, values["key"])
                origin = CAPTIONER if language == "en" else TRANSLATOR
                annotations.append(
                    Annotation(task=CAPTION, language=language, style=style, target=target, origin=origin)
                )
        for language in EVAL_TRANSLATIONS:
            for source, target in _pairs(values[f"translation_en_{language}"])[:1]:
                annotations.append(_translation(language, source.strip(), target.strip(), WEB))
        if values["key"] in found:
            raise UserError(f"{path}: key '{values['key']}' is there twice")
        found[values["key"]] = [annotation for annotation in annotations if annotation.target]
    if skipped:
        raise UserError(f"{path}: {skipped.total()} rows hold text that is not UTF-8; an eval set has to be whole")
    return found


def _style(text: str, path: Path, key: str) -> Style:
    if text not in set(Style):
        raise UserError(f"{path}: key '{key}' has the caption style '{text}' (known: {', '.join(Style)})")
    return Style(text)


def _read_rows(path: Path, columns: list[str], skipped: Counter[str], is_right: Any) -> Iterator[dict[str, Any]]:
    with open_parquet(path, pa.schema([])) as file:
        schema = file.schema_arrow
    key_column = "__key__" if "__key__" in schema.names else "key"
    for name in [key_column, *columns]:
        if name not in schema.names:
            raise UserError(f"{path}: column '{name}' is missing (found: {', '.join(schema.names)})")
        kind = schema.field(name).type
        if not (_is_text(kind) if name == key_column else is_right(kind)):
            raise UserError(f"{path}: column '{name}' is of type {kind}, which is not that of the published files")
    for batch in read_batches(path, [key_column, *columns], 1024, pa.schema([])):
        for values in python_rows(batch, skipped):
            if not values[key_column]:
                skipped["annotation without key"] += 1
                continue
            yield {**values, "key": values[key_column]}


def _is_text(kind: pa.DataType) -> bool:
    return pa.types.is_string(kind) or pa.types.is_large_string(kind)


def _is_list(kind: pa.DataType) -> bool:
    return pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind)


def _is_pair(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.num_fields == 2 and all(_is_text(kind.field(place).type) for place in range(2))
    return _is_list(kind) and _is_text(kind.value_type)


def _is_list_of_pairs(kind: pa.DataType) -> bool:
    return _is_list(kind) and _is_pair(kind.value_type)


def _is_text_or_pair(kind: pa.DataType) -> bool:
    return _is_text(kind) or _is_pair(kind) or _is_list_of_pairs(kind)


def _pairs(value: Any) -> list[tuple[str, str]]:
    """One pair or a list of them, each a list of two or a struct of two (English first), as plain tuples."""
    if not value:
        return []
    items = [value] if isinstance(value, dict) or any(isinstance(item, str) for item in value) else value
    pairs = [tuple(item.values()) if isinstance(item, dict) else tuple(item) for item in items if item]
    return [(pair[0], pair[1]) for pair in pairs if len(pair) == 2 and pair[0] and pair[1]]


def _first_text(value: Any) -> str:
    """Of a text, a list of texts or a list of pairs."""
    while isinstance(value, list | dict):
        value = next(iter(value.values() if isinstance(value, dict) else value), None)
    return value.strip() if isinstance(value, str) else ""


def match_annotations(tars: list[Path], files: list[Path]) -> dict[str, Path]:
    """The Parquet file of each tar: the one whose name ends in the same number."""
    by_number: dict[int, Path] = {}
    for path in files:
        number = number_of(path)
        if number in by_number:
            raise UserError(f"{path.name} and {by_number[number].name} end in the same number; one Parquet per tar")
        if number is not None:
            by_number[number] = path
    matched = {tar.name: by_number[number] for tar in tars if (number := number_of(tar)) in by_number}
    if not matched:
        raise UserError(f"no annotation file ends in the number of a tar (e.g. {tars[0].name} and {files[0].name})")
    return matched


def number_of(path: Path) -> int | None:
    digits = re.findall(r"\d+", path.name.partition(".")[0])
    return int(digits[-1]) if digits else None
