"""Penn Treebank tokens as the COCO caption tools make them, without Java: `ptb_tokenise("It's 5€.") == "it 's 5 $"`.

Written from the behaviour of the tools' tokeniser (English rules, whatever the language): contractions are split,
brackets become -lrb-, all is in lower case, and the tools' list of punctuation is taken out. Text is read from left
to right; at each place the first rule below that fits makes the next token.
"""

import re
from collections.abc import Callable

from babelcap.evaluation.metrics.ptb_words import (
    ABBREVIATIONS,
    CAPITAL_ABBREVIATIONS,
    ENDING_ABBREVIATIONS,
    NUMBERED,
    SENTENCE_OPENERS,
    UNKNOWN,
    WORD_SIGNS,
)

SIGNATURE = "ptb-coco-without-java-2"  # change the number with every change of a rule

# The tools' own list, in upper case there: after lower-casing, "-lrb-" is not in it and stays.
PUNCTUATION = frozenset(["''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"])

_BARE_LETTER = r"[^\W\d_¼-¾²³¹⁰-₉⅐-⅞①-⒛⓪-⓿❶-➓]"  # of any script
_LETTER = rf"(?:{_BARE_LETTER}|[{WORD_SIGNS}])"
_ALNUM = rf"(?:{_LETTER}|[\d\u0300-\u036f\u00ad])"  # with digits, accents of their own, soft hyphens
_WORD = rf"{_ALNUM}+(?:_{_ALNUM}+)*"
_HYPHEN = "[-\u2010\u2011\u058a]"
_APOSTROPHE = "['\u2018\u2019\u0092]"
_PLAIN = "[A-Za-z0-9]+(?:-[A-Za-z]+)*"
_ACRONYM = r"[A-Za-z](?:\.[A-Za-z])+\."
_SHORT_FORM = rf"(?:[sSmMdD]|[rR][eE]|[vV][eE]|[lL][lL])(?!{_LETTER})"  # 's, 'm, 'd, 're, 've, 'll
_VOWEL = "[aeiouAEIOU]"

_SPLIT_WORDS = {"cannot": 3, "gonna": 3, "gotta": 3, "wanna": 3, "lemme": 3, "gimme": 3}
_FRACTIONS = {"¼": "1/4", "½": "1/2", "¾": "3/4", "⅓": "1/3", "⅔": "2/3"}
_BRACKETS = dict(zip("()[]{}", ["-lrb-", "-rrb-", "-lsb-", "-rsb-", "-lcb-", "-rcb-"], strict=True))
_MONEY = {"€": "$", "¤": "$", "\u20a0": "$", "\u0080": "$", "£": "#", "¢": "cents"}
_SINGLE = {**_BRACKETS, **_MONEY, **_FRACTIONS, "…": "...", "\u2010": "-", "\u2011": "-", "\u058a": "-"}
_ENTITIES = {"&amp;": "&", "&lt;": "<", "&gt;": ">", "&quot;": "'", "&apos;": "'", "&nbsp;": "", "&mdash;": "--"}
_CURLY = {
    **dict.fromkeys("\u201c\u0093«", "``"),
    **dict.fromkeys("\u201d\u0094»", "''"),
    **dict.fromkeys("\u2018\u201b\u0091‹", "`"),
    **dict.fromkeys("\u2019\u0092›", "'"),
}
_CURLY_SIGNS = "".join(_CURLY) + "„‚"


def _unchanged(text: str) -> str:
    return text


def _joined(text: str) -> str:
    """A word without its soft hyphens."""
    return text.replace("\u00ad", "")


def _unbroken(text: str) -> str:
    """A space inside a token does not divide it."""
    return text.replace(" ", "\u00a0")


def _bracketed(text: str) -> str:
    """A smile: round brackets are written as everywhere, square ones are not."""
    return text.replace("(", "-lrb-").replace(")", "-rrb-")


