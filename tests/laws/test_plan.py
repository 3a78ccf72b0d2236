"""Plans agree with the algebra of the laws they are made from."""

import numpy as np
import pytest

from babelcap.errors import UserError
from babelcap.laws import Cost, fit, iso_loss, plan_for_budget, plan_for_loss, published, worth_of
from laws.simulated import grid, study, true_law


def test_best_size_of_a_sum_of_powers_is_the_closed_form() -> None:
    """Setting the derivative to zero: P^(a+b) = (a A / b B) (C / k)^b for a cost of k P a sample."""
    law = true_law("chinchilla")
    C, k = 1e21, 6.0
    plan = plan_for_budget(law, C, cost=Cost(k, 1.0), limits=(1e7, 1e12))
    c = law.coefficients
    expected = (c["a"] * c["A"] / (c["b"] * c["B"]) * (C / k) ** c["b"]) ** (1 / (c["a"] + c["b"]))
    assert float(plan.P) == pytest.approx(expected, rel=0.01)
    assert float(plan.S) == pytest.approx(C / k / plan.P)
    back = plan_for_loss(law, plan.loss, cost=Cost(k, 1.0), limits=(1e7, 1e12))
    assert float(back.C) == pytest.approx(C, rel=1e-3)
    assert float(back.P) == pytest.approx(plan.P, rel=0.05)


def test_a_fit_gives_the_plan_intervals() -> None:
    columns, y = study("chinchilla", 60, 0.01, np.random.default_rng(1))
    fitted = fit("chinchilla", columns, y, num_bootstrap=100)
    plan = plan_for_budget(fitted, 1e21, cost=Cost(6.0, 1.0))
    truth = plan_for_budget(true_law("chinchilla"), 1e21, cost=Cost(6.0, 1.0), limits=(1e7, 1e12))
    assert plan.intervals["P"][0] < truth.P < plan.intervals["P"][1]
    cheapest = plan_for_loss(fitted, 2.5, cost=Cost(6.0, 1.0))
    assert cheapest.intervals["C"][0] < cheapest.C < cheapest.intervals["C"][1]


def test_a_product_of_powers_has_no_best_size_and_says_so() -> None:
    plan = plan_for_budget(published("paper-v1", "UC"), 1e19)
    assert "no best size" in plan.notes[0]
    assert "P" not in plan.intervals
    assert float(plan.P) == pytest.approx(11221.8e6)


def test_a_loss_out_of_reach() -> None:
    with pytest.raises(UserError, match="below the law's floor"):
        plan_for_loss(true_law("chinchilla"), 1.5)
    with pytest.raises(UserError, match="no S reaches"):
        plan_for_loss(true_law("chinchilla"), 1.82, limits=(1e8, 1e9))


def test_extrapolation_is_named() -> None:
    plan = plan_for_loss(published("paper-v1", "SC"), 0.1)
    assert any("times above the largest" in line for line in plan.notes)


def test_what_a_lower_initial_loss_is_worth() -> None:
    generator = np.random.default_rng(2)
    columns = grid() | {"T": generator.uniform(3, 8, 16)}
    y = true_law("pst").predict(columns) * np.exp(0.01 * generator.standard_normal(16))
    fitted = fit("pst", columns, y)
    worth = worth_of(fitted, 6, 4, "P")
    assert worth.factor == pytest.approx((4 / 6) ** (0.5 / -0.2), rel=0.1)
    assert worth.interval is not None
    assert worth.interval[0] < worth.factor < worth.interval[1]
    c = fitted.coefficients
    assert worth.factor ** c["b1"] == pytest.approx((4 / 6) ** c["b3"])
    with pytest.raises(UserError, match="needs a product of powers with T"):
        worth_of(true_law("ps"), 6, 4)


def test_iso_loss_curves_have_that_loss() -> None:
    law = true_law("chinchilla")
    P, S = iso_loss(law, np.array([2.5, 3.0]), limits=(1e8, 1e11))
    for level, needed in zip((2.5, 3.0), S, strict=True):
        inside = np.isfinite(needed)
        assert inside.any()
        assert law.predict({"P": P[inside], "S": needed[inside]}) == pytest.approx(level, rel=1e-6)


def test_cost_comes_from_the_points() -> None:
    columns = grid()
    columns |= {"F": 150 * columns["P"] ** 0.9, "Pt": 0.5 * columns["P"]}
    y = true_law("ps").predict(columns) * np.exp(0.01 * np.random.default_rng(3).standard_normal(16))
    cost = Cost.from_points(fit("ps", columns, y))
    assert (cost.factor, cost.exponent) == pytest.approx((225, 0.9))
