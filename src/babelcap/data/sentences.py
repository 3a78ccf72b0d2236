"""Splitting a text into sentences by rule, and joining sentences, in the scripts that babelcap knows.

A sentence ends at . ! ? or … that is followed by a space and the start of another, unless what stands before is an
abbreviation, an initial or (German) an ordinal; in Chinese it ends at 。！？ with nothing needed after.
"""

import re

# Never the end of a sentence, whatever follows.
ABBREVIATIONS = re.compile(
    r"mr|mrs|ms|dr|prof|st|mt|vs|gen|col|lt|sgt|capt|rev|hon|approx|e\.g|i\.e|cf"
    r"|z\.b|d\.h|u\.a|o\.ä|u\.ä|v\.l\.n\.r|bzw|vgl|ca|hr|inkl|evtl|ggf|bspw|sog"
)
# Not the end of a sentence when a number follows.
BEFORE_NUMBER = re.compile(
    r"no|nr|fig|abb|vol|bd|pp?|jan|feb|mar|mär|apr|jun|jul|aug|sept?|o[ck]t|nov|de[cz]|est|tel|max|min"
)
CLOSING = "\"'”’»)]›“"
OPENING = "\"'“„«‚‘(["
# A run of marks is looked at once, from its start: a text of dots alone takes no longer than another.
LATIN_END = re.compile(rf"(?<![.!?…])[.!?…]++[{re.escape(CLOSING)}]*+(?=\s\S)")
NEXT_START = re.compile(rf"\s*[{re.escape(OPENING)}¿¡]*(.?)")
CHINESE_END = re.compile(r"[。！？…]+[”’」』）》]*")


def split_sentences(text: str, language: str) -> list[str]:
    """The sentences of a text, stripped; a text without any mark is one sentence."""
    text = " ".join(text.split())
    pattern = CHINESE_END if language == "zh" else LATIN_END
    sentences, start = [], 0
    for match in pattern.finditer(text):
        if language == "zh" or _is_end(text, start, match, language):
            sentences.append(text[start : match.end()].strip())
            start = match.end()
    sentences.append(text[start:].strip())
    return [sentence for sentence in sentences if sentence]


def join_sentences(sentences: list[str], language: str) -> str:
    """Chinese is written without spaces between sentences."""
    return ("" if language == "zh" else " ").join(sentences)


def _is_end(text: str, start: int, match: re.Match[str], language: str) -> bool:
    found = NEXT_START.match(text, match.end())
    following = found[1] if found else ""
    if following.islower():
        return False
    if match.group()[0] != "." or match.group().startswith(".."):
        return True
    word = text[max(start, text.rfind(" ", start, match.start()) + 1) : match.start()].lstrip(OPENING).lower()
    if ABBREVIATIONS.fullmatch(word) or (len(word) == 1 and word.isalpha()):  # an initial: J. Smith
        return False
    if BEFORE_NUMBER.fullmatch(word) and following.isdigit():
        return False
    return not (language == "de" and word.isdigit() and len(word) <= 2)  # an ordinal: 3. Mai
