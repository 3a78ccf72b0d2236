"""A true caption scores full marks in its language; a false or foreign one does not; chance is known."""

import math
import re

import pytest

from babelcap.coverage import Style
from babelcap.world.message import loosen, plan_caption
from babelcap.world.realise import GRAMMARS, realise
from babelcap.world.scenes import NOUNS, Scene, Scope, Thing, draw_scene, generator
from babelcap.world.score import blind_places, chance_rates, is_right, mark_caption, rates, score_caption

SCENE = Scene(
    things=(Thing(noun="ball", colour="red"), Thing(noun="house", colour="blue", size="big", count=2)),
    relation="left_of",
    ground="sand",
)


@pytest.mark.parametrize("language", GRAMMARS)
def test_true_captions_are_all_right(language: str) -> None:
    scores = []
    for index in range(60):
        rng = generator(0, "score", index)
        scene = draw_scene(rng, held_out=None)
        plan = plan_caption(scene, list(Style)[index % 3], rng)
        scores.append(score_caption(realise(plan, language), language, scene))
    found = rates(scores)
    assert found.pop("invented") == 0
    assert set(found.values()) == {1.0}, found


def test_false_claims_are_counted() -> None:
    score = score_caption("The image shows a blue ball to the right of two big blue houses.", "en", SCENE)
    assert (score.num_objects_right, score.num_objects_invented) == (2, 0)
    assert (score.num_colours_right, score.num_colours_stated) == (1, 2)
    assert (score.num_places_right, score.num_places_stated) == (0, 1)
    assert (score.num_counts_right, score.num_sizes_right) == (2, 1)
    score = score_caption("The image shows a red cat and three blue houses on the grass.", "en", SCENE)
    assert (score.num_objects_right, score.num_objects_invented) == (1, 1)
    assert (score.num_colours_right, score.num_counts_right) == (1, 0)
    assert (score.num_grounds_right, score.num_grounds_stated) == (0, 1)


def test_a_colour_counts_only_on_its_own_object() -> None:
    score = score_caption("The image shows a blue ball and two red houses.", "en", SCENE)
    assert (score.num_objects_right, score.num_colours_right) == (2, 0)
    every = "The image shows a red ball and a blue ball and a green ball."
    assert score_caption(every, "en", SCENE).num_colours_right == 0


# Two red cubes above a house. Of each language: the cubes are named twice, and stand above themselves.
CUBES = Scene(
    things=(Thing(noun="cube", colour="red", count=2), Thing(noun="house", colour="blue")),
    relation="above",
    ground="sand",
)
TWICE = {
    "en": "The image shows two red cubes [above/relation] two red [cubes/object].",
    "de": "Das Bild zeigt zwei rote Würfel [über/relation] zwei roten [Würfeln/object].",
    "fr": "La photo montre deux cubes rouges [au-dessus de/relation] deux [cubes/object] rouges.",
    "es": "La imagen muestra dos cubos rojos [encima de/relation] dos [cubos/object] rojos.",
    "ru": "На картинке изображены два красных куба [над/relation] двумя красными [кубами/object].",
    "zh": "图为两个红色的方块[上方/relation]的两个红色的[方块/object]。",
}


@pytest.mark.parametrize(("language", "text"), TWICE.items())
def test_what_is_named_twice_is_there_once(language: str, text: str) -> None:
    plain, marks = without_brackets(text)
    score = score_caption(plain, language, CUBES)
    assert score.well_formed, plain
    assert (score.num_objects, score.num_objects_right, score.num_objects_invented) == (2, 1, 1)
    assert (score.num_colours_stated, score.num_colours_right) == (2, 1)
    assert (score.num_counts_stated, score.num_counts_right) == (2, 1)
    assert (score.num_places_stated, score.num_places_right) == (1, 0)
    assert score.num_directions_stated == 0  # the opposite is no more true
    assert not is_right(score)
    assert list(mark_caption(plain, language, CUBES)) == marks
    found = rates([score])
    assert (found["objects"], found["invented"], found["colours"], found["places"]) == (1 / 2, 1 / 2, 1 / 2, 0)


