"""Input that cannot carry a law: one clear line or a stated 'not identified', never a confident number."""

from typing import Any

import numpy as np
import pytest

from babelcap.errors import UserError
from babelcap.laws import fit
from babelcap.laws.starts import non_negative_least_squares
from laws.simulated import grid, study, true_law

FORMS = ["ps", "ps+eps", "chinchilla"]


def points() -> tuple[dict[str, Any], np.ndarray]:
    return study("ps", 16, 0.02, np.random.default_rng(1))


def refused(message: str, form: str, columns: dict[str, Any], y: Any) -> None:
    with pytest.raises(UserError, match=message) as caught:
        fit(form, columns, y)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("form", FORMS)
def test_two_points(form: str) -> None:
    columns, y = points()
    refused("2 distinct points", form, {name: values[:2] for name, values in columns.items()}, y[:2])


@pytest.mark.parametrize("form", FORMS)
def test_one_model_size(form: str) -> None:
    columns, y = points()
    refused("one model size", form, columns | {"P": np.full(16, 1e9)}, y)


@pytest.mark.parametrize("form", FORMS)
def test_constant_column(form: str) -> None:
    columns, y = points()
    refused("column S: one value", form, columns | {"S": np.full(16, 1e6)}, y)


def test_two_model_sizes_do_not_carry_three_coefficients() -> None:
    columns, y = points()
    refused("needs three", "chinchilla", columns | {"P": np.tile([1e9, 2e9], 8)}, y)


@pytest.mark.parametrize(("value", "message"), [(-1.0, "above zero"), (0.0, "above zero"), (np.nan, "missing")])
def test_losses_that_are_none(value: float, message: str) -> None:
    columns, y = points()
    y[3] = value
    refused(f"column y: .*{message}", "ps", columns, y)


def test_columns_that_are_no_numbers() -> None:
    columns, y = points()
    refused("column P: found 'large'", "ps", columns | {"P": ["large"] * 16}, y)
    refused("column P: .*missing", "ps", columns | {"P": [None] + [1e9] * 15}, y)
    refused("needs the column S", "ps", {"P": columns["P"]}, y)
    refused("15 values for 16", "ps", columns | {"P": columns["P"][:15]}, y)


def test_columns_that_are_one() -> None:
    columns, y = points()
    refused("not identified apart", "ps", columns | {"S": columns["P"] ** 2}, y)


def test_columns_that_are_nearly_one_are_named() -> None:
    generator = np.random.default_rng(2)
    columns, _ = points()
    columns["S"] = columns["P"] ** 2 * np.exp(0.01 * generator.standard_normal(16))
    y = true_law("ps").predict(columns) * np.exp(0.02 * generator.standard_normal(16))
    fitted = fit("ps", columns, y)
    assert any("move together" in line for line in fitted.warnings)
    low, high = fitted.intervals["b2"]
    assert high - low > 0.5


def test_duplicate_rows_count_once() -> None:
    columns, y = points()
    once = fit("ps", columns, y)
    twice = fit("ps", {name: np.tile(values, 2) for name, values in columns.items()}, np.tile(y, 2))
    assert twice.intervals["b1"] == pytest.approx(once.intervals["b1"])
    assert any("16 of 32 rows repeat" in line for line in twice.warnings)
    refused(
        "distinct points",
        "ps",
        {name: np.repeat(values[:2], 9) for name, values in columns.items()},
        np.repeat(y[:2], 9),
    )


def test_a_term_that_is_not_there_is_not_identified() -> None:
    """The loss does not depend on S at all: B and b can be anything."""
    generator = np.random.default_rng(3)
    columns = grid(2)
    y = (1.8 + 482 / columns["P"] ** 0.35) * np.exp(0.01 * generator.standard_normal(32))
    fitted = fit("chinchilla", columns, y)
    assert "b" in fitted.not_identified or "B" in fitted.not_identified


def test_constant_loss_has_no_slope() -> None:
    columns, _ = points()
    y = 3 * np.exp(0.01 * np.random.default_rng(4).standard_normal(16))
    low, high = fit("ps", columns, y).intervals["b1"]
    assert low < 0 < high
    assert "eps" in fit("ps+eps", columns, y).not_identified or fit("ps+eps", columns, y).intervals["b1"][0] < 0


def test_few_points_are_said_to_be_few() -> None:
    columns, y = points()
    fitted = fit("ps", {name: values[:4] for name, values in columns.items()}, y[:4])
    assert any("4 points leave 1" in line for line in fitted.warnings)


def test_groups_have_to_carry_the_law() -> None:
    columns, y = points()
    with pytest.raises(UserError, match="2 groups for 3 coefficients"):
        fit("ps", columns, y, groups=np.repeat([0, 1], 8))
    with pytest.raises(UserError, match="3 names for 16 points"):
        fit("ps", columns, y, groups=[1, 2, 3])


def test_a_term_that_vanishes_gives_no_start_and_no_singular_matrix() -> None:
    """The first fit has nothing in its second term, the second is infinite, the third fits exactly."""
    basis = np.array([[[1.0, 2.0], [0.0, 0.0]], [[np.inf, 1.0], [np.inf, np.inf]], [[0.25, 0.5], [0.5, 0.0]]])
    with np.errstate(invalid="ignore"):
        sizes = non_negative_least_squares(basis)
    assert sizes[0] == pytest.approx([0.6, 0.0])  # (1, 2) nearest to (1, 1): 3 / 5
    assert sizes[1].tolist() == [0.0, 0.0]
    assert sizes[2] == pytest.approx([2.0, 1.0])
