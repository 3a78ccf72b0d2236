"""Fits a law to points: least squares in log space in closed form, or Huber in log space where there is a floor."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from babelcap.errors import UserError
from babelcap.laws.bootstrap import least_squares, leave_out_weights
from babelcap.laws.fitted import Fit, Uncertainty
from babelcap.laws.forms import Form, form_of
from babelcap.laws.points import (
    Points,
    check_determined,
    condition_number,
    frontier,
    make_points,
    mean_over_groups,
    positive_numbers,
    with_compute,
)
from babelcap.laws.profile import calibrate, profile_intervals
from babelcap.laws.solver import Array, Problem, make_problem
from babelcap.laws.starts import best_fits

DELTA = 1e-3
NUM_OTHER_STARTS = 4
RIVAL = 1.1
COLLINEAR = 30.0
INTERVALS = ("auto", "t", "profile", "percentile", "bca")


def fit(
    form: str | Form,
    columns: Mapping[str, Any],
    y: Any,
    *,
    floor: bool = False,
    groups: Sequence[Any] | NDArray[Any] | None = None,
    delta: float | None = None,
    interval: str = "auto",
    confidence: float = 0.95,
    num_bootstrap: int = 1000,
    seed: int = 0,
    frontier_only: bool = False,
    target: str = "",
) -> Fit:
    """Fits `form` to `y` at `columns` (name -> numbers), e.g. fit("chinchilla", {"P": P, "S": S}, y).

    floor: add a floor eps to the form. groups: one name a point; points of one name are seeds of one run.
    delta: where the Huber loss turns from square to absolute, in log space; None means least squares for a product of
    powers and 1e-3 for a law with a floor. interval: auto (t where the fit has a closed form, profile elsewhere), t,
    profile, percentile or bca. frontier_only: keep only the points on the compute frontier; of groups, their means.
    """
    form = form_of(form, floor)
    if interval not in INTERVALS:
        raise UserError(f"interval: found {interval!r}; choose one of {', '.join(INTERVALS)}")
    if not 0 < confidence < 1:
        raise UserError(f"confidence: found {confidence:g}; give a number between 0 and 1, as 0.95")
    if delta is not None and not delta > 0:
        raise UserError(f"delta: found {delta:g}; give a number above zero, as 1e-3")
    if frontier_only:
        columns, y = _on_the_frontier(columns, y, groups)
        groups = None
    points = make_points(form, columns, y, groups)
    check_determined(form, points)
    delta = DELTA if delta is None and not form.is_linear else delta
    problem = make_problem(form, points.columns, np.log(points.y))
    if delta is None:
        theta, others, uncertainty = _closed_form(problem, points, confidence)
    else:
        theta, others, uncertainty = _robust(problem, points, delta, confidence, seed)
    fitted = Fit.make(
        points, problem, theta, others, uncertainty, delta=delta, confidence=confidence, target=target,
        num_bootstrap=num_bootstrap, seed=seed, warnings=[*points.notes, *_collinear(form, points)],
    )  # fmt: skip
    natural_choice = "t" if delta is None else "profile"
    if interval not in ("auto", natural_choice):
        if interval in ("t", "profile"):
            raise UserError(f"interval: {interval} does not fit {form.name}; choose {natural_choice}, percentile, bca")
        fitted.intervals = fitted.intervals_by(interval)
        fitted.interval_method = interval
    return fitted


def _on_the_frontier(
    columns: Mapping[str, Any], y: Any, groups: Sequence[Any] | NDArray[Any] | None
) -> tuple[dict[str, Any], Any]:
    """The best points for their compute. Of seeds their mean, so that a lucky seed is not the frontier."""
    columns = with_compute(dict(columns))
    if "C" not in columns:
        raise UserError("the compute frontier needs the column C, or S, F, P and Pt to compute it from")
    positive_numbers("C", columns["C"])
    if groups is not None:
        columns, y = mean_over_groups(columns, y, groups)
    rows = frontier(columns, y)
    chosen = {name: np.asarray(values)[rows] for name, values in columns.items() if np.size(values) == np.size(y)}
    return chosen, np.asarray(y)[rows]


def _collinear(form: Form, points: Points) -> list[str]:
    lines = []
    for term in form.terms:
        names = [column for column, _, _ in term.powers]
        if len(names) < 2:
            continue
        number = condition_number(np.array([np.log(points.columns[name]) for name in names]))
        if number > COLLINEAR:
            lines.append(
                f"{', '.join(names)} move together in these points (condition number {number:.0f}): "
                f"their exponents can hardly be told apart"
            )
    return lines


def _closed_form(problem: Problem, points: Points, confidence: float) -> tuple[Array, Array, Uncertainty]:
    """Least squares with t intervals; with groups, the jackknife over groups in place of the textbook errors."""
    log_y, design = np.log(points.y), problem.design
    num_points, size = len(log_y), problem.num_coefficients
    theta = least_squares(design, log_y, np.ones((1, num_points)))[0]
    residuals = log_y - theta @ design
    if points.groups is None:
        freedom = num_points - size
        covariance = np.linalg.inv(design @ design.T) * float(residuals @ residuals) / freedom
    else:
        left_out = least_squares(design, log_y, leave_out_weights(num_points, points.groups))
        freedom = len(left_out) - 1
        pull = left_out[np.isfinite(left_out).all(axis=1)] - theta
        covariance = pull.T @ pull * freedom / len(left_out)
    covariance = problem.shifts @ covariance @ problem.shifts.T
    natural = problem.to_natural(theta)
    errors = np.sqrt(np.diag(covariance))
    reach = errors * stats.t.ppf(0.5 + confidence / 2, freedom)
    with np.errstate(divide="ignore", invalid="ignore"):
        p_values = 2 * stats.t.sf(np.abs(natural) / errors, freedom)
    found = Uncertainty(natural - reach, natural + reach, "t", covariance, freedom, p_values)
    return theta, theta[None], found


def _robust(
    problem: Problem, points: Points, delta: float, confidence: float, seed: int
) -> tuple[Array, Array, Uncertainty]:
    """The best optimum of all starts, then its profile; should the profile walk into a better one, again from there."""
    log_y = np.log(points.y)
    ends, values = best_fits(problem, log_y, np.ones(len(log_y)), delta)
    theta, value, others = ends[0], float(values[0]), ends[1 : 1 + NUM_OTHER_STARTS]
    rivals = others[values[1 : 1 + NUM_OTHER_STARTS] < RIVAL * value]  # could be the best of a resampled study
    whole = make_problem(problem.form, points.columns, log_y, centred=False)
    for _ in range(3):
        generator = np.random.default_rng([seed, 1])
        threshold = calibrate(problem, theta, log_y, delta, confidence, points.groups, generator)
        starts = _with_floors(problem, np.concatenate([theta[None], others]), log_y)
        found = profile_intervals(
            whole, problem.to_natural(theta), value, problem.to_natural(starts), log_y, delta, threshold
        )
        if found.value > value * (1 - 1e-6):
            break
        theta, value = problem.from_natural(found.best[None])[0], found.value
    uncertainty = Uncertainty(found.low, found.high, "profile", freedom=len(log_y) - problem.num_coefficients)
    return theta, np.concatenate([theta[None], rivals]), uncertainty


def _with_floors(problem: Problem, ends: Array, log_y: Array) -> Array:
    """The other optima, and the best one without a floor and with a high one: where profiles find their way out."""
    if problem.floor is None:
        return ends[1:]
    moved = ends[:1].repeat(2, axis=0)
    moved[:, problem.floor] = np.array([0.0, 0.7]) * np.exp(log_y.min())
    return np.concatenate([ends[1:], moved])


def without_rows(fitted: Fit, rows: NDArray[np.bool_]) -> Fit:
    """The same form fitted to the other points; for validation, so without profile or warnings."""
    points = fitted.points.take(~rows)
    check_determined(fitted.form, points)
    problem = make_problem(fitted.form, points.columns, np.log(points.y))
    log_y, ones = np.log(points.y), np.ones(len(points))
    if fitted.delta is None:
        theta = least_squares(problem.design, log_y, ones[None])[0]
    else:
        theta = best_fits(problem, log_y, ones, fitted.delta)[0][0]
    unknown = np.full(problem.num_coefficients, np.nan)
    nothing = Uncertainty(unknown, unknown, "none", freedom=max(len(points) - problem.num_coefficients, 1))
    return Fit.make(
        replace(points, notes=()), problem, theta, theta[None], nothing, delta=fitted.delta,
        confidence=fitted.confidence, target=fitted.target, num_bootstrap=0, seed=fitted.seed, warnings=[],
    )  # fmt: skip
