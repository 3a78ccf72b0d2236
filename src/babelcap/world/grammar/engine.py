"""From a sentence's meaning to words: templates with slots, filled by a language's own rules.

{a} {b:def.dat} {things:acc}   a noun phrase of the first or second mention, or all of them joined; features after ":"
{a?ist|sind}                   agreement: singular|plural, or masculine|feminine|neuter|plural
{a:colour}                     the colour as a predicate
{b:rel} {a:inv}                "to the left of the house": the relation with the other thing, or its inverse
{place} {side_a} {ground} ...  a row of the language's small tables
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cache
from typing import ClassVar, NamedTuple

from babelcap.world.meaning import Mention, Sentence, only_noun
from babelcap.world.scenes import INVERSE, SIDES

SLOT = re.compile(r"\{(\w+)(?::([\w.]+))?(?:\?([^}]*))?\}")
Features = frozenset[str]


class Slot(NamedTuple):
    name: str  # a | b | things, or a table's name
    features: Features
    options: tuple[str, ...]  # of an agreement; empty otherwise


@cache
def parse_template(template: str) -> tuple[str | Slot, ...]:
    """Literal texts and slots, in order."""
    pieces: list[str | Slot] = []
    end = 0
    for match in SLOT.finditer(template):
        if match.start() > end:
            pieces.append(template[end : match.start()])
        name, features, options = match.groups()
        choices = () if options is None else tuple(options.split("|"))
        pieces.append(Slot(name, frozenset((features or "").split(".")) - {""}, choices))
        end = match.end()
    if end < len(template):
        pieces.append(template[end:])
    return tuple(pieces)


class Grammar(ABC):
    """One language. `tables` maps a slot's name to its rows; `phrase` is the language's noun phrase."""

    code: ClassVar[str]
    tables: ClassVar[dict[str, dict[str, str]]]
    conjunction: ClassVar[str]

    @abstractmethod
    def phrase(self, mention: Mention, features: Features) -> str:
        """A noun phrase. Features: def | my (indefinite else), a case, and what the language adds."""

    @abstractmethod
    def predicate_colour(self, mention: Mention) -> str: ...

    @abstractmethod
    def related(self, relation: str, mention: Mention, features: Features) -> str:
        """Where something is that stands in `relation` to the mention."""

    def agree(self, mentions: Sequence[Mention], options: Sequence[str]) -> str:
        if len(options) != 2:
            raise ValueError(f"{self.code}: agreement needs singular|plural, found {'|'.join(options)}")
        return options[len(mentions) > 1 or mentions[0].plural]

    def join(self, phrases: Sequence[str]) -> str:
        return self.conjunction.join(phrases)

    def fill(self, slot: Slot, sentence: Sentence) -> str:
        if slot.name in ("a", "b", "things"):
            return self._fill_mention(slot, sentence)
        return self.tables[_table(slot.name)][_row(slot.name, sentence)]

    def _fill_mention(self, slot: Slot, sentence: Sentence) -> str:
        chosen = sentence.mentions if slot.name == "things" else (sentence.mentions["ab".index(slot.name)],)
        if slot.options:
            return self.agree(chosen, slot.options)
        if "colour" in slot.features:
            return self.predicate_colour(chosen[0])
        if slot.features & {"rel", "inv"}:
            assert sentence.relation is not None
            relation = sentence.relation if "rel" in slot.features else INVERSE[sentence.relation]
            features = slot.features - {"rel", "inv"} | ({"def"} if "indef" not in slot.features else set())
            return self.related(relation, chosen[0], features - {"indef"})
        if "plain" in slot.features:
            chosen = tuple(map(only_noun, chosen))
        return self.join([self.phrase(mention, slot.features - {"plain"}) for mention in chosen])

    def realise(self, template: str, sentence: Sentence) -> str:
        words = "".join(
            piece if isinstance(piece, str) else self.fill(piece, sentence) for piece in parse_template(template)
        )
        return capitalised(words)


def _table(name: str) -> str:
    return "place" if name in ("side_a", "side_b") else name


def _row(name: str, sentence: Sentence) -> str:
    if name in ("side_a", "side_b"):
        assert sentence.relation is not None
        return SIDES[sentence.relation][name == "side_b"]
    if name in ("place", "ground"):
        value = getattr(sentence, name)
    elif name in ("spot", "scenery"):
        value = sentence.ground
    else:
        value = dict(sentence.extra)["day" if name == "every" else name]
    assert value is not None
    return str(value)


def capitalised(text: str) -> str:
    """The first letter made large, also after an opening mark."""
    for index, letter in enumerate(text):
        if letter.isalpha():
            return text[:index] + letter.upper() + text[index + 1 :]
    return text
