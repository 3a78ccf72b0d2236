"""XM3600's CIDEr by the conventions that published numbers follow: the same captions differ by several points.

stanza     the paper's: NFKC, lower case, no punctuation, Stanza's words ("zum" gives "zu dem"); raw references
ptb-raw    PaliGemma's: the English Penn Treebank tokeniser on raw captions of every language
spacy      Centurio's: spaCy's words of zh, ja and th outputs, NFC, Penn Treebank tokens; the dataset's own references
tokenized  the dataset's own references in lower case; outputs divided at punctuation, zh, ja and th at every sign
divided    references divided in that way too: for captions that nobody has tokenised, as the world's
"""

import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import NamedTuple

from babelcap.errors import UserError
from babelcap.evaluation.benchmarks.xm3600 import RAW, TOKENISED
from babelcap.evaluation.metrics.coco import cider_of_tokens
from babelcap.evaluation.metrics.inputs import check_items
from babelcap.evaluation.metrics.optional import need
from babelcap.evaluation.metrics.ptb import SIGNATURE, ptb_tokenise
from babelcap.evaluation.metrics.score import Score

WITHOUT_SPACES = ("ja", "th", "zh")

Tokenise = Callable[[str], str]


class Convention(NamedTuple):
    """The functions take the language."""

    field: str  # of XM3600 that the references are read from
    references: Callable[[str], Tokenise]
    hypotheses: Callable[[str], Tokenise]
    tokeniser: Callable[[str], str]  # its name in the signature
    normalisation: str


def convention_cider(
    references: Mapping[str, Sequence[str]], hypotheses: Mapping[str, str], language: str, name: str = "stanza"
) -> Score:
    """CIDEr-D (1 is what papers print as 100); the references are of the convention's field."""
    if name not in CONVENTIONS:
        raise UserError(f"unknown convention '{name}' (known: {', '.join(CONVENTIONS)})")
    check_items(references, hypotheses)
    convention = CONVENTIONS[name]
    wanted, found = convention.references(language), convention.hypotheses(language)
    return cider_of_tokens(
        {key: [wanted(text) for text in texts] for key, texts in references.items()},
        {key: found(text) for key, text in hypotheses.items()},
        {
            "convention": name,
            "lang": language,
            "references": convention.field,
            "tok": convention.tokeniser(language),
            "norm": convention.normalisation,
        },
    )


def plain_text(text: str) -> str:
    """NFKC, lower case, without punctuation."""
    lower = unicodedata.normalize("NFKC", text).lower()
    return "".join(letter for letter in lower if not unicodedata.category(letter).startswith("P"))


def divided_text(text: str, language: str) -> str:
    """Words and marks in lower case; where words are not divided by spaces, signs."""
    pattern = r"\w|[^\w\s]" if language in WITHOUT_SPACES else r"\w+|[^\w\s]"
    return " ".join(re.findall(pattern, text.lower()))


@cache
def _stanza(language: str) -> Tokenise:
    stanza = need("stanza", "CIDEr by Stanza's words", "stanza>=1.10")
    code = {"zh": "zh-hans", "no": "nb"}.get(language, language)
    try:
        pipeline = stanza.Pipeline(
            code, processors="tokenize,mwt", package="default", download_method=None, verbose=False, use_gpu=False
        )
    except Exception as error:
        raise UserError(
            f"CIDEr by Stanza's words: no Stanza model of '{code}' here ({_line(error)}); "
            f"python -c \"import stanza; stanza.download('{code}')\""
        ) from None

    def tokenise(text: str) -> str:
        plain = plain_text(text).strip()
        sentences = pipeline(plain).sentences if plain else []
        return " ".join(word.text for sentence in sentences for word in sentence.words)

    return tokenise


@cache
def _spacy(language: str) -> Tokenise:
    if language not in WITHOUT_SPACES:
        return _nfc_ptb(language)
    spacy = need("spacy", "CIDEr by spaCy's words", "spacy>=3.7")
    try:
        tokeniser = spacy.blank(language)
    except Exception as error:
        raise UserError(f"CIDEr by spaCy's words: '{language}' cannot be divided here ({_line(error)})") from None
    return lambda text: ptb_tokenise(unicodedata.normalize("NFC", " ".join(token.text for token in tokeniser(text))))


def _line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]


def _nfc_ptb(language: str) -> Tokenise:
    return lambda text: ptb_tokenise(unicodedata.normalize("NFC", text))


def _raw_ptb(language: str) -> Tokenise:
    return ptb_tokenise


def _stanza_name(language: str) -> str:
    return f"stanza-{need('stanza', 'CIDEr by Stanza', 'stanza>=1.10').__version__}-words"


def _spacy_name(language: str) -> str:
    if language not in WITHOUT_SPACES:
        return SIGNATURE
    return f"spacy-{need('spacy', 'CIDEr by spaCy', 'spacy>=3.7').__version__}+{SIGNATURE}"


def _divided(language: str) -> Tokenise:
    return partial(divided_text, language=language)


def _divided_name(language: str) -> str:
    return "signs" if language in WITHOUT_SPACES else "words"


CONVENTIONS = {
    "stanza": Convention(RAW, _stanza, _stanza, _stanza_name, "NFKC-lower-no-punctuation"),
    "ptb-raw": Convention(RAW, _raw_ptb, _raw_ptb, lambda language: SIGNATURE, "none"),
    "spacy": Convention(TOKENISED, _nfc_ptb, _spacy, _spacy_name, "NFC"),
    "tokenized": Convention(
        TOKENISED,
        lambda language: str.lower,
        _divided,
        _divided_name,
        "lower",
    ),
    "divided": Convention(RAW, _divided, _divided, _divided_name, "lower"),
}
