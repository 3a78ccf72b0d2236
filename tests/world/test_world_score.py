"""A true caption scores full marks in its language; a false or foreign one does not; chance is known."""

import pytest

from babelcap.coverage import Style
from babelcap.world.message import plan_caption
from babelcap.world.realise import GRAMMARS, realise
from babelcap.world.scenes import NOUNS, Scene, Scope, Thing, draw_scene, generator
from babelcap.world.score import chance_rates, rates, score_caption

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


def test_no_captions_have_no_rates() -> None:
    assert set(rates([]).values()) == {0.0}
