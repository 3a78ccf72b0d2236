"""Captions into the caption languages, sentence by sentence, both sides kept as lists: nothing is guessed back later.

A short caption may carry its picture's description as context, "caption ### (description)", which is cut from the
result. A result that is empty, a copy, of unlike length, in the wrong language or cut off is made once more without
context, and dropped with its reason where that does not help.
"""

import importlib
import json
import re
from collections import Counter
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import Field

from babelcap.config import ConfigModel, build_config, resource
from babelcap.errors import UserError
from babelcap.generate.backends.translators import DecodeOptions, Translator
from babelcap.generate.clean import CHARACTERS_AN_ENGLISH_ONE
from babelcap.generate.models import hub_version
from babelcap.generate.schemas import TRANSLATION
from babelcap.identification import may_be
from babelcap.jobs.receipts import ShardOutput
from babelcap.languages import Language
from babelcap.storage import parquet_errors

BACKENDS = {
    "ctranslate2": "babelcap.generate.backends.translators:CTranslate2Translator",
    "transformers": "babelcap.generate.backends.translators:TransformersTranslator",
    "world": "babelcap.generate.backends.world:WorldTranslator",
}
ARGUMENTS = {
    "ctranslate2": ("model", "device", "compute_type", "converted"),
    "transformers": ("model", "device", "dtype"),
    "world": ("error_share", "seed"),
}
PUBLISHED_YIELD = {"de": 12_927_044 / 19_431_960}  # German captions for each English one
CONTEXT = " ### ({description})"
CONTEXT_CUT = re.compile(r"[(（#＃]")
FINAL = {"zh": "。", "ja": "。"}
FINAL_MARKS = ".!?…。！？"
CLOSING = "\"'”’»)]」』）"


class TranslateConfig(ConfigModel):
    backend: str = "ctranslate2"
    model: str = "facebook/nllb-200-3.3B"
    licence: str = "CC-BY-NC-4.0"  # of the model's output, as annotations will say
    batch_size: int = Field(32, ge=1)
    num_beams: int = Field(4, ge=1)
    length_penalty: float = Field(1.0, ge=0)
    max_tokens: int = Field(256, ge=1)
    short_length_penalty: float = Field(0.9, ge=0)  # of captions with context
    short_max_tokens: int = Field(64, ge=1)
    with_context: bool = False  # where captions come with a description
    max_length_ratio: float = Field(3.0, gt=1)
    error_share: float = Field(0.0, ge=0, le=1)  # of the world's backend
    seed: int = 0
    dtype: str = "float32"
    compute_type: str = "default"  # of CTranslate2, whose results it changes
    device: str = resource("cpu")
    converted: str | None = resource(None)  # folder for CTranslate2's forms of models; None: with the work


def with_context(caption: str, description: str) -> str:
    return f"{caption}{CONTEXT.format(description=description.strip())}"


def cut_context(text: str) -> str | None:
    """What stands before the context; None where nothing was there to cut, or nothing is left."""
    match = CONTEXT_CUT.search(text)
    if match is None:
        return None
    return text[: match.start()].strip() or None


def repair_end(text: str, language: str) -> str:
    """A final mark where there is none. What ends in one, or in one within quotes, stays: never "。。" or "？。"."""
    text = text.strip()
    bare = text.rstrip(CLOSING)
    if not bare or bare[-1] in FINAL_MARKS:
        return text
    return f"{text.rstrip(',;:，；：、')}{FINAL.get(language, '.')}"


def reason_to_drop(source: str, result: str, language: str, max_length_ratio: float) -> str | None:
    if not result.strip():
        return "empty translation"
    if result.strip().casefold() == source.strip().casefold():
        return "copy of the source"
    expected = len(source) * CHARACTERS_AN_ENGLISH_ONE.get(language, 1.0)
    if not 1 / max_length_ratio <= (len(result) + 3) / (expected + 3) <= max_length_ratio:
        return "length ratio"
    if not may_be(result, language):
        return "wrong language"
    return None


