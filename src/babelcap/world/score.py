"""How true a caption is of its scene: language, objects, colours on the right objects, counts, sizes, places, ground.

A rate is a ratio of sums over captions, so that a caption of many objects weighs more than one of few. `chance_rates`
is what true captions of *other* scenes reach: what a captioner gets that speaks the language and sees nothing.
"""

from collections.abc import Iterable, Sequence

from babelcap.coverage import Style
from babelcap.records import Record
from babelcap.world.inverse import parse_strict
from babelcap.world.meaning import Claims, canonical_relation, text_claims
from babelcap.world.message import plan_caption
from babelcap.world.parser import guess_language, parse_text
from babelcap.world.scenes import Scene, Thing, generator


class CaptionScore(Record):
    """Counts of one caption; `*_stated` are said of objects that are in the scene, `*_right` of these are true."""

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
    named = {claim.noun for claim in claims.things}
    attributes: dict[str, list[bool]] = {"colour": [], "size": [], "count": []}
    for claim in claims.things:
        thing = things.get(claim.noun)
        if thing is not None:
            for name, right in attributes.items():
                stated = getattr(claim, name)
                if stated is not None:
                    right.append(stated == getattr(thing, name))
    places = [_place_is_right(noun, place, scene) for noun, place in claims.places if noun in things]
    places += [_relation_is_right(relation, scene) for relation in claims.relations if set(relation[1:]) <= set(things)]
    grounds = [ground == scene.ground for ground in claims.grounds]
    return CaptionScore(
        num_objects=len(things),
        num_objects_right=len(named & set(things)),
        num_objects_invented=len(named - set(things)),
        num_colours_stated=len(attributes["colour"]),
        num_colours_right=_colours_right(claims, things),
        num_sizes_stated=len(attributes["size"]),
        num_sizes_right=sum(attributes["size"]),
        num_counts_stated=len(attributes["count"]),
        num_counts_right=sum(attributes["count"]),
        num_places_stated=len(places),
        num_places_right=sum(places),
        num_grounds_stated=len(grounds),
        num_grounds_right=sum(grounds),
    )


def _colours_right(claims: Claims, things: dict[str, Thing]) -> int:
    """Objects that are given their colour and no other: naming every colour of one object earns nothing."""
    right = 0
    for noun, thing in things.items():
        stated = {claim.colour for claim in claims.things if claim.noun == noun} - {None}
        right += stated == {thing.colour}
    return right


def _place_is_right(noun: str, place: str, scene: Scene) -> bool:
    return (noun, place) in {(thing.noun, where) for thing, where in zip(scene.things, scene.places, strict=True)}


def _relation_is_right(relation: tuple[str, str, str], scene: Scene) -> bool:
    if scene.relation is None:
        return False
    return relation == canonical_relation(scene.relation, scene.things[0].noun, scene.things[1].noun)


def rates(scores: Iterable[CaptionScore]) -> dict[str, float]:
    """Shares over many captions. `objects`: of the objects, those named; `colours`: of the colours stated of named
    objects, the right ones; `objects_with_colour`: of the objects, those named with the right colour; the rest alike.
    """
    scores = list(scores)

    def total(name: str) -> int:
        return sum(getattr(score, name) for score in scores)

    def share(part: str, whole: int) -> float:
        return total(part) / whole if whole else 0.0

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
        "grounds": share("num_grounds_right", total("num_grounds_stated")),
    }


def chance_rates(
    scenes: Sequence[Scene], known: Sequence[Scene], num_captions: int = 4000, seed: int = 0
) -> dict[str, float]:
    """The rates that true short captions of `known` scenes, as training has them, reach on others.

    Rates of language do not apply and are left out.

    An attribute is only compared where the noun happens to be right, which is rare: hence the many captions.
    """
    scores = []
    for index in range(num_captions):
        rng = generator(seed, "chance", index)
        scene, other = rng.choice(scenes), rng.choice(known)
        scores.append(score_claims(text_claims(plan_caption(other, Style.SHORT, rng)), scene))
    found = rates(scores)
    return {name: value for name, value in found.items() if name not in ("right_language", "well_formed")}
