"""Bootstrap of the fit: points, or whole groups of points, are drawn with replacement; percentile and BCa intervals."""

import numpy as np
from numpy.typing import NDArray
from scipy import special

from babelcap.laws.solver import Array, Problem, solve


def draw_weights(
    num_points: int, groups: NDArray[np.intp] | None, num_replicates: int, generator: np.random.Generator
) -> Array:
    """How often each point is drawn, (replicates, points). Points of one group are drawn together."""
    num_units = num_points if groups is None else int(groups.max()) + 1
    counts = generator.multinomial(num_units, np.full(num_units, 1 / num_units), size=num_replicates).astype(float)
    return counts if groups is None else counts[:, groups]


def leave_out_weights(num_points: int, groups: NDArray[np.intp] | None) -> Array:
    """One row a unit, which is left out: the jackknife."""
    if groups is None:
        return 1.0 - np.eye(num_points)
    return (groups[None, :] != np.arange(int(groups.max()) + 1)[:, None]).astype(float)


def least_squares(design: Array, log_y: Array, weights: Array) -> Array:
    """Weighted least squares for every row of weights; rows that do not determine the coefficients become NaN."""
    gram = np.matmul(design[None] * weights[:, None, :], design.T)
    right = (weights * log_y) @ design.T
    scale = np.sqrt(np.einsum("rii->ri", gram))
    scale = np.where(scale > 0, scale, 1.0)
    scaled = gram / scale[:, :, None] / scale[:, None, :]
    fair = np.linalg.eigvalsh(scaled)[:, 0] > 1e-10
    theta = np.full(right.shape, np.nan)
    theta[fair] = np.linalg.solve(scaled[fair], (right[fair] / scale[fair])[:, :, None])[:, :, 0] / scale[fair]
    return theta


def refit(problem: Problem, starts: Array, log_y: Array, weights: Array, delta: float | None) -> Array:
    """The coefficients (replicates, coefficients), centred, for every row of weights; the best of all starts."""
    if delta is None:
        return least_squares(problem.design, log_y, weights)
    best, values = solve(problem, starts[:1].repeat(len(weights), axis=0), log_y, weights, delta, spread=0.02)
    for start in starts[1:]:
        again, other = solve(problem, start[None].repeat(len(weights), axis=0), log_y, weights, delta, spread=0.02)
        better = other < values
        best[better], values[better] = again[better], other[better]
    return best


def percentile_interval(replicates: Array, confidence: float) -> tuple[Array, Array]:
    tail = (1 - confidence) / 2
    low, high = np.nanquantile(replicates, [tail, 1 - tail], axis=0)
    return low, high


def bca_interval(replicates: Array, estimate: Array, jackknife: Array, confidence: float) -> tuple[Array, Array]:
    """Percentiles corrected for bias (share of replicates below the estimate) and acceleration (jackknife skewness)."""
    tail = (1 - confidence) / 2
    ends = np.empty((2, len(estimate)))
    for index, value in enumerate(estimate):
        drawn = replicates[:, index][np.isfinite(replicates[:, index])]
        below = (np.sum(drawn < value) + 0.5 * np.sum(drawn == value)) / len(drawn)
        bias = special.ndtri(np.clip(below, 1 / len(drawn), 1 - 1 / len(drawn)))
        left = jackknife[:, index][np.isfinite(jackknife[:, index])]
        pull = left.mean() - left
        spread = np.sum(pull**2)
        acceleration = np.sum(pull**3) / (6 * spread**1.5) if spread > 0 else 0.0
        normal = bias + special.ndtri([tail, 1 - tail])
        adjusted = special.ndtr(bias + normal / (1 - acceleration * normal))
        ends[:, index] = np.quantile(drawn, adjusted)
    return ends[0], ends[1]