class Job:
    """Sentences of a shard into one language, in fixed batches."""

    def __init__(self, translator: Translator, language: Language, config: TranslateConfig) -> None:
        self.translator, self.language, self.config = translator, language, config

    def translate(self, sources: Sequence[str], descriptions: Sequence[str | None]) -> list[tuple[str, str | None]]:
        """(text, reason to drop it) of each."""
        plain, short = self._options()
        results: dict[int, tuple[str, str | None]] = {}
        helped = [place for place, description in enumerate(descriptions) if description and self.config.with_context]
        asked = [with_context(sources[place], str(descriptions[place])) for place in helped]
        for place, text in zip(helped, self._in_batches(asked, short), strict=True):
            cut = cut_context(text)
            judged = ("", "context not found") if cut is None else self._judged(sources[place], cut)
            if judged[1] is None:
                results[place] = judged
        rest = [place for place in range(len(sources)) if place not in results]
        for place, text in zip(rest, self._in_batches([sources[place] for place in rest], plain), strict=True):
            results[place] = self._judged(sources[place], text)
        return [results[place] for place in range(len(sources))]

    def _judged(self, source: str, text: str) -> tuple[str, str | None]:
        reason = reason_to_drop(source, text, self.language.code, self.config.max_length_ratio)
        return repair_end(text, self.language.code), reason

    def _options(self) -> tuple[DecodeOptions, DecodeOptions]:
        config = self.config
        plain = DecodeOptions(
            num_beams=config.num_beams, length_penalty=config.length_penalty, max_tokens=config.max_tokens
        )
        changes = {"length_penalty": config.short_length_penalty, "max_tokens": config.short_max_tokens}
        return plain, plain.model_copy(update=changes)

    def _in_batches(self, texts: Sequence[str], options: DecodeOptions) -> list[str]:
        size = self.config.batch_size
        return [
            result
            for start in range(0, len(texts), size)
            for result in self.translator.translate(texts[start : start + size], self.language, options)
        ]


@lru_cache(maxsize=1)
def _load(backend: str, settings: str) -> Translator:
    module, _, name = BACKENDS[backend].partition(":")
    translator: Translator = getattr(importlib.import_module(module), name)(**json.loads(settings))
    return translator


def load_translator(config: TranslateConfig) -> Translator:
    """Once a process for each model."""
    if config.backend not in BACKENDS:
        raise UserError(f"translate.backend: '{config.backend}' is unknown; known: {', '.join(BACKENDS)}")
    chosen = {name: getattr(config, name) for name in ARGUMENTS[config.backend]}
    return _load(config.backend, json.dumps(chosen, sort_keys=True))


def translate_shard(inputs: dict[str, Path], settings: dict[str, Any]) -> ShardOutput:
    """Counts (caption, language) pairs: a caption that loses one language keeps the others, and its English."""
    fields = {name: value for name, value in settings.items() if name in TranslateConfig.model_fields}
    config = build_config(TranslateConfig, fields, "translate")
    languages = [Language.model_validate(row) for row in settings["languages"]]
    with parquet_errors(inputs["captions"]):
        table = pq.read_table(inputs["captions"])
    if "keys" in settings:  # some of its captions only
        table = table.filter(pc.is_in(table["key"], pa.array(settings["keys"], pa.string())))
    sentences: list[list[str]] = table["sentences"].to_pylist()
    known = table["description"].to_pylist() if "description" in table.column_names else [None] * len(sentences)
    columns = [table["key"].combine_chunks(), table["sentences"].combine_chunks()]
    drops: Counter[str] = Counter()
    by_language: dict[str, tuple[int, int]] = {}  # captions in, translations out
    for language in languages:
        flat = [sentence for row in sentences for sentence in row]
        context = [description if len(row) == 1 else None
                   for row, description in zip(sentences, known, strict=True) for _ in row]  # fmt: skip
        results = iter(Job(load_translator(config), language, config).translate(flat, context))
        rows: list[list[str] | None] = []
        for row in sentences:
            made = [next(results) for _ in row]
            reasons = [reason for _, reason in made if reason is not None]
            drops.update(reasons[:1])
            rows.append(None if reasons else [text for text, _ in made])
        columns.append(pa.array(rows, pa.list_(pa.string())))
        by_language[language.code] = (len(rows), sum(row is not None for row in rows))
    schema = pa.schema([*TRANSLATION, *(pa.field(entry.code, pa.list_(pa.string())) for entry in languages)])
    num_in = len(sentences) * len(languages)
    return ShardOutput(
        pa.table(columns, schema=schema),
        num_in,
        sum(num_out for _, num_out in by_language.values()),
        dict(drops),
        models=hub_version("translator", config.model) if languages and config.backend != "world" else {},
        device=config.device,
        extra={"licence": config.licence, "by_language": by_language},
    )