def _plain_quotes(text: str) -> str:
    return re.sub("[\u2019\u0092]", "'", text.replace("\u2018", "`"))


def _written_out(text: str) -> str:
    return "".join(_CURLY.get(sign, sign) for sign in text)


# (pattern, what the token becomes); the order decides.
_RULES: tuple[tuple[str, Callable[[str], str]], ...] = (
    (rf"{_BARE_LETTER}+(?=,?(?:\s|\Z))", _unchanged),  # what most of a caption is, first because that is fast
    (r"</?[A-Za-z!?][^<>]*>", _unbroken),
    (r"(?i:https?)://[^\s\"<>()|]+?\.[^\s\"<>()|]*[^\s\"<>()|.,!?-]", _unchanged),
    (r"www\.(?:[^\s\"<>()|.,!?/]+\.)+[A-Za-z]{2,4}(?:/[^\s\"<>()|]*[^\s\"<>()|.,!?-])?(?!\w)", _unchanged),
    (r"(?:mailto:)?[A-Za-z0-9][\w.+-]*@[A-Za-z0-9][\w-]*(?:\.[\w-]+)*[,;:!?]?", _unchanged),
    (r"[A-Za-z]\w*(?:\.\w+)*\.(?:com|net|org|edu)(?![\w-]|\.\w)(?:/[^\s\"<>()|]*[^\s\"<>()|.,!?-])?", _unchanged),
    (rf"@[A-Za-z_][A-Za-z0-9_]*|#{_LETTER}+|@{{2,}}|#{{2,}}", _unchanged),
    (rf"(?i:{'|'.join(_ENTITIES)})", lambda text: _ENTITIES[text.lower()]),
    (r"&#\d+;", _unchanged),
    (r">?[:;=]['o-]?[()DPpdO|\\@\[\]](?!\w)|[\^>=-]_[\^<=-]", _bracketed),
    # Slashes join up to three words of plain letters: in blau/weißen the token ends before the ß.
    (rf"{_PLAIN}(?:/{_PLAIN}){{1,2}}", _unchanged),
    (r"\d+[ \u00a0]\d+/\d+(?!\w)", _unbroken),  # 2 1/2 is one token
    # 3.5-inch, U.S.-based, non-U.S.
    (rf"\d+(?:[.,]\d+)+(?:-[A-Za-z0-9]+)+|(?:[A-Za-z]+-)+{_ACRONYM}(?:-[A-Za-z0-9]+)*", _unchanged),
    (rf"(?:{_ACRONYM}|[A-Za-z0-9]+\.)(?:-[A-Za-z0-9]+)+", _unchanged),
    (rf"(?i:{ENDING_ABBREVIATIONS})\.|(?i:{ABBREVIATIONS})\.(?!{_LETTER})", _unchanged),
    (rf"(?:{CAPITAL_ABBREVIATIONS})\.|(?i:{NUMBERED})\.(?=\s?\d)", _unchanged),
    # Acronyms; a single letter is an initial, but not where a sentence ends: before a word that opens one, or nothing.
    (rf"{_ACRONYM}(?!{_LETTER})", _unchanged),
    (rf"[A-Za-z]\.(?!{_LETTER})(?!\s*\Z|\s+(?:{SENTENCE_OPENERS})\s)", _unchanged),
    (r"[A-Z]+(?:(?:\+|&(?:amp;)?)[A-Z]+)+", lambda text: text.replace("&amp;", "&")),
    (r"[CcFf]#|[Cc]\+\+", _unchanged),
    # The beginning of a contraction in n't, then that, then the other short forms, after anything.
    (r"[A-Za-z]+?(?=[nN][`\u2018\u2019\u0092'][tT])", _unchanged),
    (rf"[nN][`\u2018\u2019\u0092'][tT](?!{_LETTER})", _plain_quotes),
    (rf"['\u2019\u0092]{_SHORT_FORM}", _plain_quotes),
    # Words with an apostrophe of their own, as it is written.
    (r"'[tT](?=(?i:is|was))", _unchanged),
    (r"(?i:['\u2019](?:em|till?|cause)|dunkin['\u2019]|ol['\u2019]|li['\u2019]l|s'mores|nor'easter|c'mon)", _unchanged),
    (rf"\u2019[nN]\u2019?|'[nN](?:'|(?!{_LETTER}))", _unchanged),
    (r"['\u2019]\d0s(?!\w)|['\u2019]\d\d(?=\s|\Z)", _unchanged),
    # D'Angelo, O'Neil, l'homme, and with a capital any other: but not Y'all and I'm.
    (rf"[dolDOL]{_APOSTROPHE}(?!{_SHORT_FORM}){_LETTER}{_ALNUM}+(?:{_HYPHEN}{_WORD})*", _joined),
    (rf"[nA-HJ-XZ]{_APOSTROPHE}(?!{_SHORT_FORM}){_LETTER}{_ALNUM}+|(?i:c['\u2019]est)", _joined),
    (rf"[dljDLJ]{_APOSTROPHE}(?!{_SHORT_FORM})|[yY]{_APOSTROPHE}(?!{_SHORT_FORM})(?={_LETTER})", _unchanged),
    (rf"{_LETTER}+{_VOWEL}{_APOSTROPHE}{_VOWEL}{_LETTER}*", _joined),  # Xi'an, qu'il
    (rf"{_WORD}(?:{_HYPHEN}{_WORD})*{_HYPHEN}[dolDOL]{_APOSTROPHE}{_LETTER}{_ALNUM}+", _joined),  # chef-d'œuvre
    (rf"{_WORD}(?:{_HYPHEN}{_WORD})+", _joined),
    # With a mark inside, a number ends where a letter begins (4:45 pm); without, it does not (84km, 1st).
    (rf"[-+]?\d*+(?:[.,:]\d++)++|[-+]?\d++(?!{_LETTER}|_|\.,)", _unchanged),
    (r"[A-Z]*\$", _unchanged),
    (rf"{_LETTER}{_ALNUM}*(?:[.!?]{_LETTER}{_ALNUM}*)+(?:\.(?=[,;:]))?", _joined),
    (rf"{_WORD}(?:\.(?=[,;:]))?", _joined),
    (r"\.{3,5}", lambda text: "..."),
    (r"[?!]+|<{2,}|>{2,}", _unchanged),
    (r"-{2,4}(?!-)|[\u0096\u0097\u2012-\u2015]", lambda text: "--"),
    (r"-{5,}|_+|\*+", _unchanged),
    # Curly quotes that follow each other stay together, and are no punctuation of the tools' list then. Low German
    # ones are not known to the tools and stay.
    (rf"[{_CURLY_SIGNS}]+", _written_out),
    (r"''|``|[\"'`]", lambda text: "'"),
    (r"\S", lambda text: _SINGLE.get(text, text)),
)  # fmt: skip

_SCANNER = re.compile("|".join(f"(?P<r{index}>{pattern})" for index, (pattern, _) in enumerate(_RULES)))
_UNKNOWN = re.compile(f"[{UNKNOWN}]")


def ptb_tokens(text: str) -> list[str]:
    """The tokens of one caption, in lower case, without the tools' punctuation."""
    text = _UNKNOWN.sub(" ", text)
    tokens: list[str] = []
    for found in _SCANNER.finditer(text):
        token = _RULES[int((found.lastgroup or "r0")[1:])][1](found[0]).lower()
        cut = _SPLIT_WORDS.get(token)
        is_whole = cut is None or text[found.end() : found.end() + 1] in ("'", "\u2019")
        tokens.extend([token] if is_whole else [token[:cut], token[cut:]])
    return [token for token in tokens if token and token not in PUNCTUATION]


def ptb_tokenise(text: str) -> str:
    """The tokens, joined by spaces: what the tools hand to their metrics."""
    return " ".join(ptb_tokens(text))
