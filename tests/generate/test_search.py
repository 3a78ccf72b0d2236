"""Search and selection against an oracle that does everything the slow way."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from babelcap.generate.candidates import CandidateRuns
from babelcap.generate.search import SearchConfig, TextChunk, nearest_texts
from babelcap.generate.select import SelectConfig, select_texts


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
            assert row == wanted  # to the last bit: float64 holds the sum of float16 products exactly


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


def test_many_equal_scores_are_told_apart_by_hash() -> None:
    generator = np.random.default_rng(4)
    images = unit_vectors(generator, 3)
    vectors = np.concatenate([np.repeat(unit_vectors(generator, 1), 500, axis=0), unit_vectors(generator, 50)])
    hashes = generator.permutation(np.arange(1, 551).astype(np.uint64))
    expected = oracle(images, hashes, vectors, 8)
    config = SearchConfig(text_block=64)
    for pieces in (1, 4):
        parts = np.array_split(generator.permutation(550), pieces)
        found = nearest_texts(images, [TextChunk(hashes[rows], vectors[rows]) for rows in parts], 8, config)
        assert as_lists(found, 8) == expected


def test_texts_that_come_in_rising_order_are_found() -> None:
    """The worst order: every text is better than all before it."""
    generator = np.random.default_rng(5)
    images, vectors = np.repeat(unit_vectors(generator, 1), 2, axis=0), unit_vectors(generator, 400)
    vectors = vectors[np.argsort(vectors.astype(np.float64) @ images[0].astype(np.float64))]
    hashes = np.arange(1, 401).astype(np.uint64)
    found = nearest_texts(images, [TextChunk(hashes, vectors)], 4, SearchConfig(text_block=32))
    assert as_lists(found, 4) == oracle(images, hashes, vectors, 4)


Rows = list[tuple[int, int, float]]  # image, text, score
TEXTS = {1: "a red bird", 2: "a red bird sings", 3: "two cars on a road", 4: "a boat", 5: "the sun at noon"}


def select(
    folder: Path, runs: list[Rows], is_eval: list[bool], block: int = 100, **settings: float
) -> list[tuple[int, int]]:
    config = SelectConfig(**({"num_texts": 2, "min_score": 0.3, "max_uses": 1, "max_overlap": 0.7} | settings))  # type: ignore[arg-type]
    on_disk = CandidateRuns(folder, config.min_score, block)
    for rows in runs:
        images, hashes, scores = zip(*rows, strict=True)
        on_disk.add(np.array(images, np.int64), np.array(hashes, np.uint64), np.array(scores, np.float64))

    def words(number: int) -> frozenset[str]:
        return frozenset(TEXTS[int(on_disk.hashes[number])].split())

    taken = select_texts(on_disk.best_first, np.array(is_eval), len(on_disk.hashes), words, config)
    return [
        (image, int(on_disk.hashes[text]))
        for table in taken
        for image, text in zip(table.images.tolist(), table.texts.tolist(), strict=True)
    ]


def test_best_first_with_room_on_both_sides(tmp_path: Path) -> None:
    rows = [(0, 3, 0.9), (1, 3, 0.8), (0, 4, 0.5), (1, 4, 0.7), (0, 5, 0.4), (1, 5, 0.2)]
    # 3 goes to image 0, 4 to image 1; 4 is then used up for image 0, which takes 5; 0.2 is under the threshold.
    assert select(tmp_path, [rows], [False, False]) == [(0, 3), (1, 4), (0, 5)]
    assert select(tmp_path, [rows], [False, False], max_uses=2) == [(0, 3), (1, 3), (1, 4), (0, 4)]


def test_near_copies_are_left_out(tmp_path: Path) -> None:
    rows = [(0, 1, 0.9), (0, 2, 0.8), (0, 4, 0.5)]  # 1 and 2 share 3 of 4 words: .75
    assert select(tmp_path, [rows], [False]) == [(0, 1), (0, 4)]
    assert select(tmp_path, [rows], [False], max_overlap=0.8) == [(0, 1), (0, 2)]


def test_eval_images_choose_first_and_bar_their_texts(tmp_path: Path) -> None:
    rows = [(0, 3, 0.9), (1, 3, 0.4), (0, 4, 0.5)]
    assert select(tmp_path, [rows], [False, True], max_uses=5) == [(1, 3), (0, 4)]


def test_order_runs_and_blocks_do_not_matter(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    scores = generator.choice([0.2, 0.4, 0.6, 0.8], size=(12, 5))  # many are equal
    rows = [(image, text, float(scores[image, text - 1])) for image in range(12) for text in TEXTS]
    is_eval = [image > 9 for image in range(12)]
    expected = select(tmp_path, [rows], is_eval, max_uses=4)
    assert len(expected) > 10
    for seed, block in enumerate((1, 2, 3, 7, 100)):
        mixed = [rows[place] for place in np.random.default_rng(seed).permutation(len(rows))]
        runs = [mixed[start :: seed + 1] for start in range(seed + 1)]
        assert select(tmp_path, runs, is_eval, block, max_uses=4) == expected


def test_runs_are_merged_in_one_order(tmp_path: Path) -> None:
    generator = np.random.default_rng(6)
    runs = CandidateRuns(tmp_path, min_score=0.1, block=10)
    rows = []
    for size in (0, 1, 95, 40):
        images, hashes = generator.integers(0, 50, size), generator.integers(1, 30, size).astype(np.uint64)
        scores = np.round(generator.random(size), 1)
        runs.add(images, hashes, scores)
        rows += list(zip((-scores).tolist(), hashes.tolist(), images.tolist(), strict=True))
    found = [
        (-score, int(runs.hashes[text]), image)
        for table in runs.best_first()
        for score, text, image in zip(table.scores.tolist(), table.texts.tolist(), table.images.tolist(), strict=True)
    ]
    assert found == sorted(row for row in rows if row[0] <= -0.1)
