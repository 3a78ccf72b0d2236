"""Held-out errors and comparisons tell a right form from a wrong one."""

import numpy as np
import pytest

from babelcap.errors import UserError
from babelcap.laws import compare, fit, frontier, leave_largest_budget_out, leave_one_model_out
from laws.simulated import grid, study, true_law


def noisy(name: str, seed: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    generator = np.random.default_rng(seed)
    columns = grid() | {"T": generator.uniform(2, 8, 16)}
    return columns, true_law(name).predict(columns) * np.exp(0.01 * generator.standard_normal(16))


def test_held_out_errors_are_of_the_size_of_the_noise() -> None:
    columns, y = noisy("ps", 1)
    fitted = fit("ps", columns, y)
    largest = leave_largest_budget_out(fitted)
    assert largest.num_points == 4
    assert largest.what == "S >= 1.024e+07"
    assert 0 < largest.relative < 0.04
    models = leave_one_model_out(fitted)
    assert models.num_points == 16
    assert models.relative <= models.worst < 0.06


def test_held_out_points_are_not_seen() -> None:
    columns, y = noisy("ps", 2)
    before = leave_largest_budget_out(fit("ps", columns, y))
    y = np.where(columns["S"] == columns["S"].max(), 2 * y, y)
    after = leave_largest_budget_out(fit("ps", columns, y))
    assert 1 + after.bias == pytest.approx(2 * (1 + before.bias))


def test_the_right_form_wins() -> None:
    columns, y = noisy("pst", 3)
    rows, refused = compare(["ps", "pst", "chinchilla", "compute"], columns, y)
    assert rows[0].form == "pst"
    assert rows[0].aicc_weight > 0.99
    assert sum(row.aicc_weight for row in rows) == pytest.approx(1)
    assert rows[0].one_model is not None
    assert rows[1].one_model is not None
    assert rows[0].one_model.relative < rows[1].one_model.relative
    assert list(refused) == ["compute"]


def test_a_floor_that_is_not_there_does_not_win() -> None:
    columns, y = study("ps", 30, 0.02, np.random.default_rng(4))
    rows, _ = compare(["ps", "ps+eps"], columns, y)
    assert rows[0].form == "ps"


def test_aicc_is_that_of_least_squares() -> None:
    columns, y = study("ps", 30, 0.02, np.random.default_rng(5))
    fitted = fit("ps", columns, y)
    expected = 30 * np.log(np.sum(fitted.residuals**2) / 30) + 8 + 2 * 4 * 5 / 25
    assert fitted.aicc == pytest.approx(expected)
    with_floor = fit("ps+eps", columns, y).aicc
    assert with_floor <= expected + 2 + 2 * 5 * 6 / 24 - 2 * 4 * 5 / 25 + 1e-6  # never a worse likelihood


def test_the_frontier_of_seeds_is_that_of_their_means() -> None:
    """A lucky seed (0.5, of a run whose mean is 1.25) is not on it."""
    columns = {"C": np.array([1, 1, 2, 2, 3, 4, 5]), "name": list("aabbcde")}
    y = np.array([2.0, 0.5, 1.2, 1.0, 0.9, 0.8, 0.7])
    fitted = fit("compute", columns, y, groups=list("aabbcde"), frontier_only=True)
    assert fitted.points.columns["C"].tolist() == [1, 2, 3, 4, 5]
    assert fitted.points.y == pytest.approx([1.25, 1.1, 0.9, 0.8, 0.7])
    with pytest.raises(UserError, match="1 distinct points"):
        fit("compute", columns, y, frontier_only=True)  # without groups the lucky one beats all others


def test_frontier() -> None:
    C, y = np.array([1.0, 2, 3, 4, 5]), np.array([5.0, 6, 3, 3, 2])
    assert frontier({"C": C}, y).tolist() == [0, 2, 4]
    columns, loss = study("compute", 40, 0.3, np.random.default_rng(6))
    fitted = fit("compute", columns, loss, frontier_only=True)
    assert len(fitted.points) == len(frontier(columns, loss)) < 40
    with pytest.raises(UserError, match="needs the column C"):
        fit("ps", {"P": columns["P"], "S": columns["S"]}, loss, frontier_only=True)
