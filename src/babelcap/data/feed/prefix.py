"""Whether a language's decoder prefix can start captions: alone, and in the vocabulary of a tokenizer."""

import re
from typing import TYPE_CHECKING, NamedTuple

from babelcap.data.feed.text import UNSPACED_SCRIPTS, continuation, encode_prefix
from babelcap.languages import Language

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

PROBES = ("a", "2", "дом", "一")  # what may follow: letters of several scripts and a number
# Masculine participles and adjectives of Slavic languages: изображен goes on as изображена, изображено, ...
AGREEING = re.compile(r"(ен|ён|ан|ян|ий|ый)$", re.IGNORECASE)


class PrefixCheck(NamedTuple):
    num_tokens: int
    faults: tuple[str, ...]  # with these it cannot be used
    warnings: tuple[str, ...]


def prefix_warnings(language: Language) -> tuple[str, ...]:
    """What can be said without a tokenizer. A caption is the prefix, a space where the script has one, and the rest."""
    found = []
    if language.prefix != language.prefix.strip():
        found.append("the prefix begins or ends with a space; what joins it with the caption is added where it is used")
    if language.script not in UNSPACED_SCRIPTS and not language.prefix.rstrip()[-1:].isalnum():
        found.append("the prefix does not end with a word; captions after it may not read as whole sentences")
    if language.script == "Cyrl" and AGREEING.search(language.prefix.rstrip()):
        found.append(
            "the prefix ends in a form that agrees with what follows, so that captions of another gender or number "
            "have to add an ending; choose words that stay the same, such as an active verb"
        )
    return tuple(found)


def check_prefix(language: Language, tokenizer: "PreTrainedTokenizerBase") -> PrefixCheck:
    ids = encode_prefix(tokenizer, language.prefix)[1:]
    faults = []
    if tokenizer.unk_token_id is not None and tokenizer.unk_token_id in ids:
        faults.append("the tokenizer has no tokens for some of its characters")
    elif (back := tokenizer.decode(ids, skip_special_tokens=True)) != language.prefix:
        faults.append(f"the tokenizer gives it back as '{back}'")
    warnings = list(prefix_warnings(language))
    joined = [language.prefix + continuation(language, probe) for probe in PROBES]
    if not any(tokenizer(text, add_special_tokens=False)["input_ids"][: len(ids)] == ids for text in joined):
        warnings.append("its tokens do not begin the tokens of a caption that starts with it; training text has others")
    return PrefixCheck(len(ids), tuple(faults), tuple(warnings))
