"""Fits find the truth: against scipy where there is a closed form, against exhaustive search where there is none."""

import numpy as np
import pytest
from scipy import optimize, stats

from babelcap.errors import UserError
from babelcap.laws import Form, Term, fit, form_of
from laws.simulated import TRUTH, grid, study, true_law


def test_closed_form_agrees_with_linregress() -> None:
    columns, y = study("compute", 24, 0.05, np.random.default_rng(1))
    fitted = fit("compute", columns, y)
    expected = stats.linregress(np.log(columns["C"]), np.log(y))
    assert fitted.coefficients["a1"] == pytest.approx(expected.slope)
    assert np.log(fitted.coefficients["a0"]) == pytest.approx(expected.intercept)
    assert fitted.standard_errors["a1"] == pytest.approx(expected.stderr)
    assert fitted.p_values["a1"] == pytest.approx(expected.pvalue)
    assert fitted.r2_log == pytest.approx(expected.rvalue**2)
    reach = stats.t.ppf(0.975, 22) * expected.stderr
    assert fitted.intervals["a1"] == pytest.approx((expected.slope - reach, expected.slope + reach))
    assert fitted.interval_method == "t"


@pytest.mark.parametrize("name", ["ps", "pst", "compute+eps", "ps+eps", "pst+eps", "chinchilla"])
def test_noiseless_coefficients_are_found(name: str) -> None:
    columns, y = study(name, 30, 0.0, np.random.default_rng(2))
    fitted = fit(name, columns, y)
    for coefficient, value in zip(form_of(name).coefficients, TRUTH[name], strict=True):
        assert fitted.coefficients[coefficient] == pytest.approx(value, rel=1e-3), coefficient
    assert fitted.r2 == pytest.approx(1)


def test_chinchilla_is_the_best_optimum_of_an_exhaustive_search() -> None:
    """240 runs with heavy-tailed noise, raw numbers of that size, and the Huber objective of the literature."""
    generator = np.random.default_rng(3)
    columns, y = study("chinchilla", 240, 0.0, generator)
    y = y * np.exp(0.004 * generator.standard_t(2.5, size=240))
    fitted = fit("chinchilla", columns, y)
    log_P, log_S, log_y = np.log(columns["P"]), np.log(columns["S"]), np.log(y)

    def objective(x: np.ndarray) -> float:
        log_E, log_A, a, log_B, b = x
        terms = [np.full(240, log_E), log_A - a * log_P, log_B - b * log_S]
        residuals = np.abs(log_y - np.logaddexp.reduce(terms))
        return float(np.sum(np.where(residuals <= 1e-3, 0.5 * residuals**2, 1e-3 * (residuals - 0.5e-3))))

    c = fitted.coefficients
    mine = objective(np.array([np.log(c["E"]), np.log(c["A"]), c["a"], np.log(c["B"]), c["b"]]))
    for _ in range(8):
        start = generator.uniform([-1, 0, 0, 0, 0], [1, 15, 1, 15, 1])
        found = optimize.minimize(objective, start, method="Nelder-Mead", options={"maxfev": 3000})
        assert mine <= found.fun * (1 + 1e-7)
    assert c["E"] == pytest.approx(1.8172, abs=0.03)
    assert c["a"] == pytest.approx(0.3478, abs=0.02)
    assert c["b"] == pytest.approx(0.3658, abs=0.02)


def test_robust_fit_shrugs_off_an_outlier() -> None:
    columns, y = study("pst+eps", 40, 0.005, np.random.default_rng(4))
    y[7] *= 2
    assert fit("pst+eps", columns, y).coefficients["b1"] == pytest.approx(-0.2, abs=0.02)


def test_floor_is_found_when_there_is_one() -> None:
    columns, y = study("compute+eps", 40, 0.01, np.random.default_rng(5))
    fitted = fit("compute", columns, y, floor=True)
    low, high = fitted.intervals["eps"]
    assert 0 < low < 0.8 < high
    assert not fitted.not_identified


def test_floor_is_not_identified_when_there_is_none() -> None:
    columns, y = study("ps", 40, 0.01, np.random.default_rng(6))
    fitted = fit("ps+eps", columns, y)
    assert fitted.intervals["eps"][0] == 0
    assert "eps" in fitted.not_identified
    assert any("eps is not identified" in line for line in fitted.warnings)
    assert fitted.to_record().not_identified


