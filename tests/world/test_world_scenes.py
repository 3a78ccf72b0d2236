"""Scenes are drawn from the seed alone, and the hold-out is never drawn in training."""

from collections import Counter

from babelcap.world.message import fit, loosen
from babelcap.world.scenes import COLOURS, NOUNS, SIDES, draw_scene, generator, holdout_pairs


def test_the_hold_out_takes_one_colour_of_each_noun() -> None:
    assert Counter(noun for noun, _ in holdout_pairs()) == dict.fromkeys(NOUNS, 1)
    assert {colour for _, colour in holdout_pairs()} == set(COLOURS)
    assert max(Counter(colour for _, colour in holdout_pairs()).values()) <= 3


def test_scenes_keep_to_their_side_of_the_hold_out() -> None:
    for index in range(500):
        seen = draw_scene(generator(0, "seen", index))
        held_out = draw_scene(generator(0, "held out", index), held_out=True)
        assert not {(thing.noun, thing.colour) for thing in seen.things} & holdout_pairs()
        assert {(thing.noun, thing.colour) for thing in held_out.things} <= holdout_pairs()
        assert len({thing.noun for thing in seen.things}) == len(seen.things)
        assert (seen.relation is None) == (len(seen.things) == 1) == (seen.position is not None)


def test_a_scene_is_a_function_of_seed_purpose_and_index() -> None:
    assert draw_scene(generator(1, "a", 2)) == draw_scene(generator(1, "a", 2))
    others = [draw_scene(generator(*key)) for key in ((1, "a", 3), (2, "a", 2), (1, "b", 2))]
    assert draw_scene(generator(1, "a", 2)) not in others


def test_sides_are_opposite() -> None:
    assert SIDES["left_of"] == SIDES["right_of"][::-1]
    assert SIDES["above"] == SIDES["below"][::-1]


def test_loosening_keeps_attributes_with_the_match_probability() -> None:
    def mean_fit(probability: float) -> float:
        total = 0.0
        for index in range(800):
            rng = generator(0, "loosen", index)
            scene = draw_scene(rng)
            other = loosen(scene, probability, rng)
            assert not {(thing.noun, thing.colour) for thing in other.things} & holdout_pairs()
            assert len({thing.noun for thing in other.things}) == len(scene.things)
            total += fit(scene, other)
        return total / 800

    assert mean_fit(1.0) == 1.0
    assert 0.9 < mean_fit(0.9) < 0.95  # an attribute drawn afresh may be the same by chance
    assert 0.15 < mean_fit(0.0) < 0.3
