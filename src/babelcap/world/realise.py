"""From meaning to text in any of the six languages: picks the paraphrase and lets the language's grammar fill it."""

from collections.abc import Sequence
from functools import cache

from babelcap.errors import UserError
from babelcap.world.grammar.caption_rules import CAPTIONS, OPENINGS
from babelcap.world.grammar.chinese import Chinese
from babelcap.world.grammar.engine import Grammar, Slot, parse_template
from babelcap.world.grammar.english import English
from babelcap.world.grammar.french import French
from babelcap.world.grammar.german import German
from babelcap.world.grammar.russian import Russian
from babelcap.world.grammar.spanish import Spanish
from babelcap.world.grammar.web import WEB
from babelcap.world.meaning import Sentence

GRAMMARS: dict[str, Grammar] = {
    grammar.code: grammar for grammar in (English(), German(), French(), Spanish(), Russian(), Chinese())
}
LANGUAGE_CODES = tuple(GRAMMARS)
# Half of the captions begin with the prefix: a share of them has to, for it to be a natural way to begin.
SHARE_WITH_PREFIX = 0.5


def grammar_of(language: str) -> Grammar:
    if language not in GRAMMARS:
        raise UserError(f"the world speaks {', '.join(GRAMMARS)}; it has no grammar for '{language}'")
    return GRAMMARS[language]


def templates(kind: str, language: str) -> list[str]:
    return [WEB[kind][language]] if kind in WEB else CAPTIONS[kind][language]


@cache
def required_slots(kind: str) -> frozenset[str]:
    """What a kind of sentence speaks of, by slot: a, b, relation, place, ground, who, day, where, price."""
    names: set[str] = set()
    for language in GRAMMARS:
        for template in templates(kind, language):
            slots = [piece for piece in parse_template(template) if isinstance(piece, Slot)]
            names |= {slot.name for slot in slots}
            names |= {"relation" for slot in slots if slot.features & {"rel", "inv"} or slot.name == "side_a"}
    if "things" in names:
        names.add("a")
    renamed = {"spot": "ground", "scenery": "ground", "every": "day"}
    return frozenset(renamed.get(name, name) for name in names) - {"things", "side_a", "side_b"}


def choose_template(sentence: Sentence, language: str) -> str:
    choices = templates(sentence.kind, language)
    if sentence.kind in OPENINGS:
        if sentence.variant < SHARE_WITH_PREFIX:
            return choices[0]
        rest = (sentence.variant - SHARE_WITH_PREFIX) / (1 - SHARE_WITH_PREFIX)
        return choices[1 + int(rest * (len(choices) - 1))]
    return choices[int(sentence.variant * len(choices))]


def realise_sentence(sentence: Sentence, language: str) -> str:
    return grammar_of(language).realise(choose_template(sentence, language), sentence)


def realise(sentences: Sequence[Sentence], language: str) -> str:
    space = "" if language == "zh" else " "
    return space.join(realise_sentence(sentence, language) for sentence in sentences)
