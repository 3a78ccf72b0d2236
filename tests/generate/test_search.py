"""Search and selection against an oracle that does everything the slow way."""

import numpy as np
import pytest
from numpy.typing import NDArray

from babelcap.generate.search import SearchConfig, TextChunk, nearest_texts
from babelcap.generate.select import CandidateTable, SelectConfig, select_texts


def unit_vectors(generator: np.random.Generator, number: int, width: int = 32) -> NDArray[np.float16]:
    vectors = generator.standard_normal((number, width))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float16)


def oracle(
    images: NDArray[np.float16], hashes: NDArray[np.uint64], vectors: NDArray[np.float16], k: int
) -> list[list[tuple[int, float]]]:
    found = []
    for image in images.astype(np.float64):
        scored = {int(h): float(v @ image) for h, v in zip(hashes, vectors.astype(np.float64), strict=True)}
        found.append(sorted(scored.items(), key=lambda item: (-item[1], item[0]))[:k])
    return found


def as_lists(candidates: object, k: int) -> list[list[tuple[int, float]]]:
    hashes, scores = candidates  # type: ignore[misc]
    return [
        [(int(h), float(s)) for h, s in zip(row, values, strict=True) if np.isfinite(s)]
        for row, values in zip(hashes, scores, strict=True)
    ]


@pytest.mark.parametrize("image_block", [1, 7, 100])
@pytest.mark.parametrize("text_block", [3, 64, 1000])
def test_equals_the_oracle_however_it_is_cut(image_block: int, text_block: int) -> None:
    generator = np.random.default_rng(0)
    images, vectors = unit_vectors(generator, 20), unit_vectors(generator, 300)
    vectors[100:140] = vectors[:40]  # equal scores, told apart by hash alone
    hashes = generator.permutation(np.arange(1, 301).astype(np.uint64))
    expected = oracle(images, hashes, vectors, 10)
    config = SearchConfig(image_block=image_block, text_block=text_block)
    order = generator.permutation(300)
    pieces = np.array_split(order, 7)
    for chunks in ([np.arange(300)], pieces):
        found = nearest_texts(images, [TextChunk(hashes[rows], vectors[rows]) for rows in chunks], 10, config)
        for row, wanted in zip(as_lists(found, 10), expected, strict=True):
            assert [text for text, _ in row] == [text for text, _ in wanted]
            np.testing.assert_allclose([s for _, s in row], [s for _, s in wanted], rtol=0, atol=1e-15)


def test_a_text_that_comes_twice_counts_once_and_few_texts_are_padded() -> None:
    generator = np.random.default_rng(1)
    images, vectors = unit_vectors(generator, 3), unit_vectors(generator, 4)
    hashes = np.array([5, 6, 7, 8], np.uint64)
    chunk = TextChunk(hashes, vectors)
    found = nearest_texts(images, [chunk, chunk, chunk], 6, SearchConfig())
    assert as_lists(found, 6) == as_lists(nearest_texts(images, [chunk], 6, SearchConfig()), 6)
    assert (found.hashes[:, 4:] == 0).all()
    assert np.isneginf(found.scores[:, 4:]).all()


def test_ten_times_as_many_distractors_change_nothing() -> None:
    generator = np.random.default_rng(2)
    images = unit_vectors(generator, 5)
    near = np.repeat(images, 4, axis=0)  # the images themselves: nothing random comes near
    hashes = np.arange(1, 21).astype(np.uint64)
    far = TextChunk(np.arange(1000, 1200).astype(np.uint64), unit_vectors(generator, 200))
    alone = nearest_texts(images, [TextChunk(hashes, near)], 4, SearchConfig())
    crowded = nearest_texts(images, [far, TextChunk(hashes, near)], 4, SearchConfig(text_block=16))
    assert as_lists(alone, 4) == as_lists(crowded, 4)


def table_of(*rows: tuple[int, int, float]) -> CandidateTable:
    images, hashes, scores = zip(*rows, strict=True)
    return CandidateTable(np.array(images, np.int64), np.array(hashes, np.uint64), np.array(scores, np.float64))


TEXTS = {1: "a red bird", 2: "a red bird sings", 3: "two cars on a road", 4: "a boat", 5: "the sun at noon"}


def select(table: CandidateTable, is_eval: list[bool], **settings: float) -> list[tuple[int, int]]:
    config = SelectConfig(**({"num_texts": 2, "min_score": 0.3, "max_uses": 1, "max_overlap": 0.7} | settings))  # type: ignore[arg-type]
    rows = select_texts(table, np.array(is_eval), TEXTS, config)
    return [(int(table.images[row]), int(table.hashes[row])) for row in rows]


def test_best_first_with_room_on_both_sides() -> None:
    table = table_of((0, 3, 0.9), (1, 3, 0.8), (0, 4, 0.5), (1, 4, 0.7), (0, 5, 0.4), (1, 5, 0.2))
    # 3 goes to image 0, 4 to image 1; 4 is then used up for image 0, which takes 5; 0.2 is under the threshold.
    assert select(table, [False, False]) == [(0, 3), (1, 4), (0, 5)]
    assert select(table, [False, False], max_uses=2) == [(0, 3), (1, 3), (1, 4), (0, 4)]


def test_near_copies_are_left_out() -> None:
    table = table_of((0, 1, 0.9), (0, 2, 0.8), (0, 4, 0.5))  # 1 and 2 share 3 of 4 words: .75
    assert select(table, [False]) == [(0, 1), (0, 4)]
    assert select(table, [False], max_overlap=0.8) == [(0, 1), (0, 2)]


def test_eval_images_choose_first_and_bar_their_texts() -> None:
    table = table_of((0, 3, 0.9), (1, 3, 0.4), (0, 4, 0.5))
    assert select(table, [False, True], max_uses=5) == [(1, 3), (0, 4)]


def test_order_of_the_rows_does_not_matter() -> None:
    generator = np.random.default_rng(3)
    rows = [(int(i), int(h), float(s)) for i in range(6) for h, s in zip(range(1, 6), generator.random(5), strict=True)]
    rows.append((5, 1, rows[0][2]))
    expected = select(table_of(*rows[:-1]), [False] * 5 + [True])
    for seed in range(5):
        mixed = list(np.random.default_rng(seed).permutation(len(rows) - 1))
        assert select(table_of(*[rows[i] for i in mixed]), [False] * 5 + [True]) == expected
