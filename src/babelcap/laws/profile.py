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
MAX_LOG_RANGE = 60.0  # how far a prefactor is followed: 26 orders of magnitude
NUM_RUNGS = 5
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
    """Fits with one coefficient held, and the best fit met on the way."""

    def __init__(self, problem: Problem, log_y: Array, delta: float, theta: Array, value: float) -> None:
        self.problem, self.log_y, self.delta = problem, log_y, delta
        self.start_value = value
        self.middle = problem.design.mean(axis=1)
        self.ones = np.ones((1, len(log_y)))
        self.best, self.value = theta, value

    def moved(self, starts: Array, coefficient: int, at: float) -> Array:
        """Starts with one coefficient moved and its term's others after it, so that the term keeps its middle height.

        Without that a new exponent would lift or sink its term by orders of magnitude, from where no search returns.
        """
        starts = starts.copy()
        change = at - starts[:, coefficient]
        starts[:, coefficient] = at
        mine = np.flatnonzero(self.problem.term_of == self.problem.term_of[coefficient])
        prefactor, exponents = mine[0], mine[1:]
        lever = self.middle[exponents]
        if coefficient != prefactor:
            starts[:, prefactor] -= change * self.middle[coefficient]
        elif len(exponents) and lever @ lever > 1e-6:
            starts[:, exponents] -= change[:, None] * lever / (lever @ lever)
        return starts

    def constrained(self, coefficient: NDArray[np.intp], at: Array, starts: Array) -> tuple[Array, Array]:
        """The best fit of each row with one coefficient held; `starts` is (rows, starts, coefficients)."""
        rows, num_starts = starts.shape[:2]
        moved = [self.moved(starts[row], int(coefficient[row]), float(at[row])) for row in range(rows)]
        held = np.arange(self.problem.num_coefficients) == coefficient[:, None]
        held = np.repeat(held, num_starts, axis=0)
        spread = max(0.02, 5 * self.delta)
        ends, values = solve(
            self.problem, np.concatenate(moved), self.log_y, self.ones, self.delta, fixed=held, spread=spread
        )
        values = values.reshape(rows, num_starts)
        chosen = values.argmin(axis=1)
        ends = ends.reshape(rows, num_starts, -1)[np.arange(rows), chosen]
        values = values[np.arange(rows), chosen]
        if values.min() < self.value:
            self.best, self.value = ends[values.argmin()], float(values.min())
        return ends, values


class _Ladder:
    """The rungs of one end of one interval, from the estimate outwards: where, the best fit there, its objective."""

    def __init__(self, coefficient: int, side: float, theta: Array, value: float, scale: float, limit: float) -> None:
        self.coefficient, self.side, self.scale, self.limit = coefficient, side, scale, limit
        self.at, self.ends, self.values = [float(theta[coefficient])], [theta], [value]

    def next_rungs(self) -> list[float]:
        """Each twice as far as the last, up to the limit."""
        done = len(self.at) - 1
        reach = self.at[0] + self.side * 0.5 * self.scale * 2.0 ** np.arange(done, done + NUM_RUNGS)
        inside = [float(place) for place in reach if self.side * (self.limit - place) > 0]
        closed = len(inside) < NUM_RUNGS and self.at[-1] != self.limit
        return [*inside, self.limit] if closed else inside

    def last_accepted(self, ceiling: float) -> int:
        """The outermost rung that fits: a search that got stuck further in does not end the interval there."""
        return max(index for index, value in enumerate(self.values) if value <= ceiling or index == 0)

    def is_open(self, ceiling: float) -> bool:
        """Until two rungs in a row are refused, or the limit is reached."""
        return self.at[-1] != self.limit and self.last_accepted(ceiling) > len(self.at) - 3


