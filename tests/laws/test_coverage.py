"""What 95 % means: over many simulated studies the intervals hold the truth as often as they say."""

import numpy as np
import pytest

from babelcap.laws import fit
from laws.simulated import TRUTH, grid, study, true_law

NUM_STUDIES = 400
CLOSED = ["compute", "ps", "pst"]
WITH_FLOOR = ["compute+eps", "ps+eps", "pst+eps", "chinchilla"]


def coverage(name: str, num_points: int, noise: float, seed: int) -> dict[str, float]:
    generator = np.random.default_rng(seed)
    hits = dict.fromkeys(true_law(name).coefficients, 0)
    for _ in range(NUM_STUDIES):
        columns, y = study(name, num_points, noise, generator)
        intervals = fit(name, columns, y).intervals
        for coefficient, value in zip(hits, TRUTH[name], strict=True):
            low, high = intervals[coefficient]
            hits[coefficient] += low <= value <= high
    return {coefficient: count / NUM_STUDIES for coefficient, count in hits.items()}


@pytest.mark.parametrize("name", CLOSED)
@pytest.mark.parametrize("num_points", [8, 40])
def test_closed_form(name: str, num_points: int) -> None:
    for coefficient, share in coverage(name, num_points, 0.05, 11).items():
        assert 0.92 <= share <= 0.98, coefficient


@pytest.mark.slow
@pytest.mark.parametrize("name", WITH_FLOOR)
@pytest.mark.parametrize("num_points", [16, 40])
def test_with_a_floor(name: str, num_points: int) -> None:
    for coefficient, share in coverage(name, num_points, 0.01, 13).items():
        assert 0.92 <= share <= 0.98, coefficient


@pytest.mark.slow
def test_floor_found_when_there_and_only_then() -> None:
    generator = np.random.default_rng(17)
    found = {"ps": 0, "ps+eps": 0}
    for name in found:
        for _ in range(200):
            columns, y = study(name, 40, 0.01, generator)
            found[name] += "eps" not in fit("ps+eps", columns, y).not_identified
    assert found["ps+eps"] >= 195
    assert found["ps"] <= 12  # 2.5 % by chance, as a floor below zero is not looked for


@pytest.mark.slow
def test_groups_of_correlated_seeds() -> None:
    """Sixteen runs of three seeds that share most of their noise: the honest intervals are those by run."""
    generator = np.random.default_rng(19)
    columns, runs = grid(3), np.tile(np.arange(16), 3)
    truth = true_law("ps")
    hits = np.zeros(2)
    for _ in range(NUM_STUDIES):
        shared = np.tile(0.04 * generator.standard_normal(16), 3)
        y = truth.predict(columns) * np.exp(shared + 0.01 * generator.standard_normal(48))
        for index, groups in enumerate((runs, None)):
            low, high = fit("ps", columns, y, groups=groups).intervals["b1"]
            hits[index] += low <= -0.2 <= high
    assert 0.92 <= hits[0] / NUM_STUDIES <= 0.98
    assert hits[1] / NUM_STUDIES < 0.85  # what ignoring the groups would do


def test_prediction_intervals_cover_new_runs() -> None:
    generator = np.random.default_rng(23)
    hits = 0
    for _ in range(NUM_STUDIES):
        columns, y = study("ps", 17, 0.05, generator)
        new = {name: values[-1] for name, values in columns.items()}
        low, high = fit("ps", {name: v[:-1] for name, v in columns.items()}, y[:-1]).prediction_interval(new)
        hits += low <= y[-1] <= high
    assert 0.92 <= hits / NUM_STUDIES <= 0.98
