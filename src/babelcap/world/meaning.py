"""What a text says, in no language: mentions, sentences of a kind, and the claims that follow from them.

Grammars turn a `Sentence` into words, the strict parser turns words into `Sentence`s, and both agree on `Claims`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from babelcap.world.scenes import INVERSE, SIDES


@dataclass(frozen=True)
class Mention:
    """A thing as it is spoken of: colour and size only where they are said. `count` also sets singular or plural."""

    noun: str
    colour: str | None = None
    size: str | None = None  # small | big
    count: int = 1

    @property
    def plural(self) -> bool:
        return self.count > 1


@dataclass(frozen=True)
class Sentence:
    """A kind of sentence (a row of the template tables) and what fills its slots."""

    kind: str
    mentions: tuple[Mention, ...] = ()
    relation: str | None = None  # mentions[0] RELATION mentions[1]
    place: str | None = None
    ground: str | None = None
    extra: tuple[tuple[str, str], ...] = ()  # slot -> row of a small table: who, day, where, price
    variant: float = field(default=0.0, compare=False)  # in [0, 1): picks the paraphrase, in each language for itself


@dataclass(frozen=True)
class Claim:
    """What is said of one thing; None where nothing is said."""

    noun: str
    colour: str | None = None
    size: str | None = None
    count: int | None = None

    def merged(self, other: "Claim") -> "Claim | None":
        """Both claims in one, where they speak of the same noun and do not contradict each other."""
        values = {}
        for name in ("noun", "colour", "size", "count"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is not None and theirs is not None and mine != theirs:
                return None
            values[name] = theirs if mine is None else mine
        return Claim(**values)


@dataclass(frozen=True)
class Claims:
    things: frozenset[Claim] = frozenset()
    places: frozenset[tuple[str, str]] = frozenset()  # (noun, position)
    relations: frozenset[tuple[str, str, str]] = frozenset()  # (left_of | above, noun, noun)
    grounds: frozenset[str] = frozenset()


def canonical_relation(relation: str, first: str, second: str) -> tuple[str, str, str]:
    """Right of and below are left of and above, read from the other side."""
    if relation in ("right_of", "below"):
        return (INVERSE[relation], second, first)
    return (relation, first, second)


# Kinds whose noun phrases are definite: they refer back and do not count.
DEFINITE_KINDS = frozenset({
    "is_placed", "is_related", "are_at_sides", "colour", "colours", "web_my_where", "web_bring_my", "web_without_my",
    "web_costs_less", "web_why_related", "web_is_it_placed",
})  # fmt: skip


def sentence_claims(sentence: Sentence) -> Claims:
    counted = sentence.kind not in DEFINITE_KINDS
    things = frozenset(
        Claim(mention.noun, mention.colour, mention.size, mention.count if counted else None)
        for mention in sentence.mentions
    )
    places = frozenset([(sentence.mentions[0].noun, sentence.place)] if sentence.place and sentence.mentions else [])
    relations = frozenset(
        [canonical_relation(sentence.relation, sentence.mentions[0].noun, sentence.mentions[1].noun)]
        if sentence.relation
        else []
    )
    return Claims(things, places, relations, frozenset([sentence.ground] if sentence.ground else []))


def text_claims(sentences: Iterable[Sentence]) -> Claims:
    """The claims of several sentences: what is said of one noun in different sentences is put together."""
    things: list[Claim] = []
    places: frozenset[tuple[str, str]] = frozenset()
    relations: frozenset[tuple[str, str, str]] = frozenset()
    grounds: frozenset[str] = frozenset()
    for sentence in sentences:
        claims = sentence_claims(sentence)
        for claim in sorted(claims.things, key=str):
            add_claim(things, claim)
        places |= claims.places
        relations |= claims.relations
        grounds |= claims.grounds
    return Claims(frozenset(things), places, relations, grounds)


def add_claim(things: list[Claim], claim: Claim) -> None:
    for index, known in enumerate(things):
        merged = known.merged(claim)
        if merged is not None:
            things[index] = merged
            return
    things.append(claim)


def side_of(relation: str, which: int) -> str:
    return SIDES[relation][which]


def without_colour(mention: Mention) -> Mention:
    return replace(mention, colour=None)


def only_noun(mention: Mention) -> Mention:
    return replace(mention, colour=None, size=None)
