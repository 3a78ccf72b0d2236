"""Pictures show what the scene says, as far as pixels can tell: colours, sides, sizes and counts."""

import io

import numpy as np
import pytest
from PIL import Image

from babelcap.world.render import FILL, encode, render, sheet
from babelcap.world.scenes import COLOURS, GROUNDS, NOUNS, Scene, Thing, generator


def picture(noun: str, colour: str, *, size: str = "big", ground: str = "snow", position: str = "centre") -> np.ndarray:
    scene = Scene(things=(Thing(noun=noun, colour=colour, size=size),), position=position, ground=ground)
    return np.asarray(render(scene, generator(0, "test"), 64), dtype=int)


def is_colour(pixels: np.ndarray, colour: str) -> np.ndarray:
    mask: np.ndarray = np.abs(pixels - np.array(FILL[colour])).max(axis=-1) < 24
    return mask


@pytest.mark.parametrize("noun", NOUNS)
def test_each_thing_shows_its_own_colour_most(noun: str) -> None:
    for colour in COLOURS:
        ground = "water" if colour == "white" else "sand"
        pixels = picture(noun, colour, ground=ground)
        shares = {name: is_colour(pixels, name).sum() for name in COLOURS}
        if colour != "black":
            shares.pop("black")  # outlines and wheels
        if noun in ("mushroom", "bottle", "book", "car"):
            shares.pop("white", None) if colour != "white" else None
        assert max(shares, key=lambda name: shares[name]) == colour, shares
        assert shares[colour] > 90, (noun, colour)


@pytest.mark.parametrize("ground", GROUNDS)
def test_no_ground_has_the_colour_of_a_thing(ground: str) -> None:
    pixels = picture("key", "red", size="small", ground=ground)
    for colour in set(COLOURS) - {"red", "white", "black"}:
        assert is_colour(pixels, colour).sum() <= 2, colour


def test_all_nouns_look_different() -> None:
    pictures = [picture(noun, "red").astype(float) for noun in NOUNS]
    for first in range(len(NOUNS)):
        for second in range(first):
            difference = np.abs(pictures[first] - pictures[second]).mean()
            assert difference > 4, (NOUNS[first], NOUNS[second], difference)


@pytest.mark.parametrize(
    ("position", "axis", "low"), [("left", 1, True), ("right", 1, False), ("top", 0, True), ("bottom", 0, False)]
)
def test_positions_are_where_they_should_be(position: str, axis: int, low: bool) -> None:
    for noun in ("ball", "key", "bottle"):
        where = np.argwhere(is_colour(picture(noun, "red", position=position), "red"))[:, axis].mean()
        assert (where < 28) if low else (where > 36), (noun, where)


def test_the_first_of_a_relation_is_on_its_side() -> None:
    things = (Thing(noun="ball", colour="red"), Thing(noun="cube", colour="green", count=3))
    for relation, axis, sign in (("left_of", 1, -1), ("right_of", 1, 1), ("above", 0, -1), ("below", 0, 1)):
        scene = Scene(things=things, relation=relation, ground="sand")
        pixels = np.asarray(render(scene, generator(0, relation), 64), dtype=int)
        red, green = (np.argwhere(is_colour(pixels, colour))[:, axis].mean() for colour in ("red", "green"))
        assert sign * (red - green) > 16


def test_sizes_and_counts_show() -> None:
    areas = [is_colour(picture("heart", "red", size=size), "red").sum() for size in ("small", "medium", "big")]
    assert areas[0] * 1.4 < areas[1] < areas[2] / 1.4
    counts = []
    for count in (1, 2, 3):
        scene = Scene(things=(Thing(noun="star", colour="red", count=count),), position="top", ground="sand")
        counts.append(is_colour(np.asarray(render(scene, generator(0, "count"), 64), dtype=int), "red").sum())
    assert counts[0] < counts[1] < counts[2]


@pytest.mark.parametrize("size_px", [16, 64, 224])
def test_any_size_and_format(size_px: int) -> None:
    scene = Scene(things=(Thing(noun="cat", colour="black"),), position="left", ground="night")
    image = render(scene, generator(0, "x"), size_px)
    assert image.size == (size_px, size_px)
    for extension, name in (("png", "PNG"), ("jpg", "JPEG")):
        data = encode(image, extension)
        assert data == encode(render(scene, generator(0, "x"), size_px), extension)
        with Image.open(io.BytesIO(data)) as opened:
            assert (opened.format, opened.size, opened.mode) == (name, (size_px, size_px), "RGB")


def test_the_sheet_has_every_noun_and_colour() -> None:
    assert sheet(16).size == (18 * len(COLOURS), 18 * len(NOUNS))
