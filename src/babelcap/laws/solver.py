"""Robust fits of many data sets at once: minimise sum_i w_i huber(log y_i - log sum_k exp(Z_k theta), delta).

All starts and all bootstrap replicates are rows of one batch, so a thousand fits cost a few hundred matrix products.
The step is Newton's for the points inside delta, damped by the Hessian of reweighted least squares (which is a
majoriser, so that a large damping always descends), while delta shrinks from the noise down to its final value.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from babelcap.laws.forms import Form

Array = NDArray[np.float64]
LOG_ZERO = -14.0  # a power below exp(-14), about 1e-6 of the smallest y, is as good as absent
LOG_CEILING = 60.0
MAX_EXPONENT = 20.0
TINY = 1e-300
BLOCK = 20_000  # points in work at once: small enough to stay in the processor's cache


@dataclass(frozen=True)
class Problem:
    """A form on given points: the stacked design in log space, columns centred so that coefficients decouple.

    Powers carry the log of their prefactor; the floor is carried as it is, so that a floor of zero is a point like any
    other and not one at minus infinity, where no gradient leads away from.
    """

    form: Form
    design: Array  # (coefficients, points)
    term_of: NDArray[np.intp]  # coefficient -> term
    shifts: Array  # (coefficients, coefficients): natural = shifts @ centred
    lower: Array
    upper: Array
    floor: int | None  # which coefficient is the floor

    @property
    def num_coefficients(self) -> int:
        return len(self.term_of)

    @property
    def reach(self) -> Array:
        """The longest step: e^3 for a prefactor (more where it is not centred), the whole range for the floor."""
        reach = np.full(self.num_coefficients, 3.0)
        reach[np.isinf(self.lower)] = 100.0
        if self.floor is not None:
            reach[self.floor] = self.upper[self.floor]
        return reach

    def to_natural(self, theta: Array) -> Array:
        """Centred coordinates -> log prefactors, exponents and the floor itself."""
        return theta @ self.shifts.T

    def from_natural(self, natural: Array) -> Array:
        return np.asarray(np.linalg.solve(self.shifts, natural[..., None])[..., 0], dtype=np.float64)


def make_problem(form: Form, columns: dict[str, Array], log_y: Array, centred: bool = True) -> Problem:
    num_points = len(log_y)
    rows: list[Array] = []
    term_of: list[int] = []
    size = len(form.coefficients)
    shifts = np.eye(size)
    lower, upper = np.full(size, -MAX_EXPONENT), np.full(size, MAX_EXPONENT)
    smallest, largest = float(np.min(log_y)), float(np.max(log_y))
    floor = None
    for index, term in enumerate(form.terms):
        start = len(rows)
        rows.append(np.ones(num_points))
        lower[start], upper[start] = smallest + LOG_ZERO, largest + LOG_CEILING
        if not term.powers:
            floor, lower[start], upper[start] = start, 0.0, float(np.exp(largest))
        for offset, (column, _, sign) in enumerate(term.powers, 1):
            logs = np.log(columns[column])
            middle = logs.mean() if centred else 0.0
            rows.append(sign * (logs - middle))
            shifts[start, start + offset] = -sign * middle
        if not centred and term.powers:
            lower[start], upper[start] = -np.inf, np.inf
        term_of += [index] * (1 + len(term.powers))
    return Problem(form, np.array(rows), np.array(term_of), shifts, lower, upper, floor)


def log_prediction(problem: Problem, theta: Array, design: Array | None = None) -> tuple[Array, Array]:
    """log y (fits, points) and each term's share of y (fits, terms, points)."""
    design = problem.design if design is None else design
    logs = np.empty((len(theta), len(problem.form.terms), design.shape[1]))
    for term in range(logs.shape[1]):
        mine = problem.term_of == term
        if problem.floor is not None and mine[problem.floor]:
            logs[:, term] = np.log(np.maximum(theta[:, mine], TINY))
        else:
            logs[:, term] = theta[:, mine] @ design[mine]
    peak = logs.max(axis=1, keepdims=True)
    logs -= peak
    np.exp(logs, out=logs)
    total = logs.sum(axis=1, keepdims=True)
    logs /= total
    return (peak + np.log(total))[:, 0], logs


def huber(residuals: Array, delta: float) -> Array:
    size = np.abs(residuals)
    return np.where(size <= delta, 0.5 * size**2, delta * (size - 0.5 * delta))


def objective(problem: Problem, theta: Array, log_y: Array, weights: Array, delta: float) -> Array:
    return np.sum(weights * huber(log_y - log_prediction(problem, theta)[0], delta), axis=1)


