"""Does a law hold where it was not fitted? Held-out errors by budget and by model, and a comparison of forms."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from babelcap.errors import UserError
from babelcap.laws.fit import fit, without_rows
from babelcap.laws.fitted import Fit
from babelcap.laws.forms import Form, form_of


@dataclass(frozen=True)
class HeldOut:
    """Errors on points that the fit had not seen. `relative` is exp(mean |log y - log prediction|) - 1."""

    what: str
    num_points: int
    relative: float
    worst: float
    bias: float  # mean of log y - log prediction: above zero, the law was too hopeful


@dataclass(frozen=True)
class Comparison:
    form: str
    num_coefficients: int
    aicc: float
    aicc_weight: float  # how probable this form is among those compared, by AICc
    r2: float
    r2_log: float
    largest_budget: HeldOut | None
    one_model: HeldOut | None
    warnings: tuple[str, ...]


def _errors(fitted: Fit, held: NDArray[np.bool_]) -> NDArray[np.float64]:
    """log y - log prediction for the rows that are held out and predicted from the others."""
    apart = without_rows(fitted, held)
    seen = {name: fitted.points.columns[name][held] for name in fitted.form.columns}
    errors: NDArray[np.float64] = np.log(fitted.points.y[held]) - np.log(apart.predict(seen))
    return errors


def _summary(what: str, errors: NDArray[np.float64]) -> HeldOut:
    size = np.abs(errors)
    return HeldOut(
        what, len(errors), float(np.expm1(size.mean())), float(np.expm1(size.max())), float(np.expm1(errors.mean()))
    )


def leave_largest_budget_out(fitted: Fit) -> HeldOut:
    """The points of the largest budget predicted from all smaller ones: does the law extrapolate?

    The budget is C where the form has it, else S; without either, the first column.
    """
    column = next((name for name in ("C", "S") if name in fitted.points.columns), fitted.form.columns[0])
    values = fitted.points.columns[column]
    held = values >= values.max() * (1 - 1e-9)
    if held.sum() == 1 and len(np.unique(values)) == len(values):
        held = values >= np.quantile(values, 0.9)  # a budget of its own each: the largest tenth
    return _summary(f"{column} >= {values[held].min():.4g}", _errors(fitted, held))


def leave_one_model_out(fitted: Fit) -> HeldOut:
    """Each model size predicted from the others: does the law hold for a model that was not trained?"""
    if "P" not in fitted.points.columns:
        raise UserError("leave-one-model-out needs the column P")
    sizes = fitted.points.columns["P"]
    distinct = np.unique(sizes)
    if len(distinct) > 20:  # sizes all their own: ten folds of neighbouring sizes
        edges = np.quantile(sizes, np.linspace(0, 1, 11)[1:-1])
        fold = np.searchsorted(edges, sizes, side="right")
        masks = [fold == index for index in range(10)]
    else:
        masks = [sizes == size for size in distinct]
    return _summary(f"each of {len(masks)} model sizes", np.concatenate([_errors(fitted, mask) for mask in masks]))


def _where_possible(check: Any, fitted: Fit) -> HeldOut | None:
    try:
        result: HeldOut = check(fitted)
    except UserError:
        return None  # too few points remain for this form
    return result


def compare(
    forms: Sequence[str | Form], columns: Mapping[str, Any], y: Any, **settings: Any
) -> tuple[list[Comparison], dict[str, str]]:
    """Forms on the same points, best AICc first; and the forms that could not be fitted, with the reason."""
    fits: list[Fit] = []
    refused: dict[str, str] = {}
    for form in forms:
        try:
            fits.append(fit(form, columns, y, **settings))
        except UserError as error:
            refused[form_of(form).name] = str(error)
    if not fits:
        raise UserError("no form could be fitted: " + "; ".join(f"{name}: {why}" for name, why in refused.items()))
    if len({len(fitted.points) for fitted in fits}) > 1:
        refused["AICc"] = "repeated rows differ between forms, so AICc compares fits of different points"
    least = min(fitted.aicc for fitted in fits)
    weights = np.exp([-0.5 * min(fitted.aicc - least, 1e3) if np.isfinite(fitted.aicc) else -np.inf for fitted in fits])
    table = [
        Comparison(
            fitted.form.name,
            len(fitted.form.coefficients),
            fitted.aicc,
            float(weight / weights.sum()),
            fitted.r2,
            fitted.r2_log,
            _where_possible(leave_largest_budget_out, fitted),
            _where_possible(leave_one_model_out, fitted),
            tuple(fitted.warnings),
        )
        for fitted, weight in zip(fits, weights, strict=True)
    ]
    return sorted(table, key=lambda row: row.aicc), refused