@pytest.mark.parametrize(
    ("text", "objects", "colours", "sizes", "counts"),
    [
        # (right, invented), (right, stated) ... of a red ball left of two big blue houses
        ("a red ball and a red ball", (1, 1), (1, 2), (0, 0), (1, 2)),
        ("a red ball and a ball and a ball", (1, 2), (1, 1), (0, 0), (1, 3)),
        ("two balls and a red ball", (1, 1), (1, 1), (0, 0), (1, 2)),  # the second is the one that is there
        ("a red ball and a blue ball", (1, 1), (0, 2), (0, 0), (1, 2)),
        ("two big houses and three blue houses", (1, 1), (0, 1), (1, 1), (1, 2)),  # blue are those that are not there
        ("a cat and a cat and two blue houses", (1, 2), (1, 1), (0, 0), (1, 1)),
    ],
)
def test_a_thing_is_matched_with_one_mention(
    text: str, objects: tuple[int, int], colours: tuple[int, int], sizes: tuple[int, int], counts: tuple[int, int]
) -> None:
    score = score_caption(f"The image shows {text}.", "en", SCENE)
    assert (score.num_objects_right, score.num_objects_invented) == objects
    assert (score.num_colours_right, score.num_colours_stated) == colours
    assert (score.num_sizes_right, score.num_sizes_stated) == sizes
    assert (score.num_counts_right, score.num_counts_stated) == counts
    assert not is_right(score)


def test_a_later_sentence_speaks_of_the_same_thing() -> None:
    text = "The image shows a red ball and two big blue houses. The ball is to the left of the houses."
    score = score_caption(text, "en", SCENE)
    assert is_right(score)
    assert (score.num_objects_right, score.num_objects_invented) == (2, 0)
    wrong = "The image shows a red ball. The ball is blue."  # one ball, of which two colours are said
    score = score_caption(wrong, "en", SCENE)
    assert (score.num_objects_right, score.num_objects_invented) == (1, 0)
    assert (score.num_colours_right, score.num_colours_stated) == (0, 2)
    assert [wrong[mark.start : mark.end] for mark in mark_caption(wrong, "en", SCENE)] == ["blue"]
    # Of two balls the red one is meant by the second sentence, and is there.
    both = "The image shows a green ball and a red ball. The red ball is on the left."
    score = score_caption(both, "en", SCENE)
    assert (score.num_objects_right, score.num_objects_invented) == (1, 1)
    marks = mark_caption(both, "en", SCENE)
    assert [(mark.start, mark.end, mark.what) for mark in marks] == [(24, 28, "object")]


def test_one_thing_is_not_on_two_sides() -> None:
    scene = Scene(things=(Thing(noun="ball", colour="red"),), position="left", ground="sand")
    score = score_caption("The image shows a red ball on the left and a red ball on the right.", "en", scene)
    assert (score.num_objects_right, score.num_objects_invented) == (1, 1)
    assert (score.num_places_stated, score.num_places_right) == (1, 0)  # one ball left of another


def test_another_language_has_no_content() -> None:
    score = score_caption("Das Bild zeigt einen roten Ball.", "fr", SCENE)
    assert (score.language, score.right_language, score.well_formed, score.num_objects_right) == ("de", False, False, 0)


def test_a_given_prefix_is_no_evidence_of_the_language() -> None:
    text = "La imagen muestra a red ball."
    assert score_caption(text, "es", SCENE).language == "es"
    assert score_caption(text, "es", SCENE, prefix="La imagen muestra").language == "en"
    russian = score_caption("На картинке изображена красная лампа.", "ru", SCENE, prefix="На картинке изображен")
    assert russian.right_language
    assert russian.well_formed


def test_broken_agreement_keeps_the_content() -> None:
    score = score_caption("Das Bild zeigt ein rote Ball links von zwei großes blaue Haus.", "de", SCENE)
    assert score.right_language
    assert not score.well_formed
    assert (score.num_objects_right, score.num_colours_right, score.num_places_right) == (2, 2, 1)


def test_chance_is_what_a_blind_captioner_reaches() -> None:
    scenes = [draw_scene(generator(0, "chance", index)) for index in range(3000)]
    chance = chance_rates(scenes, scenes[::-1], 3000)
    assert 0.03 < chance["objects"] < 0.1
    assert chance["colours"] < 0.2
    assert chance["objects_with_colour"] < 0.02
    assert 0.1 < chance["grounds"] < 0.25
    assert chance == chance_rates(scenes, scenes[::-1], 3000)


