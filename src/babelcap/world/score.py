"""How true a caption is of its scene: language, objects, colours on the right objects, counts, sizes, places, ground.

A rate is a ratio of sums over captions, so that a caption of many objects weighs more than one of few; over nothing it
is not a number. `chance_rates` is what a captioner reaches that speaks the language and sees nothing. `mark_caption`
says which words of a caption are wrong.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from babelcap.coverage import Style
from babelcap.records import Record
from babelcap.world.inverse import parse_strict
from babelcap.world.meaning import Claim, Claims, add_claims, canonical_relation, text_claims
from babelcap.world.message import plan_caption
from babelcap.world.parser import Said, guess_language, parse_text, read_text
from babelcap.world.scenes import OPPOSITE, Scene, Thing, generator

ATTRIBUTES = ("colour", "size", "count")
BLIND_DIRECTION = 0.5  # of a statement and its opposite, one of which is true


class CaptionScore(Record):
    """Counts of one caption.

    Objects are matched one to one with those of the scene: of "a ball and a ball" one is right where there is a ball,
    the other is invented. `*_stated` are said of objects whose noun is in the scene; `*_right` of these are true, and
    said of the object that is there.
    """

    language: str | None = None  # as guessed from the words
    right_language: bool = False
    well_formed: bool = False  # every sentence is one of the language's grammar, to the letter
    num_objects: int  # in the scene
    num_objects_right: int  # of these, named in the caption
    num_objects_invented: int  # named, and not in the scene
    num_colours_stated: int
    num_colours_right: int
    num_sizes_stated: int
    num_sizes_right: int
    num_counts_stated: int
    num_counts_right: int
    num_places_stated: int  # relations and positions
    num_places_right: int
    num_directions_stated: int = 0  # of the places stated, those that are true or the opposite of what is true
    num_directions_right: int = 0
    num_grounds_stated: int
    num_grounds_right: int


def score_caption(text: str, language: str, scene: Scene, *, prefix: str = "") -> CaptionScore:
    """The content is read in the language that was asked for: a caption in another one has none.

    `text` is the whole caption. A `prefix` that the model was given, not what it said, is no evidence of its language.
    """
    guessed = guess_language(text.removeprefix(prefix))
    score = score_claims(parse_text(text, language) if guessed == language else Claims(), scene)
    return score.model_copy(
        update={
            "language": guessed,
            "right_language": guessed == language,
            "well_formed": parse_strict(text, language) is not None,
        }
    )


def score_claims(claims: Claims, scene: Scene) -> CaptionScore:
    things = {thing.noun: thing for thing in scene.things}
    named = {(claim.noun, claim.which) for claim in claims.things}
    present = _present(claims.things, things)
    attributes: dict[str, list[bool]] = {name: [] for name in ATTRIBUTES}
    for claim in claims.things:
        if claim.noun in things:
            for name, is_true in _attributes(claim, things[claim.noun]).items():
                attributes[name].append(is_true and present[claim.noun] == claim.which)
    where = [claim for claim in (*claims.places, *claims.relations) if _is_judged(claim, scene)]
    places = [_is_where(claim, scene) for claim in where]
    directions = [_is_where(claim, scene) for claim in where if any(_is_where(c, scene) for c in _both_ways(claim))]
    grounds = [ground == scene.ground for ground in claims.grounds]
    return CaptionScore(
        num_objects=len(things),
        num_objects_right=len(present),
        num_objects_invented=len(named) - len(present),
        num_colours_stated=len(attributes["colour"]),
        num_colours_right=_colours_right(claims, things, present),
        num_sizes_stated=len(attributes["size"]),
        num_sizes_right=sum(attributes["size"]),
        num_counts_stated=len(attributes["count"]),
        num_counts_right=sum(attributes["count"]),
        num_places_stated=len(places),
        num_places_right=sum(places),
        num_directions_stated=len(directions),
        num_directions_right=sum(directions),
        num_grounds_stated=len(grounds),
        num_grounds_right=sum(grounds),
    )


def _present(claims: Iterable[Claim], things: Mapping[str, Thing]) -> dict[str, int]:
    """noun -> which of the things of this noun that are named is the one in the scene: the one that most is true of."""
    true: dict[str, Counter[int]] = {}
    for claim in claims:
        if claim.noun in things:
            true.setdefault(claim.noun, Counter())[claim.which] += sum(_attributes(claim, things[claim.noun]).values())
    return {noun: max(sorted(found), key=found.__getitem__) for noun, found in true.items()}


def _attributes(claim: Claim, thing: Thing) -> dict[str, bool]:
    """Of what is said of a thing, whether it is true."""
    stated = {name: getattr(claim, name) for name in ATTRIBUTES}
    return {name: value == getattr(thing, name) for name, value in stated.items() if value is not None}


def _colours_right(claims: Claims, things: Mapping[str, Thing], present: Mapping[str, int]) -> int:
    """Objects that are given their colour and no other: naming every colour of one object earns nothing."""
    right = 0
    for noun, which in present.items():
        colours = {(claim.colour, claim.which) for claim in claims.things if claim.noun == noun and claim.colour}
        is_only_one = {colour for colour, _ in colours} == {things[noun].colour}
        right += is_only_one and (things[noun].colour, which) in colours
    return right


def _is_judged(claim: tuple[str, ...], scene: Scene) -> bool:
    """Whether a relation or position speaks of things that are there."""
    nouns = {thing.noun for thing in scene.things}
    return set(claim[1:] if len(claim) == 3 else claim[:1]) <= nouns


def _is_where(claim: tuple[str, ...], scene: Scene) -> bool:
    """Whether a relation (left_of | above, noun, noun) or a position (noun, position) is true."""
    if len(claim) == 3:
        nouns = [thing.noun for thing in scene.things]
        return scene.relation is not None and claim == canonical_relation(scene.relation, nouns[0], nouns[1])
    return claim in {(thing.noun, where) for thing, where in zip(scene.things, scene.places, strict=True)}


def _both_ways(claim: tuple[str, ...]) -> list[tuple[str, ...]]:
    """A relation or position and its opposite; the centre has none and is not a direction."""
    if len(claim) == 3:
        return [claim, (claim[0], claim[2], claim[1])]
    return [claim, (claim[0], OPPOSITE[claim[1]])] if claim[1] in OPPOSITE else []


class Mark(NamedTuple):
    """Characters of a caption that are wrong, and what they are wrong about."""

    start: int
    end: int
    what: str  # object | colour | size | count | relation (or position) | ground


def mark_caption(text: str, language: str, scene: Scene) -> tuple[Mark, ...]:
    """The words of a whole caption, its prefix included, that are not true of the scene, in order.

    Of a thing that is not there the noun is marked and nothing else that is said of it. A count is a number word or an
    article; where one is not said (Russian), the noun whose form says it. A caption in another language has no marks.
    """
    if guess_language(text) != language:
        return ()
    things = {thing.noun: thing for thing in scene.things}
    marks: set[Mark] = set()
    readings = read_text(text, language)
    known: list[Claim] = []
    named = [add_claims(known, [said.claim for said in reading.nouns]) for reading in readings]
    present = _present(known, things)
    for reading, claims in zip(readings, named, strict=True):
        for said, claim in zip(reading.nouns, claims, strict=True):
            is_there = present.get(claim.noun) == claim.which
            marks |= _marks_of_thing(said, things[claim.noun] if is_there else None)
        for where in reading.where:
            if _is_judged(where.claim, scene) and not _is_where(where.claim, scene):
                marks |= {Mark(word.start, word.end, "relation") for word in where.words}
        marks |= {Mark(word.start, word.end, "ground") for word in reading.grounds if word.value != scene.ground}
    return tuple(sorted(marks))


def _marks_of_thing(said: Said, thing: Thing | None) -> set[Mark]:
    if thing is None:
        return {Mark(said.noun.start, said.noun.end, "object")}
    told = {"colour": said.colour, "size": said.size, "count": said.count}
    return {
        Mark(word.start, word.end, what)
        for what, word in told.items()
        if word is not None and word.value != str(getattr(thing, what))
    }


def is_right(score: CaptionScore) -> bool:
    """Right language, a sentence of its grammar, a thing that is there is named, and nothing that is said is wrong."""
    kinds = ("colours", "sizes", "counts", "places", "grounds")
    wrong = [getattr(score, f"num_{kind}_stated") - getattr(score, f"num_{kind}_right") for kind in kinds]
    is_sentence = score.right_language and score.well_formed
    return is_sentence and score.num_objects_right > 0 and not score.num_objects_invented and not any(wrong)


def rates(scores: Iterable[CaptionScore]) -> dict[str, float]:
    """Shares over many captions; NaN where there is nothing to take a share of.

    `objects`: of the objects, those named; `invented`: of the objects named, those that are not there; `colours`: of
    the colours stated of named objects, the right ones, and `sizes`, `counts`, `places`, `grounds` alike;
    `directions`: of the places stated that are true or the opposite of what is true, the true ones;
    `objects_with_colour`: of the objects, those named with the right colour.
    """
    scores = list(scores)

    def total(name: str) -> int:
        return sum(getattr(score, name) for score in scores)

    def share(part: str, whole: int) -> float:
        return total(part) / whole if whole else math.nan

    num_named = total("num_objects_right") + total("num_objects_invented")
    return {
        "right_language": share("right_language", len(scores)),
        "well_formed": share("well_formed", len(scores)),
        "objects": share("num_objects_right", total("num_objects")),
        "invented": share("num_objects_invented", num_named),
        "colours": share("num_colours_right", total("num_colours_stated")),
        "objects_with_colour": share("num_colours_right", total("num_objects")),
        "sizes": share("num_sizes_right", total("num_sizes_stated")),
        "counts": share("num_counts_right", total("num_counts_stated")),
        "places": share("num_places_right", total("num_places_stated")),
        "directions": share("num_directions_right", total("num_directions_stated")),
        "grounds": share("num_grounds_right", total("num_grounds_stated")),
    }


def chance_rates(
    scenes: Sequence[Scene], known: Sequence[Scene], num_captions: int = 4000, seed: int = 0
) -> dict[str, float]:
    """The rates that true short captions of `known` scenes, as training has them, reach on others.

    Rates of language do not apply and are left out. An attribute is only compared where the noun happens to be right,
    which is rare: hence the many captions. Where things are is asked of a captioner that names them, so its chance is
    `blind_places`, and of a direction one half.
    """
    scores = []
    for index in range(num_captions):
        rng = generator(seed, "chance", index)
        scene, other = rng.choice(scenes), rng.choice(known)
        scores.append(score_claims(text_claims(plan_caption(other, Style.SHORT, rng)), scene))
    found = rates(scores) | {"places": blind_places(scenes, known), "directions": BLIND_DIRECTION}
    return {name: value for name, value in found.items() if name not in ("right_language", "well_formed")}


def blind_places(scenes: Sequence[Scene], known: Sequence[Scene]) -> float:
    """How often a blind guess of where the named things are is right.

    One statement a scene. For two things the guess is one of the relations that `known` has, for one thing one of the
    positions, as often as each is there: four relations that are equally frequent give 1/4, two opposites 1/2.
    NaN where `known` has no scene of as many things as any of `scenes`.
    """
    counts: dict[int, Counter[tuple[str, ...]]] = {}
    for scene in known:
        counts.setdefault(len(scene.things), Counter())[scene.places] += 1
    asked = [(counts[len(scene.things)], scene.places) for scene in scenes if len(scene.things) in counts]
    return sum(among[places] / among.total() for among, places in asked) / len(asked) if asked else math.nan