def solve(
    problem: Problem,
    theta: Array,
    log_y: Array,
    weights: Array,
    delta: float,
    *,
    fixed: NDArray[np.bool_] | None = None,
    spread: float = 0.03,
    max_steps: int = 60,
) -> tuple[Array, Array]:
    """Best theta and objective for every row of `theta`. `log_y` and `weights` have one row, or one a fit.

    `fixed` (fits, coefficients) holds coefficients at their start, which is how a profile is made.
    """
    log_y, weights = np.atleast_2d(log_y), np.atleast_2d(weights)
    fixed = np.zeros(theta.shape, dtype=bool) if fixed is None else np.broadcast_to(fixed, theta.shape)
    theta = np.where(fixed, theta, np.clip(theta, problem.lower, problem.upper))
    widths = [width for width in spread * 0.2 ** np.arange(12) if width > 1.5 * delta]
    values = np.empty(len(theta))
    block = max(16, BLOCK // log_y.shape[1])
    for start in range(0, len(theta), block):
        rows = np.arange(start, min(start + block, len(theta)))
        batch = _Batch(problem, theta[rows], _row(log_y, rows), _row(weights, rows), fixed[rows])
        for width in widths:
            batch.descend(width, 12, 1e-4)
        values[rows] = batch.descend(delta, max_steps, 1e-9)
        theta[rows] = batch.theta
    return theta, values


def _row(values: Array, rows: NDArray[np.intp]) -> Array:
    return values if len(values) == 1 else values[rows]


class _Batch:
    """Fits that descend together; those that have converged rest until delta changes."""

    def __init__(self, problem: Problem, theta: Array, log_y: Array, weights: Array, fixed: NDArray[np.bool_]) -> None:
        self.problem, self.theta, self.log_y, self.weights, self.fixed = problem, theta, log_y, weights, fixed
        self.prediction, self.shares = log_prediction(problem, theta)

    def descend(self, delta: float, max_steps: int, tolerance: float) -> Array:
        """Damped Newton steps at one delta; returns the objective."""
        values = np.sum(self.weights * huber(self.log_y - self.prediction, delta), axis=1)
        damping = np.ones(len(self.theta))
        active = np.arange(len(self.theta))
        for _ in range(max_steps):
            here, log_y, weights = self.theta[active], _row(self.log_y, active), _row(self.weights, active)
            step, promised = self._step(active, log_y, weights, delta, damping[active])
            there = np.clip(here + step, self.problem.lower, self.problem.upper)
            there = np.where(self.fixed[active], here, there)
            prediction, shares = log_prediction(self.problem, there)
            trial = np.sum(weights * huber(log_y - prediction, delta), axis=1)
            before = values[active]
            better = trial < before
            moved = active[better]
            self.theta[moved], values[moved] = there[better], trial[better]
            self.prediction[moved], self.shares[moved] = prediction[better], shares[better]
            factor = np.where(better, damping[active] / 5, damping[active] * 6)
            damping[active] = np.clip(factor, 1e-7, 1e9)
            done = (promised <= 0.01 * tolerance * before) | (factor >= 1e8)
            done |= better & (before - trial <= tolerance * before) & (factor < 1e-2)
            active = active[~done]
            if not len(active):
                break
        return values

    def _step(
        self, active: NDArray[np.intp], log_y: Array, weights: Array, delta: float, damping: Array
    ) -> tuple[Array, Array]:
        """The damped Newton step and the decrease it promises."""
        problem, theta, prediction = self.problem, self.theta[active], self.prediction[active]
        residuals = log_y - prediction
        jacobian = self.shares[active][:, problem.term_of] * problem.design
        if problem.floor is not None:
            jacobian[:, problem.floor] = np.exp(-np.maximum(prediction, log_y - 20.0))
        size = np.abs(residuals)
        inside = size <= delta
        majoriser = delta / np.maximum(size, delta)
        gradient = np.matmul(jacobian, (residuals * majoriser * weights)[:, :, None])[:, :, 0]
        curvature = weights * (inside + damping[:, None] * majoriser)
        hessian = np.matmul(jacobian * curvature[:, None, :], jacobian.transpose(0, 2, 1))
        held = self.fixed[active] | ((theta <= problem.lower) & (gradient < 0))
        held |= (theta >= problem.upper) & (gradient > 0)
        gradient[held] = 0.0
        free = ~held
        hessian *= free[:, :, None] & free[:, None, :]
        diagonal = np.einsum("rii->ri", hessian)
        diagonal += np.where(held, 1.0, 1e-9 * diagonal + 1e-12 * diagonal.max(axis=1, keepdims=True) + 1e-300)
        step = np.linalg.solve(hessian, gradient[:, :, None])[:, :, 0]
        step = np.nan_to_num(step)
        step /= np.maximum(np.max(np.abs(step) / problem.reach, axis=1, keepdims=True), 1.0)
        return step, 0.5 * np.sum(step * gradient, axis=1)
