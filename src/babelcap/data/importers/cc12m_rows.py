"""Conceptual 12M with the published captions and translations: its files, and the preparation that training expects.

Per image: captions in English and German (first sentence: short; whole: detailed with two sentences, more detailed with
three or more), their translation into each other, the sentence pairs aligned to the image, and paragraphs made of them.
"""

import hashlib
import random
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from babelcap.coverage import CAPTION, TRANSLATION, Style
from babelcap.data.importers.assemble import file_state, image_members
from babelcap.data.importers.published_columns import (
    first_text,
    is_list_of_pairs,
    is_text_or_pair,
    pairs_of,
    read_rows,
)
from babelcap.data.sentences import join_sentences, split_sentences
from babelcap.data.store.format import MAX_TEXT_CHARACTERS, ImageRow
from babelcap.data.store.tar import TarScan
from babelcap.errors import UserError
from babelcap.measures import EVAL, TRAIN
from babelcap.records import Annotation

IMAGES_REPOSITORY = "pixparse/cc12m-wds"
ANNOTATIONS_REPOSITORY = "spravil/cc12m_ccmatrix_captions_and_translations"
MIN_CHARACTERS = 26  # of the English side; pairs with 25 or fewer are dropped
ENGLISH_COLUMN = "caption_en"
EVAL_CAPTIONS = ("en", "de", "es", "zh")
EVAL_TRANSLATIONS = ("es", "zh")
CAPTIONER, TRANSLATOR, WEB = "llava-next", "nllb-3.3b", "ccmatrix"
Columns = dict[str, list[Any]]  # column -> its pairs, scores or texts


@dataclass(frozen=True)
class Layout:
    """Which columns the annotation files of tars have, and who made their texts."""

    captions: tuple[str, ...] = ("de",)  # languages of `caption_en_xx`
    translations: tuple[str, ...] = ("de", "fr", "es", "ru", "zh")  # of `translation_en_xx`
    captioner: str = CAPTIONER
    translator: str = TRANSLATOR
    texts: Mapping[str, str] = field(default_factory=dict)  # language -> whose parallel text; else CCMatrix'
    with_english: bool = False  # whether `caption_en` holds the English captions, translated or not
    with_sentences: bool = False  # whether `sentences_xx` holds the captions' sentences, which are guessed where not
    with_scores: bool = False  # whether `score_en_xx` holds a score of each of `translation_en_xx`

    @property
    def pair_columns(self) -> list[str]:
        captions = [f"caption_en_{language}" for language in self.captions]
        return captions + [f"translation_en_{language}" for language in self.translations]

    @property
    def plain_columns(self) -> list[str]:
        scores = [f"score_en_{language}" for language in self.translations] if self.with_scores else []
        sentences = [f"sentences_{language}" for language in ("en", *self.captions)] if self.with_sentences else []
        return scores + sentences + ([ENGLISH_COLUMN] if self.with_english else [])


PUBLISHED = Layout()


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
    key: str, values: Columns, seed: int, skipped: Counter[str], layout: Layout = PUBLISHED
) -> list[Annotation]:
    """The published preparation of one image's pairs; the same for any order of images and number of processes."""
    annotations: list[Annotation] = []
    if layout.with_english:
        for english in values[ENGLISH_COLUMN]:
            if len(english) >= MIN_CHARACTERS:
                annotations += prepare_captions(english, sentences_of(english, "en", values), "en", layout.captioner)
    for language in layout.captions:
        column, origin = f"caption_en_{language}", layout.translator
        for english, other, _ in _long_enough(values[column][:1], [], skipped):
            sides = sentences_of(english, "en", values), sentences_of(other, language, values)
            if not annotations:
                annotations += prepare_captions(english, sides[0], "en", layout.captioner)
            annotations += prepare_captions(other, sides[1], language, origin)
            annotations.append(_translation(language, english, other, origin))
            if len(sides[0]) == len(sides[1]):  # else nothing says which sentence is whose translation
                pairs = list(zip(*sides, strict=True))
                annotations += prepare_paragraph(pairs, language, origin, (seed, key, column))
    for language in layout.translations:
        column, origin = f"translation_en_{language}", layout.texts.get(language, WEB)
        scored = _long_enough(values[column], values.get(f"score_en_{language}", []), skipped)
        annotations += [_translation(language, english, other, origin, score) for english, other, score in scored]
        pairs = [(english, other) for english, other, _ in scored]
        annotations += prepare_paragraph(pairs, language, origin, (seed, key, column))
    return annotations


def sentences_of(text: str, language: str, values: Columns) -> list[str]:
    """As they came; guessed where the file does not tell them, as the published ones don't."""
    return values.get(f"sentences_{language}") or split_sentences(text, language)


def prepare_captions(text: str, sentences: list[str], language: str, origin: str) -> list[Annotation]:
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


def _translation(language: str, source: str, target: str, origin: str, score: float | None = None) -> Annotation:
    return Annotation(task=TRANSLATION, language=language, source=source, target=target, origin=origin, score=score)


def _long_enough(
    pairs: list[tuple[str, str]], scores: list[float], skipped: Counter[str]
) -> list[tuple[str, str, float | None]]:
    kept: list[tuple[str, str, float | None]] = []
    for place, (english, other) in enumerate(pairs):
        english, other = english.strip(), other.strip()
        if max(len(english), len(other)) > MAX_TEXT_CHARACTERS:
            skipped["text is too long"] += 1
        elif len(english) < MIN_CHARACTERS:
            skipped["English side of 25 characters or fewer"] += 1
        elif not other:
            skipped["empty text"] += 1
        else:
            kept.append((english, other, scores[place] if scores else None))
    return kept


def read_training_file(path: Path, skipped: Counter[str], layout: Layout = PUBLISHED) -> Iterator[tuple[str, Columns]]:
    """key and, per column, its (English, other) pairs. A row whose text is not UTF-8 is skipped and counted."""
    pairs, plain = layout.pair_columns, layout.plain_columns
    for values in read_rows(path, pairs, skipped, is_list_of_pairs, plain):
        yield values["key"], {name: pairs_of(values[name]) for name in pairs} | {name: values[name] for name in plain}


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
    for values in read_rows(path, columns, skipped, is_text_or_pair):
        annotations = []
        for language in EVAL_CAPTIONS:
            target = first_text(values[f"caption_{language}"])
            if target:
                style = _style(first_text(values[f"caption_{language}_style"]), path, values["key"])
                origin = CAPTIONER if language == "en" else TRANSLATOR
                annotations.append(
                    Annotation(task=CAPTION, language=language, style=style, target=target, origin=origin)
                )
        for language in EVAL_TRANSLATIONS:
            for source, target in pairs_of(values[f"translation_en_{language}"])[:1]:
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
