"""What to say: sentences for a caption of a scene, and loose, web-like sentences about what a scene is like.

A caption is always true. A web sentence is true of a *loosened* scene, of which each attribute is the picture's with
the match probability p and drawn afresh otherwise; p = 1 fits exactly, p = 0 is unrelated to the picture.
"""

import random
from functools import cache

from babelcap.coverage import Style
from babelcap.world.grammar.english import English
from babelcap.world.grammar.web import WEB
from babelcap.world.meaning import Mention, Sentence, only_noun, without_colour
from babelcap.world.realise import required_slots
from babelcap.world.scenes import (
    COLOURS,
    GROUNDS,
    POSITIONS,
    RELATIONS,
    WHOLE,
    Scene,
    Scope,
    Thing,
    draw_size,
    holdout_pairs,
)

SHARE_WITHOUT_SIZE = 0.1  # captions that pass over the size
SHARE_COLOUR_IN_REFERENCE = 0.4  # "the red ball is ..." rather than "the ball is ..."
SHARE_COLOUR_APART = 0.3  # longer captions that give the colours in a sentence of their own


def mention(thing: Thing, with_size: bool = True) -> Mention:
    size = thing.size if with_size and thing.size != "medium" else None
    return Mention(thing.noun, thing.colour, size, thing.count)


def plan_caption(scene: Scene, style: Style, rng: random.Random) -> list[Sentence]:
    """One sentence for a short caption, two for a detailed one, three or four for a more detailed one."""
    things = tuple(mention(thing, rng.random() >= SHARE_WITHOUT_SIZE) for thing in scene.things)
    if style is Style.SHORT:
        kinds: tuple[str, ...] = ("placed", "placed_ground", "list_ground")
        if len(things) == 2:
            kinds = ("related", "related_ground", "sides", "list_ground")
        return [_sentence(rng.choice(kinds), things, scene, rng)]
    colours_apart = rng.random() < SHARE_COLOUR_APART
    opened = tuple(map(without_colour, things)) if colours_apart else things
    colours = _sentence("colour" if len(things) == 1 else "colours", things, scene, rng)
    where = _where(things, scene, rng, may_colour=not colours_apart)
    ground = _sentence("ground", (), scene, rng)
    if style is Style.DETAILED:
        if colours_apart:
            kind = "list_ground" if rng.random() < 0.5 else "placed" if len(things) == 1 else "related"
            return [_sentence(kind, opened, scene, rng), colours]
        if rng.random() < 0.3:
            return [_sentence("placed" if len(things) == 1 else "related", things, scene, rng), ground]
        return [_sentence(rng.choice(("list", "list_ground")), opened, scene, rng), where]
    middle = [where, colours] if colours_apart else [where]
    rng.shuffle(middle)
    return [_sentence("list", opened, scene, rng), *middle, ground]


def _where(things: tuple[Mention, ...], scene: Scene, rng: random.Random, may_colour: bool) -> Sentence:
    referred = tuple(
        Mention(item.noun, item.colour, None, item.count)
        if may_colour and rng.random() < SHARE_COLOUR_IN_REFERENCE
        else only_noun(item)
        for item in things
    )
    kind = "is_placed" if len(things) == 1 else rng.choice(("is_related", "is_related", "are_at_sides"))
    return _sentence(kind, referred, scene, rng)


def _sentence(kind: str, mentions: tuple[Mention, ...], scene: Scene, rng: random.Random) -> Sentence:
    needed = required_slots(kind)
    return Sentence(
        kind,
        mentions,
        relation=scene.relation if "relation" in needed else None,
        place=scene.position if "place" in needed else None,
        ground=scene.ground if "ground" in needed else None,
        variant=rng.random(),
    )


def loosen(
    scene: Scene, match_probability: float, rng: random.Random, scope: Scope = WHOLE, *, avoid_held_out: bool = True
) -> Scene:
    """The scene with each attribute kept with the given probability and drawn from all values otherwise."""

    def kept() -> bool:
        return rng.random() < match_probability

    things: list[Thing] = []
    for thing in scene.things:
        taken = {other.noun for other in things}
        noun = thing.noun if kept() and thing.noun not in taken else _other(rng, scope.nouns, taken)
        colour = thing.colour if kept() else rng.choice(COLOURS)
        size = thing.size if kept() else draw_size(rng)
        count = thing.count if kept() else scope.draw_count(rng)
        while avoid_held_out and (noun, colour) in holdout_pairs():
            colour = rng.choice(COLOURS)
        things.append(Thing(noun=noun, colour=colour, size=size, count=count))
    position, relation = scene.position, scene.relation
    if position is not None and not kept():
        position = rng.choice(POSITIONS)
    if relation is not None and not kept():
        relation = rng.choice(RELATIONS)
    ground = scene.ground if kept() else rng.choice(GROUNDS)
    return Scene(things=tuple(things), position=position, relation=relation, ground=ground)


def _other(rng: random.Random, values: tuple[str, ...], taken: set[str]) -> str:
    return rng.choice([value for value in values if value not in taken])


def fit(scene: Scene, other: Scene) -> float:
    """The share of attributes on which two scenes of equally many things agree."""
    pairs: list[tuple[object, object]] = [(scene.ground, other.ground), (scene.places, other.places)]
    for one, two in zip(scene.things, other.things, strict=True):
        pairs += [(one.noun, two.noun), (one.colour, two.colour), (one.size, two.size), (one.count, two.count)]
    return sum(left == right for left, right in pairs) / len(pairs)


@cache
def web_kinds(num_things: int) -> tuple[str, ...]:
    """Kinds of web sentences that a scene of so many things can fill."""
    return tuple(kind for kind in WEB if num_things == 2 or "b" not in required_slots(kind))


def plan_web(scene: Scene, rng: random.Random) -> Sentence:
    """A web-like sentence that is true of the scene."""
    kind = rng.choice(web_kinds(len(scene.things)))
    needed = required_slots(kind)
    mentions = [mention(thing) for thing in scene.things]
    places = list(scene.places)
    if "b" not in needed and len(mentions) == 2:
        chosen = rng.randrange(2)
        mentions, places = [mentions[chosen]], [places[chosen]]
    rows = English.tables
    extra = tuple((name, rng.choice(list(rows[name]))) for name in ("who", "day", "where", "price") if name in needed)
    return Sentence(
        kind,
        tuple(mentions),
        relation=scene.relation if "relation" in needed else None,
        place=places[0] if "place" in needed else None,
        ground=scene.ground if "ground" in needed else None,
        extra=extra,
        variant=rng.random(),
    )
