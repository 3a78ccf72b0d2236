"""The control whose translations belong to other pictures: a view that exchanges images, and nothing else."""

from pathlib import Path

import pytest

from babelcap.data.feed.exchange import ExchangedImages
from babelcap.data.store.index import CorpusIndex
from babelcap.errors import UserError


@pytest.fixture(scope="module")
def index(small_corpus: Path) -> CorpusIndex:
    return CorpusIndex.open(small_corpus)


def translated(index: CorpusIndex) -> list[int]:
    return [
        int(row) for pair in index.pairs("train") if pair.task == "translation" for row in index.rows("train", pair)
    ]


def test_no_translation_keeps_its_picture_and_every_picture_is_used_once(index: CorpusIndex) -> None:
    view = ExchangedImages(index, "translation", "train", seed=0)
    moved = {index.image_number(row): view.image_number(row) for row in translated(index)}
    assert all(number != other for number, other in moved.items())
    assert sorted(moved.values()) == sorted(moved)
    # All annotations of an image go together, and texts stay what they are.
    assert all(view.image_number(row) == moved[index.image_number(row)] for row in translated(index))
    assert all(view.annotation(row) == index.annotation(row) for row in translated(index))
    first = translated(index)[0]
    assert view.read_image(view.image_number(first)) != index.read_image(index.image_number(first))


def test_captions_and_other_splits_keep_theirs(index: CorpusIndex) -> None:
    view = ExchangedImages(index, "translation", "train", seed=0)
    others = set(range(index.num_annotations)) - set(translated(index))
    assert others
    assert all(view.image_number(row) == index.image_number(row) for row in others)


def test_the_exchange_is_a_function_of_the_seed(index: CorpusIndex) -> None:
    rows = translated(index)
    numbers = [
        [ExchangedImages(index, "translation", "train", seed).image_number(row) for row in rows] for seed in (0, 0, 1)
    ]
    assert numbers[0] == numbers[1] != numbers[2]


def test_an_unknown_task_is_named(index: CorpusIndex) -> None:
    with pytest.raises(UserError, match=r"'captions' is no task of .*\(it has: caption, translation\)"):
        ExchangedImages(index, "captions", "train", 0)
