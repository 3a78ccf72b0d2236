"""What can be drawn and said: things with colour, size and count, where they are, and on what ground.

A scene holds one thing with a position, or two things of different nouns in a relation:
things[0] RELATION things[1].
"""

import random
from functools import cache
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

NOUNS = (
    "ball", "cube", "star", "tree", "house", "car", "fish", "bird", "cat", "boat", "flower", "cup", "key", "hat",
    "heart", "leaf", "book", "chair", "bell", "apple", "mushroom", "umbrella", "bottle", "lamp", "table", "butterfly",
    "crown",
)  # fmt: skip
COLOURS = ("red", "blue", "green", "yellow", "orange", "purple", "pink", "brown", "black", "white")
SIZES = ("small", "medium", "big")  # medium is never said
SIZE_WEIGHTS = (0.3, 0.4, 0.3)
COUNTS = (1, 2, 3)
COUNT_WEIGHTS = (0.6, 0.25, 0.15)
POSITIONS = ("left", "right", "top", "bottom", "centre")
RELATIONS = ("left_of", "right_of", "above", "below")
GROUNDS = ("grass", "sand", "snow", "water", "night", "wall")
INVERSE = {"left_of": "right_of", "right_of": "left_of", "above": "below", "below": "above"}
# Where the two things of a relation are.
SIDES = {
    "left_of": ("left", "right"),
    "right_of": ("right", "left"),
    "above": ("top", "bottom"),
    "below": ("bottom", "top"),
}
OPPOSITE = {"left": "right", "right": "left", "top": "bottom", "bottom": "top"}
SHARE_SINGLE = 0.35


class Scope(BaseModel):
    """How much of the world is drawn and said: the first so many nouns, and up to so many things of a kind."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    num_nouns: int = Field(len(NOUNS), ge=3, le=len(NOUNS))  # a scene has two, and a loosened one may need another
    max_count: int = Field(max(COUNTS), ge=1, le=max(COUNTS))

    @property
    def nouns(self) -> tuple[str, ...]:
        return NOUNS[: self.num_nouns]

    def draw_count(self, rng: random.Random) -> int:
        return rng.choices(COUNTS[: self.max_count], COUNT_WEIGHTS[: self.max_count])[0]


WHOLE = Scope()


class Thing(BaseModel):
    """One or more alike objects."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    noun: str
    colour: str
    size: str = "medium"
    count: int = 1


class Scene(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    things: tuple[Thing, ...]
    position: str | None = None  # of a single thing
    relation: str | None = None  # of two things
    ground: str

    @property
    def places(self) -> tuple[str, ...]:
        """The position of each thing."""
        if self.relation is not None:
            return SIDES[self.relation]
        return (self.position or "centre",)


@cache
def holdout_pairs() -> frozenset[tuple[str, str]]:
    """One colour of every noun, the same in every corpus, that training neither draws nor says.

    Steps of 3 through the colours spread the pairs evenly: every noun and every colour stays common in training.
    """
    return frozenset((noun, COLOURS[(3 * index + 1) % len(COLOURS)]) for index, noun in enumerate(NOUNS))


def generator(seed: int, purpose: str, index: int = 0) -> random.Random:
    """Everything random in the world comes from (seed, purpose, index), so that nothing depends on order."""
    return random.Random(f"{seed}/{purpose}/{index}")


def draw_size(rng: random.Random) -> str:
    return rng.choices(SIZES, SIZE_WEIGHTS)[0]


def draw_noun_and_colour(
    rng: random.Random, scope: Scope, held_out: bool | None, without: frozenset[str]
) -> tuple[str, str]:
    """`held_out` True: only pairs of the hold-out; False: none of them; None: all."""
    while True:
        noun, colour = rng.choice(scope.nouns), rng.choice(COLOURS)
        if noun not in without and (held_out is None or ((noun, colour) in holdout_pairs()) is held_out):
            return noun, colour


def draw_scene(rng: random.Random, scope: Scope = WHOLE, *, held_out: bool | None = False) -> Scene:
    """A scene; with `held_out` True each thing has a noun and colour never drawn together in training."""
    things: list[Thing] = []
    for _ in range(1 if rng.random() < SHARE_SINGLE else 2):
        noun, colour = draw_noun_and_colour(rng, scope, held_out, frozenset(thing.noun for thing in things))
        things.append(Thing(noun=noun, colour=colour, size=draw_size(rng), count=scope.draw_count(rng)))
    where: dict[str, Any] = (
        {"position": rng.choice(POSITIONS)} if len(things) == 1 else {"relation": rng.choice(RELATIONS)}
    )
    return Scene(things=tuple(things), ground=rng.choice(GROUNDS), **where)
