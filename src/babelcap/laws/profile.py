"""Intervals by profiling: all values of a coefficient at which the best fit is not significantly worse than the best.

The statistic is (Q(fixed) - Q(best)) / Q(best). Its 95 % point under the noise at hand comes from simulating the law
linearised at the best fit, with the fit's own residuals; that makes it right for a Huber loss with few points, where
textbook formulas are not, and it follows the curved valleys of a law with a floor, where standard errors do not.
"""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from babelcap.laws.forms import Form, Term
from babelcap.laws.solver import Array, Problem, log_prediction, solve

NUM_CALIBRATION = 1000  # simulated values of the statistic, spread over the coefficients
FEW_RESIDUALS = 8
MAX_LOG_RANGE = 60.0
MAX_STEPS = 30  # the few that have not ended by then are near enough


@dataclass(frozen=True)
class Profile:
    low: Array
    high: Array
    best: Array  # at least as good as the start: a profile walks through the whole valley
    value: float


def jacobian_at(problem: Problem, theta: Array) -> Array:
    """d log y / d theta, (coefficients, points)."""
    prediction, shares = log_prediction(problem, theta[None])
    jacobian = shares[0, problem.term_of] * problem.design
    if problem.floor is not None:
        jacobian[problem.floor] = np.exp(-prediction[0])
    return jacobian


def smallest_value(num_points: int) -> float:
    """The objective of residuals of 1e-7: below that a fit is exact and a ratio to it means nothing."""
    return num_points * 0.5e-14


def calibrate(
    problem: Problem,
    theta: Array,
    log_y: Array,
    delta: float,
    confidence: float,
    groups: NDArray[np.intp] | None,
    generator: np.random.Generator,
) -> float:
    """The quantile of the profile statistic when a coefficient is held at its true value.

    What the linearised law and the few residuals leave out makes this a little small with few points (intervals of
    16 to 60 points covered 93 to 94 % in simulation), hence the widening, which fades as points are added.
    """
    residuals = log_y - log_prediction(problem, theta[None])[0][0]
    num_points, size = len(log_y), problem.num_coefficients
    directions = np.linalg.svd(jacobian_at(problem, theta), full_matrices=False)[2] * np.sqrt(num_points)
    noise = _noise(residuals, size, groups, generator)
    linear = replace(
        problem,
        form=Form("linear", (Term("mean"),)),
        design=directions,
        term_of=np.zeros(size, dtype=np.intp),
        shifts=np.eye(size),
        lower=np.full(size, -np.inf),
        upper=np.full(size, np.inf),
        floor=None,
    )
    ones = np.ones((1, num_points))
    spread = max(float(np.std(residuals)), 2 * delta)
    best, values = solve(linear, np.zeros((len(noise), size)), noise, ones, delta, spread=spread, max_steps=MAX_STEPS)
    values = np.maximum(values, smallest_value(num_points))
    ratios = []
    for direction in range(size):
        held = np.zeros((1, size), dtype=bool)
        held[0, direction] = True
        start = np.where(held, 0.0, best)
        ends = solve(linear, start, noise, ones, delta, fixed=held, spread=5 * delta, max_steps=MAX_STEPS)[1]
        ratios.append(ends / values - 1)
    num_units = num_points if groups is None else int(groups.max()) + 1
    widening = np.sqrt(num_units / max(num_units - size, 1))
    return float(widening * np.quantile(np.concatenate(ratios), confidence))