def test_any_product_of_powers_and_own_forms() -> None:
    generator = np.random.default_rng(7)
    columns = {name: np.exp(generator.uniform(0, 3, 30)) for name in ("depth", "width", "D")}
    y = 5 * columns["depth"] ** -0.3 * columns["width"] ** -0.2 * columns["D"] ** 0.1
    fitted = fit("power:depth,width,D", columns, y)
    assert list(fitted.coefficients.values()) == pytest.approx([5, -0.3, -0.2, 0.1])
    own = Form("own", (Term("k", (("depth", "x", 1), ("width", "z", -1))), Term("low")))
    fitted = fit(own, columns, 2 + 4 * columns["depth"] ** -0.5 * columns["width"] ** -0.4)
    assert fitted.coefficients == pytest.approx({"k": 4, "x": -0.5, "z": 0.4, "low": 2}, rel=1e-3)


def test_prediction_takes_dict_or_keywords_and_covers() -> None:
    columns, y = study("ps", 30, 0.02, np.random.default_rng(8))
    fitted = fit("ps", columns, y)
    assert fitted.predict(P=1e9, S=1e7) == pytest.approx(fitted.predict({"P": [1e9], "S": [1e7]})[0])
    low, high = fitted.prediction_interval(P=1e9, S=1e7)
    inner_low, inner_high = fitted.prediction_interval(P=1e9, S=1e7, of_mean=True)
    assert low < inner_low < fitted.predict(P=1e9, S=1e7) < inner_high < high
    assert np.log(high / low) == pytest.approx(2 * 0.02 * 2.05, rel=0.4)
    with pytest.raises(UserError, match="needs S"):
        fitted.predict(P=1e9)


def test_extrapolation_is_named() -> None:
    columns, y = study("ps", 30, 0.02, np.random.default_rng(9))
    lines = fit("ps", columns, y).extrapolations(P=1e12, S=1e7)
    assert len(lines) == 1
    assert "P = 1e+12" in lines[0]


def test_same_seed_same_answer_and_order_of_points_is_nothing() -> None:
    columns, y = study("ps+eps", 24, 0.02, np.random.default_rng(10))
    first, again = fit("ps+eps", columns, y), fit("ps+eps", columns, y)
    assert first.intervals == again.intervals
    assert first.standard_errors == again.standard_errors
    turned = fit("ps+eps", {name: values[::-1] for name, values in columns.items()}, y[::-1])
    assert turned.coefficients == pytest.approx(first.coefficients, rel=1e-4)


def test_bootstrap_intervals_agree_with_t_intervals() -> None:
    columns, y = study("ps", 100, 0.03, np.random.default_rng(11))
    fitted = fit("ps", columns, y)
    for method in ("percentile", "bca"):
        for name, (low, high) in fitted.intervals_by(method).items():
            if name == "b0":
                continue
            expected = fitted.intervals[name]
            assert high - low == pytest.approx(expected[1] - expected[0], rel=0.25)
            assert low < fitted.coefficients[name] < high


def test_seeds_of_one_run_stay_together() -> None:
    """Three seeds that share their run's deviation tell little more than one: intervals must not shrink by sqrt(3)."""
    generator = np.random.default_rng(12)
    columns = grid(3)
    shared = np.tile(0.05 * generator.standard_normal(16), 3)
    y = true_law("ps").predict(columns) * np.exp(shared + 0.001 * generator.standard_normal(48))
    runs = np.tile(np.arange(16), 3)

    def width(name: str, **settings: object) -> float:
        low, high = fit("ps", columns, y, **settings).intervals[name]  # type: ignore[arg-type]
        return high - low

    one = {name: values[:16] for name, values in columns.items()}
    low, high = fit("ps", one, y[:16]).intervals["b1"]
    assert width("b1") < 0.7 * (high - low)
    assert width("b1", groups=runs) == pytest.approx(high - low, rel=0.3)
    assert width("b1", groups=runs, interval="percentile") > 1.2 * width("b1", interval="percentile")


def test_record_round_trips_and_unknown_settings_are_refused() -> None:
    columns, y = study("ps", 20, 0.02, np.random.default_rng(13))
    record = fit("ps", columns, y, target="UC").to_record()
    assert type(record).model_validate_json(record.model_dump_json()) == record
    with pytest.raises(UserError, match="form"):
        fit("psx", columns, y)
    with pytest.raises(UserError, match="interval"):
        fit("ps", columns, y, interval="wald")
    with pytest.raises(UserError, match="profile does not fit"):
        fit("ps", columns, y, interval="profile")