def test_in_a_world_of_few_nouns_chance_is_higher() -> None:
    few = [draw_scene(generator(0, "few", index), Scope(num_nouns=6)) for index in range(1000)]
    assert {thing.noun for scene in few for thing in scene.things} == set(NOUNS[:6])
    assert 0.2 < chance_rates(few, few, 1000)["objects"] < 0.4


def test_a_rate_over_nothing_is_not_a_number() -> None:
    assert all(map(math.isnan, rates([]).values()))
    foreign = rates([score_caption("Das Bild zeigt einen roten Ball.", "fr", SCENE)])
    for name in ("invented", "colours", "sizes", "counts", "places", "directions", "grounds"):
        assert math.isnan(foreign[name]), name
    assert (foreign["right_language"], foreign["objects"], foreign["objects_with_colour"]) == (0, 0, 0)


def test_rates_pool_counts_over_captions() -> None:
    texts = ["a red cat", "a red ball and two blue houses and a green tree", "Das Bild zeigt einen Ball"]
    found = rates([score_caption(f"The image shows {text}.", "en", SCENE) for text in texts])
    assert found["invented"] == 2 / 4  # cat and tree, of cat, ball, houses and tree
    assert found["objects"] == 2 / 6
    assert found["counts"] == 1.0


# Two cats and a flower. Of each language a true caption, and one that is wrong in the words between brackets.
CATS = Scene(
    things=(Thing(noun="cat", colour="white", count=2), Thing(noun="flower", colour="red", size="big")),
    relation="above",
    ground="grass",
)
TRUE = {
    "en": "The image shows two white cats above a big red flower on the grass.",
    "de": "Das Bild zeigt zwei weiße Katzen über einer großen roten Blume auf dem Gras.",
    "fr": "La photo montre deux chats blancs au-dessus d'une grande fleur rouge sur l'herbe.",
    "es": "La imagen muestra dos gatos blancos encima de una gran flor roja sobre la hierba.",
    "ru": "На картинке изображены две белые кошки над большим красным цветком на траве.",
    "zh": "图为草地上的景象：一朵红色的大花上方有两只白色的猫。",
}
FALSE = {
    "en": [
        "The image shows [a/count] white cat.",
        "The image shows two [black/colour] cats [below/relation] a [small/size] red flower.",
        "The image shows two white [dogs/] cats and a red [house/object].",
        "The image shows two white cats [at the bottom/relation] and a big red flower [at the top/relation].",
        "There are two white cats. [In the snow/ground] we see [three/count] red flowers.",
    ],
    "de": [
        "Das Bild zeigt [eine/count] weiße Katze.",
        "Das Bild zeigt zwei [schwarze/colour] Katzen [unter/relation] einer [kleinen/size] roten Blume.",
        "Das Bild zeigt zwei weiße Katzen und ein rotes [Haus/object].",
    ],
    "fr": [
        "La photo montre [un/count] chat blanc.",
        "La photo montre deux chats [noirs/colour] [en dessous d'/relation]une [petite/size] fleur rouge.",
        "La photo montre deux chats blancs et une [maison/object] rouge.",
    ],
    "es": [
        "La imagen muestra [un/count] gato blanco.",
        "La imagen muestra dos gatos [negros/colour] [debajo de/relation] una [pequeña/size] flor roja.",
        "La imagen muestra dos gatos blancos y una [casa/object] roja.",
    ],
    "ru": [
        "На картинке изображена белая [кошка/count].",
        "На картинке изображены две [черные/colour] кошки [под/relation] [маленьким/size] красным цветком.",
        "На картинке изображены две белые кошки и красный [дом/object].",
        "Здесь мы видим [трех/count] белых кошек.",
    ],
    "zh": [
        "图为[一只/count]白色的猫。",
        "图为一朵红色的[小/size]花[下方/relation]的两只[黑色/colour]的猫。",
        "图为两只白色的猫和一座红色的[房子/object]。",
    ],
}