def _noise(residuals: Array, size: int, groups: NDArray[np.intp] | None, generator: np.random.Generator) -> Array:
    """Simulated noise (simulations, points) with the size and shape of the residuals.

    A loss that is nearly absolute passes through as many points as it has coefficients: those residuals are zero by
    construction and left out. A group takes all its noise from one other group, so that its points stay alike.
    """
    unit = np.arange(len(residuals)) if groups is None else groups
    num_units, num_draws = int(unit.max()) + 1, -(-NUM_CALIBRATION // size)
    members = [np.flatnonzero(unit == index) for index in range(num_units)]
    scale = float(np.sqrt(np.mean(residuals**2) * num_units / max(num_units - size, 1)))
    if num_units - size < FEW_RESIDUALS or scale < 1e-6:
        return max(scale, 1e-6) * generator.standard_normal((num_draws, num_units))[:, unit]
    order = np.argsort([np.abs(residuals[rows]).mean() for rows in members])
    largest = max(len(rows) for rows in members)
    donors = np.array([np.resize(residuals[members[index]], largest) for index in order[size:]])
    donor = generator.integers(len(donors), size=(num_draws, num_units))
    sign = generator.choice([-1.0, 1.0], size=(num_draws, num_units))
    rank = np.empty(len(residuals), dtype=np.intp)
    for rows in members:
        rank[rows] = np.arange(len(rows))
    return sign[:, unit] * donors[donor[:, unit], rank]


class _Search:
    """Both ends of every coefficient's interval at once; rows are (coefficient, side)."""

    def __init__(self, problem: Problem, log_y: Array, delta: float, others: Array) -> None:
        self.problem, self.log_y, self.delta, self.others = problem, log_y, delta, others
        self.ones = np.ones((1, len(log_y)))
        self.best, self.value = others[0], np.inf

    def constrained(self, coefficient: NDArray[np.intp], at: Array, warm: Array, close: bool) -> tuple[Array, Array]:
        """The best fit with one coefficient held, over the warm start and, unless that is close, the other optima."""
        others = self.others[:0] if close else self.others
        rows, num_starts = len(at), 1 + len(others)
        starts = np.concatenate([warm[:, None], np.repeat(others[None], rows, axis=0)], axis=1)
        starts[np.arange(rows), :, coefficient] = at[:, None]
        held = np.arange(self.problem.num_coefficients) == coefficient[:, None]
        held = np.repeat(held, num_starts, axis=0)
        flat = starts.reshape(rows * num_starts, -1)
        spread = 5 * self.delta if close else max(0.02, 5 * self.delta)
        ends, values = solve(
            self.problem, flat, self.log_y, self.ones, self.delta, fixed=held, spread=spread, max_steps=MAX_STEPS
        )
        values = values.reshape(rows, num_starts)
        chosen = values.argmin(axis=1)
        ends = ends.reshape(rows, num_starts, -1)[np.arange(rows), chosen]
        least = int(values.min(axis=1).argmin())
        if values.min() < self.value:
            self.best, self.value = ends[least], float(values.min())
        return ends, values.min(axis=1)


def profile_intervals(
    problem: Problem, theta: Array, value: float, others: Array, log_y: Array, delta: float, threshold: float
) -> Profile:
    """`problem` is uncentred, so that a coefficient of the formula is one coordinate; `others` are further starts."""
    size = problem.num_coefficients
    base = max(value, smallest_value(len(log_y)))
    search = _Search(problem, log_y, delta, np.concatenate([theta[None], others]))
    search.value = value
    search.best = theta
    coefficient = np.repeat(np.arange(size), 2)
    side = np.tile([-1.0, 1.0], size)
    scale = _standard_errors(problem, theta, log_y)[coefficient]
    limit = _limits(problem, theta, side)
    inside = theta[coefficient].copy()
    outside = np.full(2 * size, np.nan)
    excess_inside, excess_outside = np.full(2 * size, -1.0), np.full(2 * size, np.nan)
    warm = theta[None].repeat(2 * size, axis=0)

    def evaluate(rows: NDArray[np.intp], at: Array, close: bool) -> Array:
        ends, values = search.constrained(coefficient[rows], at, warm[rows], close)
        warm[rows] = ends
        return np.sqrt(np.maximum(values / base - 1, 0.0) / threshold) - 1

    reach = 1.5 * scale
    for _ in range(14):
        rows = np.flatnonzero(np.isnan(outside) & (inside != limit))
        if not len(rows):
            break
        at = theta[coefficient[rows]] + side[rows] * reach[rows]
        at = np.where(side[rows] < 0, np.maximum(at, limit[rows]), np.minimum(at, limit[rows]))
        excess = evaluate(rows, at, False)
        beyond = excess > 0
        outside[rows[beyond]], excess_outside[rows[beyond]] = at[beyond], excess[beyond]
        inside[rows[~beyond]], excess_inside[rows[~beyond]] = at[~beyond], excess[~beyond]
        reach[rows] *= 2.0
    _bisect(evaluate, inside, outside, excess_inside, excess_outside)
    at_floor = coefficient == (-1 if problem.floor is None else problem.floor)
    unbounded = np.isnan(outside) & ~(at_floor & (side < 0))
    ends = np.where(np.isnan(outside), limit, 0.5 * (inside + np.nan_to_num(outside)))
    ends = np.where(unbounded, side * np.inf, ends)
    return Profile(ends[0::2], ends[1::2], search.best, search.value)


def _bisect(evaluate: "object", inside: Array, outside: Array, below: Array, above: Array) -> None:
    """Halves the gap between the last accepted and the first refused value, by the secant where that is safe."""
    assert callable(evaluate)
    for turn in range(9):
        gap = np.abs(outside - inside) / np.maximum(np.abs(outside) + np.abs(inside), 1e-12)
        rows = np.flatnonzero(~np.isnan(outside) & (gap > 1e-4))
        if not len(rows):
            return
        share = np.clip(below[rows] / (below[rows] - above[rows]), 0.1, 0.9) if turn % 3 else np.full(len(rows), 0.5)
        at = inside[rows] + share * (outside[rows] - inside[rows])
        excess = evaluate(rows, at, True)
        beyond = excess > 0
        outside[rows[beyond]], above[rows[beyond]] = at[beyond], excess[beyond]
        inside[rows[~beyond]], below[rows[~beyond]] = at[~beyond], excess[~beyond]


def _standard_errors(problem: Problem, theta: Array, log_y: Array) -> Array:
    """From the curvature at the optimum: only the scale of the first steps."""
    jacobian = jacobian_at(problem, theta)
    residuals = log_y - log_prediction(problem, theta[None])[0][0]
    spread = max(float(np.sqrt(np.mean(residuals**2))), 1e-7)
    size = np.linalg.norm(jacobian, axis=1)
    scaled = jacobian / np.maximum(size, 1e-300)[:, None]
    inverse = np.linalg.pinv(scaled @ scaled.T, rcond=1e-10, hermitian=True)
    errors = spread * np.sqrt(np.maximum(np.diag(inverse), 1.0)) / np.maximum(size, 1e-12)
    return np.clip(errors, 1e-9, 5.0)


def _limits(problem: Problem, theta: Array, side: Array) -> Array:
    """How far a coefficient is followed: exponents to their bound, prefactors over 26 orders of magnitude."""
    low = np.maximum(problem.lower, theta - MAX_LOG_RANGE)
    high = np.minimum(problem.upper, theta + MAX_LOG_RANGE)
    return np.where(side < 0, low.repeat(2), high.repeat(2))
