"""Intervals against numbers worked out elsewhere, and the cases where there is none."""

import math

import numpy as np
import pytest
from scipy import stats

from babelcap.report.statistics import (
    Estimate,
    difference_of_shares,
    over_seeds,
    rank_correlation,
    share_over_seeds,
    wilson,
)


def test_t_interval_over_seeds_is_scipys() -> None:
    values = [0.7, 0.8, 0.75]
    found = over_seeds(values)
    assert found is not None
    low, high = stats.t.interval(0.95, 2, loc=np.mean(values), scale=stats.sem(values))
    assert (found.value, found.low, found.high) == pytest.approx((0.75, low, high))


@pytest.mark.parametrize(("right", "num"), [(0, 20), (20, 20), (7, 50), (99, 100)])
def test_wilson_is_scipys(right: int, num: int) -> None:
    expected = stats.binomtest(right, num).proportion_ci(method="wilson")
    assert wilson(right / num, num) == pytest.approx((expected.low, expected.high), abs=1e-12)


def test_seeds_that_agree_keep_the_doubt_of_few_pictures() -> None:
    found = share_over_seeds([1.0, 1.0, 1.0], 100)
    assert found is not None
    assert found.low == pytest.approx(wilson(1.0, 100)[0])
    assert found.high == 1.0


def test_seeds_that_differ_widen_the_interval() -> None:
    found, seeds = share_over_seeds([0.1, 0.5, 0.8], 1000), over_seeds([0.1, 0.5, 0.8])
    assert found is not None
    assert seeds is not None
    assert found.low == max(0.0, seeds.low or 0.0)
    assert found.high == min(1.0, seeds.high or 0.0)


def test_one_seed_has_the_interval_of_its_pictures_and_says_so() -> None:
    found = share_over_seeds([0.8], 100)
    assert found is not None
    assert (found.low, found.high) == wilson(0.8, 100)
    assert "one seed" in found.method


def test_a_difference_is_paired_by_seed() -> None:
    """All seeds gain the same, though they lie far apart: the seeds add no doubt to the difference."""
    found = difference_of_shares([0.9, 0.6, 0.3], [0.8, 0.5, 0.2], 10**9)
    assert found is not None
    assert (found.value, found.low, found.high) == pytest.approx((0.1, 0.1, 0.1), abs=1e-3)


def test_a_difference_of_one_seed_is_newcombes() -> None:
    """Newcombe 1998, method 10: from the Wilson intervals of both shares."""
    a, b = 0.8, 0.6
    (a_low, a_high), (b_low, b_high) = wilson(a, 75), wilson(b, 75)
    found = difference_of_shares([a], [b], 75)
    assert found is not None
    assert found.low == pytest.approx(a - b - math.sqrt((a - a_low) ** 2 + (b_high - b) ** 2))
    assert found.high == pytest.approx(a - b + math.sqrt((a_high - a) ** 2 + (b - b_low) ** 2))


def test_rank_correlation_is_spearmans() -> None:
    generator = np.random.default_rng(3)
    x = generator.normal(size=40)
    y = -x + generator.normal(size=40)
    groups = [str(index // 2) for index in range(40)]
    found = rank_correlation(list(x), list(y), groups)
    assert found is not None
    assert found.value == pytest.approx(stats.spearmanr(x, y).statistic)
    assert found.low is not None
    assert found.high is not None
    assert found.low < found.value < found.high < 0


def test_nothing_is_said_of_too_little() -> None:
    assert over_seeds([]) is None
    assert share_over_seeds([], 100) is None
    assert difference_of_shares([0.5], [], 100) is None
    assert rank_correlation([1, 2, 3], [1, 2, 3], ["a", "b", "c"]) is None
    assert rank_correlation([1.0] * 6, [1, 2, 3, 4, 5, 6], list("abcdef")) is None
    assert Estimate(0.5).above(0.1) is None
    assert Estimate(0.5).below(0.9) is None
