"""Retrieval through a space of sentences, by numbers computed by hand."""

import numpy as np
import pytest

from babelcap.errors import UserError
from babelcap.evaluation.metrics.retrieval import fit_ridge, ranks, recall_at


def test_a_map_on_one_axis_by_hand() -> None:
    """x - mean = [-1, 1], y - mean = [-2, 2]: x'y = 4, x'x = 2, so W = 4 / (2 + 2 strength)."""
    captions, photographs = np.array([[1.0], [3.0]]), np.array([[0.0], [4.0]])
    assert fit_ridge(captions, photographs, strength=0.0).weights[0, 0] == pytest.approx(2.0)
    ridge = fit_ridge(captions, photographs, strength=1.0)
    assert ridge.weights[0, 0] == pytest.approx(1.0)
    assert ridge(np.array([[5.0]]))[0, 0] == pytest.approx(3.0)
    assert ridge.photograph_mean[0] == pytest.approx(2.0)


def test_ranks_by_hand() -> None:
    """The first caption points at its own; the second at the first; the third lies between the first two."""
    photographs = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    found = np.array([[2.0, 0.1], [1.0, 0.2], [1.0, 1.0]])
    assert ranks(found, photographs).tolist() == [1, 2, 3]


def test_a_tie_and_nothing_said_count_against() -> None:
    photographs = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    assert ranks(np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 0.0]]), photographs).tolist() == [2, 2, 3]


def test_recall_counts_places() -> None:
    score = recall_at(2, ["a", "b", "c", "d"], np.array([1, 2, 3, 9]), {"space": "test"})
    assert score.value == 50.0
    assert score.per_item == {"a": 100.0, "b": 100.0, "c": 0.0, "d": 0.0}
    assert score.signature.startswith("R@2|space:test|ties:against")
    low, high = score.interval(seed=1)
    assert 0.0 <= low < 50.0 < high <= 100.0


def test_a_language_shift_is_taken_away() -> None:
    """Captions that are their photograph plus the same vector find it again after the map."""
    generator = np.random.default_rng(0)
    photographs, shift = generator.normal(size=(200, 8)), np.full(8, 5.0)
    ridge = fit_ridge(photographs[:150] + shift, photographs[:150])
    test = photographs[150:]
    assert (ranks(ridge(test + shift), test - ridge.photograph_mean) == 1).all()


def test_rows_must_belong_together() -> None:
    with pytest.raises(UserError, match="found 2 captions and 1 photographs"):
        fit_ridge(np.zeros((2, 3)), np.zeros((1, 3)))