def profile_intervals(
    problem: Problem, theta: Array, value: float, others: Array, log_y: Array, delta: float, threshold: float
) -> Profile:
    """`problem` is uncentred, so that a coefficient of the formula is one coordinate; `others` are further starts."""
    ceiling = max(value, smallest_value(len(log_y))) * (1 + threshold)
    search = _Search(problem, log_y, delta, theta, value)
    starts = np.concatenate([theta[None], others])
    scale = _standard_errors(problem, theta, log_y)
    ladders = []
    for index in range(problem.num_coefficients):
        low = max(problem.lower[index], theta[index] - MAX_LOG_RANGE)
        high = min(problem.upper[index], theta[index] + MAX_LOG_RANGE)
        for side, limit in ((-1.0, float(low)), (1.0, float(high))):
            ladders.append(_Ladder(index, side, theta, value, float(scale[index]), limit))
    _climb(search, ladders, starts, ceiling)
    ends = np.array([_end(search, ladder, ceiling, problem.floor) for ladder in ladders])
    return Profile(ends[0::2], ends[1::2], search.best, search.value)


def _climb(search: _Search, ladders: list[_Ladder], starts: Array, ceiling: float) -> None:
    """Adds rungs to all ladders at once, each then tried again from its neighbours, until every end is found."""
    while growing := [ladder for ladder in ladders if ladder.at[-1] == ladder.at[0] or ladder.is_open(ceiling)]:
        rungs = [(ladder, place) for ladder in growing for place in ladder.next_rungs()]
        growing = [ladder for ladder in growing if ladder.at[-1] != ladder.limit]
        if not rungs:
            return
        warm = np.array([np.concatenate([ladder.ends[-1][None], starts]) for ladder, _ in rungs])
        which = np.array([ladder.coefficient for ladder, _ in rungs])
        ends, values = search.constrained(which, np.array([place for _, place in rungs]), warm)
        for (ladder, place), end, value in zip(rungs, ends, values, strict=True):
            ladder.at.append(place)
            ladder.ends.append(end)
            ladder.values.append(float(value))
        for _ in range(2):
            _try_neighbours(search, growing, ceiling)


def _try_neighbours(search: _Search, ladders: list[_Ladder], ceiling: float) -> None:
    """A refused rung may only be a search that got stuck: try it from where its neighbours ended."""
    refused = [
        (ladder, index) for ladder in ladders for index in range(1, len(ladder.at)) if ladder.values[index] > ceiling
    ]
    if not refused:
        return
    near = [[ladder.ends[index - 1], ladder.ends[min(index + 1, len(ladder.at) - 1)]] for ladder, index in refused]
    which = np.array([ladder.coefficient for ladder, _ in refused])
    places = np.array([ladder.at[index] for ladder, index in refused])
    ends, values = search.constrained(which, places, np.array(near))
    for (ladder, index), end, value in zip(refused, ends, values, strict=True):
        if value < ladder.values[index]:
            ladder.ends[index], ladder.values[index] = end, float(value)


def _end(search: _Search, ladder: _Ladder, ceiling: float, floor: int | None) -> float:
    """Between the last accepted rung and the next, by the secant of the root of the statistic and by halves."""
    index = ladder.last_accepted(ceiling)
    if index == len(ladder.at) - 1:
        at_zero = ladder.coefficient == floor and ladder.side < 0
        return ladder.limit if at_zero else ladder.side * np.inf
    inside, outside = ladder.at[index], ladder.at[index + 1]
    near = np.array([ladder.ends[index], ladder.ends[index + 1]])
    base = search.start_value
    below, above = (np.sqrt(max(ladder.values[i] - base, 0.0) / (ceiling - base)) - 1 for i in (index, index + 1))
    for turn in range(8):
        if abs(outside - inside) <= 1e-3 * ladder.scale:
            break
        share = float(np.clip(below / (below - above), 0.1, 0.9)) if turn % 3 else 0.5
        place = inside + share * (outside - inside)
        ends, values = search.constrained(np.array([ladder.coefficient]), np.array([place]), near[None])
        excess = np.sqrt(max(float(values[0]) - base, 0.0) / (ceiling - base)) - 1
        if excess > 0:
            outside, above, near[1] = place, excess, ends[0]
        else:
            inside, below, near[0] = place, excess, ends[0]
    return 0.5 * (inside + outside)


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
