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
    which: int = 0  # of the things of this noun that the text speaks of

    def merged(self, other: "Claim") -> "Claim | None":
        """Both claims in one, where they speak of the same thing and do not contradict each other."""
        if (self.noun, self.which) != (other.noun, other.which):
            return None
        values = {}
        for name in ("colour", "size", "count"):
            mine, theirs = getattr(self, name), getattr(other, name)
            if mine is not None and theirs is not None and mine != theirs:
                return None
            values[name] = theirs if mine is None else mine
        return replace(self, **values)


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


def text_claims(sentences: Iterable[Sentence]) -> Claims:
    """The claims of several sentences: what is said of one thing in different sentences is put together."""
    things: list[Claim] = []
    places: set[tuple[str, str]] = set()
    relations: set[tuple[str, str, str]] = set()
    grounds: set[str] = set()
    for sentence in sentences:
        nouns = [mention.noun for mention in sentence.mentions]
        counted = sentence.kind not in DEFINITE_KINDS
        add_claims(
            things,
            [
                Claim(mention.noun, mention.colour, mention.size, mention.count if counted else None)
                for mention in sentence.mentions
            ],
        )
        if sentence.place and nouns:
            places.add((nouns[0], sentence.place))
        if sentence.relation:
            relations.add(canonical_relation(sentence.relation, nouns[0], nouns[1]))
        if sentence.ground:
            grounds.add(sentence.ground)
    return Claims(frozenset(things), frozenset(places), frozenset(relations), frozenset(grounds))


def add_claims(things: list[Claim], said: Iterable[Claim]) -> list[Claim]:
    """Adds one sentence to what is known of things, and gives its claims with the thing that each is of.

    A sentence names each of its things once: "two cubes above two cubes" speaks of two things. A later sentence speaks
    of the same ones again, of the first that it does not contradict, or else of the first that is left.
    """
    named: list[Claim] = []
    for claim in said:
        taken = {other.which for other in named if other.noun == claim.noun}
        known = {other.which for other in things if other.noun == claim.noun}
        free = sorted(known - taken) or [len(known | taken)]
        fits = [which for which in free if _fits(things, replace(claim, which=which))]
        named.append(replace(claim, which=(fits or free)[0]))
    for claim in named:
        _add_claim(things, claim)
    return named


def _fits(things: list[Claim], claim: Claim) -> bool:
    """Whether nothing that is known of its thing contradicts a claim."""
    known = [other for other in things if (other.noun, other.which) == (claim.noun, claim.which)]
    return all(other.merged(claim) is not None for other in known)


def _add_claim(things: list[Claim], claim: Claim) -> None:
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