def without_brackets(text: str) -> tuple[str, list[tuple[int, int, str]]]:
    plain, marks = "", []
    for part in re.split(r"(\[.*?\])", text):
        words, _, what = part[1:-1].partition("/") if part.startswith("[") else (part, "", "")
        if what:
            marks.append((len(plain), len(plain) + len(words), what))
        plain += words
    return plain, marks


@pytest.mark.parametrize(("language", "text"), TRUE.items())
def test_a_true_caption_has_no_marks(language: str, text: str) -> None:
    score = score_caption(text, language, CATS)
    assert mark_caption(text, language, CATS) == ()
    assert is_right(score)
    assert (score.num_counts_stated, score.num_counts_right) == (2, 2)
    assert (score.num_directions_stated, score.num_directions_right) == (1, 1)


@pytest.mark.parametrize(("language", "text"), [(code, text) for code, texts in FALSE.items() for text in texts])
def test_wrong_words_are_marked(language: str, text: str) -> None:
    plain, expected = without_brackets(text)
    assert list(mark_caption(plain, language, CATS)) == expected
    assert not is_right(score_caption(plain, language, CATS))


def test_houses_above_a_flower_are_not_below_it() -> None:
    houses = Thing(noun="house", colour="blue", count=3)
    scene = CATS.model_copy(update={"things": (houses, CATS.things[1])})
    text = "La photo montre trois maisons bleues {} grande fleur rouge."
    wrong, right = text.format("en dessous d'une"), text.format("au-dessus d'une")
    assert [wrong[mark.start : mark.end] for mark in mark_caption(wrong, "fr", scene)] == ["en dessous d'"]
    assert is_right(score_caption(right, "fr", scene))
    score = score_caption(wrong, "fr", scene)
    assert (score.num_places_right, score.num_directions_stated, score.num_directions_right) == (0, 1, 0)
    assert not is_right(score)
    beside = score_caption(text.format("à gauche d'une"), "fr", scene)
    assert (beside.num_places_stated, beside.num_directions_stated) == (1, 0)  # neither true nor the opposite


@pytest.mark.parametrize(
    "text", ["", "图为", "La photo montre", "Das Bild zeigt zwei weiße Katzen.", "On voit l'herbe."]
)
def test_what_names_nothing_is_not_right(text: str) -> None:
    assert not is_right(score_caption(text, "fr", CATS))
    assert mark_caption(text, "fr", CATS) == ()


@pytest.mark.parametrize("language", GRAMMARS)
def test_marks_and_score_agree(language: str) -> None:
    """On captions of loosened scenes: no word is marked where nothing is wrong, and some word where something is."""
    num_right = 0
    for index in range(150):
        rng = generator(1, "marks", index)
        scene = draw_scene(rng, held_out=None)
        text = realise(plan_caption(loosen(scene, 0.85, rng), list(Style)[index % 3], rng), language)
        score, marks = score_caption(text, language, scene), mark_caption(text, language, scene)
        assert is_right(score) == (score.num_objects_right > 0 and not marks), text
        num_right += is_right(score)
        assert all(0 <= mark.start < mark.end <= len(text) for mark in marks)
    assert 10 < num_right < 140


def test_a_blind_guess_of_where_things_are() -> None:
    def scenes(relations: str = "", positions: str = "") -> list[Scene]:
        pairs = [CATS.model_copy(update={"relation": relation}) for relation in relations.split()]
        one = Scene(things=CATS.things[:1], position="left", ground="sand")
        return pairs + [one.model_copy(update={"position": position}) for position in positions.split()]

    opposites = scenes("left_of right_of")
    assert blind_places(opposites, opposites) == 1 / 2
    four = scenes("left_of right_of above below")
    assert blind_places(four, four) == 1 / 4
    assert blind_places(scenes("above"), scenes("above above above below")) == 3 / 4
    # Two scenes of two things, each 1/4, and one of one thing, 1/5.
    known = [*four, *scenes("", "left right top bottom centre")]
    assert blind_places([*scenes("above left_of"), *scenes("", "centre")], known) == pytest.approx((2 / 4 + 1 / 5) / 3)
    assert math.isnan(blind_places(scenes("", "left"), four))
    chance = chance_rates(four, four, 50)
    assert (chance["places"], chance["directions"]) == (1 / 4, 1 / 2)
