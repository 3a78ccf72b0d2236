"""Captions of photographs as measures of a study: is the language right, and does a caption find its photograph?

captions/language/VARIANT     share of captions in the language that was asked for
captions/found/VARIANT        share whose own photograph is among the first ten of all (`metrics/retrieval`)
captions/found_first/VARIANT  share whose own photograph is the first
captions/found/chance         the same captions, with prefix where there are such, each judged as the next photograph's
"""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from babelcap.coverage import CAPTION, Coverage, Pair
from babelcap.evaluation.captions import caption_result
from babelcap.evaluation.metrics.sentence_space import NAME
from babelcap.evaluation.photographs import PhotographTexts, Places
from babelcap.identification import is_language
from babelcap.measures import CHANCE, EVAL, Variant, caption_measure
from babelcap.records import EvalResult

FOUND, FOUND_FIRST = "found", "found_first"
PLACES = {FOUND: 10, FOUND_FIRST: 1}
Captions = Mapping[str, Mapping[str, str]]  # language -> key -> caption without its prefix


class Judged(NamedTuple):
    """One caption, with what was found of it."""

    key: str
    language: str
    variant: Variant
    text: str
    right_language: bool
    place: int  # of its own photograph among all

    def line(self) -> str:
        """Of captions.jsonl."""
        score = {"right_language": self.right_language, "place": self.place}
        values = {"key": self.key, "language": self.language, "variant": self.variant, "text": self.text}
        return json.dumps(values | {"score": score, "split": EVAL}, ensure_ascii=False) + "\n"


def measure_photographs(
    captions: Mapping[Variant, Captions], texts: PhotographTexts, coverage: Coverage
) -> tuple[list[EvalResult], list[Judged]]:
    """`captions` are by variant, language and key, of all photographs that `texts` names."""
    places = Places(texts)
    results: list[EvalResult] = []
    judged: list[Judged] = []
    for variant, by_language in captions.items():
        found = {code: places.of([said[key] for key in texts.keys]) for code, said in by_language.items()}
        right = {code: _right(said, code, texts.keys) for code, said in by_language.items()}
        judged += [
            Judged(key, code, variant, said[key], bool(right[code][number]), int(found[code][number]))
            for code, said in by_language.items()
            for number, key in enumerate(texts.keys)
        ]
        results.append(_result("language", variant, coverage, {code: shares.mean() for code, shares in right.items()}))
        for name, limit in PLACES.items():
            rates = {code: float(np.mean(ranked <= limit)) for code, ranked in found.items()}
            results.append(_result(name, variant, coverage, rates))
    last = "prefix" if "prefix" in captions else next(iter(captions))
    for name, limit in PLACES.items():
        rates = {
            code: float(np.mean(places.of([said[key] for key in (*texts.keys[1:], texts.keys[0])]) <= limit))
            for code, said in captions[last].items()
        }
        results.append(_result(name, CHANCE, coverage, rates))
    num_samples = dict.fromkeys(results[0].per_pair, len(texts.keys))
    update = {"num_samples": num_samples, "signature": {"space": NAME}}
    return [result.model_copy(update=update) for result in results], judged


def _right(said: Mapping[str, str], code: str, keys: Sequence[str]) -> NDArray[np.float64]:
    return np.array([is_language(said[key], code) for key in keys], dtype=np.float64)


def _result(name: str, variant: str, coverage: Coverage, rates: Mapping[str, float]) -> EvalResult:
    per_pair = {str(Pair(CAPTION, code)): float(rate) for code, rate in rates.items()}
    return caption_result(caption_measure(name, variant), EVAL, coverage, per_pair)
