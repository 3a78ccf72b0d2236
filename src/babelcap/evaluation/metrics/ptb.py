"""Penn Treebank tokens as the COCO caption tools make them, without Java: `ptb_tokenise("It's 5€.") == "it 's 5 $"`.

Written from the behaviour of the tools' tokeniser (English rules, whatever the language): contractions are split,
brackets become -lrb-, slashes are escaped, all is in lower case, and the tools' list of punctuation is taken out.
Text is read from left to right; at each place the first rule below that fits makes the next token.
"""

import re
from collections.abc import Callable

SIGNATURE = "ptb-coco-without-java-1"  # change the number with every change of a rule

# The tools' own list, in upper case there: after lower-casing, "-lrb-" is not in it and stays.
PUNCTUATION = frozenset(["''", "'", "``", "`", ".", "?", "!", ",", ":", "-", "--", "...", ";"])

_LETTER = r"[^\W\d_¼-¾⅐-⅞]"  # of any script
_ALNUM = rf"{_LETTER}|[\d\u0300-\u036f\u00ad]"  # with digits, accents of their own, soft hyphens
_WORD = rf"(?:{_ALNUM})+"
_APOSTROPHE = "['\u2019\u0092]"

# Abbreviations keep their period. Those of the second list only with a capital: in small letters they are words.
_ABBREVIATIONS = "|".join(
    [
        "mr|mrs|ms|dr|prof|rev|hon|jr|sr|esq|ph\\.d|gov|sen|rep|pres",  # people
        "gen|col|maj|capt|lt|sgt|cpl|pvt|adm",
        "st|ste|ave|blvd|rd|mt|ft",  # places
        "ala|ariz|calif|colo|conn|fla|ga|ind|kan|ky|md|mich|minn|mo|mont|neb|nev|okla|penn|tenn|va|vt|wis|wyo",
        "co|corp|inc|ltd|bros|dept|univ|assn",  # firms and the like
        "jan|feb|mar|apr|jun|jul|aug|sep|sept|oct|nov|dec|mon|tue|tues|wed|thu|thurs|fri",
        "etc|vs|al|cf|est|tel|ext|sq",
    ]
)
_CAPITAL_ABBREVIATIONS = "Ark|Del|Ill|La|Mass|Miss|Ore|Pa|Tex|Wash"
_NUMBERED = "no|nos|fig|figs|pp|ca|art"  # abbreviations only before a number
# Words with an apostrophe of their own.
_APOSTROPHE_WORDS = (
    f"{_APOSTROPHE}(?:em|till?|cause|tis|twas)|ol{_APOSTROPHE}|c{_APOSTROPHE}mon|ma{_APOSTROPHE}am|li{_APOSTROPHE}l"
    f"|s{_APOSTROPHE}mores|nor{_APOSTROPHE}easter|hawai{_APOSTROPHE}i"
)
_PLAIN = "[A-Za-z0-9]+(?:-[A-Za-z]+)*"
_END = r"[^\s.,;:!?\"'()\[\]{}<>-]"  # what the end of an address looks like

_SPLIT_WORDS = {
    "cannot": 3,
    "gonna": 3,
    "gotta": 3,
    "wanna": 3,
    "lemme": 3,
    "gimme": 3,
    "'tis": 2,
    "'twas": 2,
}
_FRACTIONS = dict(
    zip(
        "¼½¾⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞",
        ["1/4", "1/2", "3/4", "1/3", "2/3", "1/5", "2/5", "3/5", "4/5", "1/6", "5/6", "1/8", "3/8", "5/8", "7/8"],
        strict=True,
    )
)
_BRACKETS = dict(zip("()[]{}", ["-lrb-", "-rrb-", "-lsb-", "-rsb-", "-lcb-", "-rcb-"], strict=True))
_SINGLE = {**_BRACKETS, "€": "$", "¤": "$", "\u0080": "$", "£": "#", "¢": "cents", "/": "\\/", "…": "..."}


def _escaped(text: str) -> str:
    """As in the treebank: a backslash before slashes and asterisks; a space inside a token does not divide it."""
    return re.sub(r"(?<!\\)([/*])", r"\\\1", text).replace(" ", "\u00a0")


def _bracketed(text: str) -> str:
    return "".join(_BRACKETS.get(letter, letter) for letter in text)


def _plain_quotes(text: str) -> str:
    return re.sub("[\u2019\u0092]", "'", re.sub("[\u2018\u0091\u201b]", "`", text))


def _unchanged(text: str) -> str:
    return text


def _joined(text: str) -> str:
    """A word without its soft hyphens."""
    return _plain_quotes(text.replace("\u00ad", ""))


# (pattern, what the token becomes); the order decides.
_RULES: tuple[tuple[str, Callable[[str], str]], ...] = (
    (rf"{_LETTER}+(?=,?(?:\s|\Z))", _unchanged),  # what most of a caption is, first because that is fast
    (r"</?[A-Za-z!?][^<>]*>", lambda text: text.replace(" ", "\u00a0")),
    (rf"https?://\S*{_END}|www\.\S*{_END}", _escaped),
    (r"[\w.+-]+@[\w-]+(?:\.[\w-]+)+", _unchanged),
    (rf"[\w-]+(?:\.[\w-]+)*\.(?:com|net|org|edu)\b(?:/\S*{_END})?", _escaped),
    (r"[@#][A-Za-z_]\w*", _unchanged),
    (r"&amp;", lambda text: "&"),
    (r"&(?:quot|apos);", lambda text: "'"),
    (r"[:;=]-?[()DP](?!\w)|<3(?!\w)", _bracketed),
    # Slashes join up to three words of plain letters: in blau/weißen the token ends before the ß.
    (rf"{_PLAIN}(?:/{_PLAIN}){{1,2}}", _escaped),
    (r"\d+[ \u00a0]\d+/\d+(?!\w)", _escaped),  # 2 1/2 is one token
    (rf"(?:\d+(?:[.,]\d+)+|(?:[A-Za-z]\.){{2,}})(?:-{_WORD})+", _joined),  # 3.5-inch, U.S.-based
    ("[" + "".join(_FRACTIONS) + "]", lambda text: _escaped(_FRACTIONS[text])),
    (rf"(?i:{_ABBREVIATIONS})\.(?!\w)|(?:{_CAPITAL_ABBREVIATIONS})\.(?!\w)", _unchanged),
    (rf"(?i:{_NUMBERED})\.(?=\s?\d)", _unchanged),
    # Acronyms; a single letter is an initial, but not where the text ends.
    (rf"{_LETTER}(?:\.{_LETTER})+\.(?!{_LETTER})|{_LETTER}\.(?![\w.])(?!\W*\Z)", _unchanged),
    (rf"[A-Z]+(?:(?:\+|&(?:amp;)?)[A-Z]+)+(?!{_LETTER})", lambda text: text.replace("&amp;", "&")),
    (r"[CcFf]#(?!\w)|[Cc]\+\+", _unchanged),
    (r"[A-Za-z]+(?:\*+[A-Za-z]+)+", _escaped),
    # The beginning of a contraction in n't, then that, then the other short forms, after anything.
    (rf"{_WORD}?(?=[nN][`\u2018\u2019\u0092'][tT](?!{_LETTER}))", _joined),
    (rf"[nN][`\u2018\u2019\u0092'][tT](?!{_LETTER})", _plain_quotes),
    (rf"{_APOSTROPHE}(?:[sSmMdD]|[rR][eE]|[vV][eE]|[lL][lL])(?!{_LETTER})", _plain_quotes),
    (rf"(?i:{_APOSTROPHE_WORDS})(?!{_LETTER})|{_APOSTROPHE}[nN](?:{_APOSTROPHE}|(?!{_LETTER}))", _plain_quotes),
    (rf"{_APOSTROPHE}\d0s(?!\w)|{_APOSTROPHE}\d\d(?!\w)", _plain_quotes),
    (rf"[dolDOL]{_APOSTROPHE}{_WORD}(?:-{_WORD})*", _joined),
    (rf"[jyJY]{_APOSTROPHE}(?={_LETTER})", _plain_quotes),
    (rf"{_WORD}(?:-{_WORD})+", _joined),
    # With a mark inside, a number ends where a letter begins (4:45 pm); without, it does not (84km, 1st).
    (rf"[-+]?\d*+(?:[.,:]\d++)++|[-+]?\d++(?!{_LETTER})", _unchanged),
    (r"[A-Z]*\$", _unchanged),
    (rf"{_LETTER}(?:{_ALNUM})*(?:[.!?]{_LETTER}(?:{_ALNUM})*)*(?:\.(?=[,;:]))?", _joined),
    (_WORD, _joined),
    (r"\.{3,5}", lambda text: "..."),
    (r"[?!]+", _unchanged),
    (r"-{2,4}(?!-)|[\u0096\u0097\u2012-\u2015]", lambda text: "--"),
    (r"-{5,}|_+", _unchanged),
    (r"\*+", _escaped),
    # Both kinds of quotes, all dropped later; the low German ones are not known to the tools and stay.
    (r"''|``|[\"'`\u2018\u2019\u201b\u201c\u201d\u0091-\u0094«»‹›]", lambda text: "'"),
    (r"\S", lambda text: _SINGLE.get(text, text)),
)  # fmt: skip

_SCANNER = re.compile("|".join(f"(?P<r{index}>{pattern})" for index, (pattern, _) in enumerate(_RULES)))
# What the tools' tokeniser deletes: emoji and all else beyond 16 bits, joiners, marks without width.
_DELETED = re.compile("[\U00010000-\U0010ffff]|[\u200b-\u200f\u2060\ufe00-\ufe0f\ufeff\ufffd]")


def ptb_tokens(text: str) -> list[str]:
    """The tokens of one caption, in lower case, without the tools' punctuation."""
    text = _DELETED.sub(lambda found: " " if ord(found[0]) > 0xFFFF else "", text)
    tokens: list[str] = []
    for found in _SCANNER.finditer(text):
        token = _RULES[int((found.lastgroup or "r0")[1:])][1](found[0]).lower()
        cut = _SPLIT_WORDS.get(token)
        tokens.extend([token] if cut is None else [token[:cut], token[cut:]])
    return [token for token in tokens if token and token not in PUNCTUATION]


def ptb_tokenise(text: str) -> str:
    """The tokens, joined by spaces: what the tools hand to their metrics."""
    return " ".join(ptb_tokens(text))
