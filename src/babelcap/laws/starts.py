"""Where a fit begins: a grid over what is not linear, the rest solved exactly, so that no basin is missed.

One product of powers with a floor is linear in log(y - floor): the grid runs over the floor. A sum of several powers
is linear in its prefactors: the grid runs over the exponents, the prefactors by non-negative least squares.
"""

from itertools import combinations, product

import numpy as np

from babelcap.laws.forms import Term
from babelcap.laws.solver import Array, Problem, objective, solve

FLOOR_SHARES = (*np.linspace(0.05, 0.95, 19), 0.97, 0.98, 0.99, 0.995, 0.999, 1.005, 1.02, 1.05)
NUM_GRID_POINTS = 300
NUM_POLISHED = 48


def make_starts(problem: Problem, log_y: Array) -> Array:
    """Starts (fits, coefficients) in centred coordinates."""
    with_powers = [term for term in problem.form.terms if term.powers]
    if len(with_powers) == 1 and problem.form.floor:
        return _floor_grid(problem, log_y)
    return _exponent_grid(problem, log_y)


def _floor_grid(problem: Problem, log_y: Array) -> Array:
    mine = np.arange(problem.num_coefficients) != problem.floor
    y = np.exp(log_y)
    starts = []
    for share in (0.0, *FLOOR_SHARES):
        above = np.maximum(y - share * y.min(), 0.02 * np.median(y - 0.9 * y.min()))
        theta = np.empty(problem.num_coefficients)
        theta[mine] = np.linalg.lstsq(problem.design[mine].T, np.log(above), rcond=None)[0]
        theta[~mine] = share * y.min()
        starts.append(theta)
    return np.array(starts)


def _exponent_grid(problem: Problem, log_y: Array) -> Array:
    form = problem.form
    prefactors = np.array([form.coefficients.index(name) for name in form.prefactors])
    exponents = np.array([i for i in range(problem.num_coefficients) if i not in set(prefactors)])
    per_axis = max(3, round(NUM_GRID_POINTS ** (1 / max(len(exponents), 1))))
    axis = np.geomspace(0.02, 2.5, per_axis)
    grid = np.array(list(product(axis, repeat=len(exponents)))).reshape(-1, len(exponents))
    theta = np.zeros((len(grid), problem.num_coefficients))
    theta[:, exponents] = grid
    signs = np.array([sign for term in form.terms for sign in (1, *(power[2] for power in term.powers))])
    theta *= np.where(signs > 0, -1.0, 1.0)  # a loss falls as its columns grow
    masks = [problem.term_of == term for term in range(len(form.terms))]
    basis = np.stack([np.exp(theta[:, mine] @ problem.design[mine]) for mine in masks], axis=1)
    sizes = non_negative_least_squares(basis * np.exp(-log_y))
    with np.errstate(divide="ignore"):
        theta[:, prefactors] = np.log(sizes)
    if problem.floor is not None:
        theta[:, problem.floor] = sizes[:, form.terms.index(Term(form.coefficients[problem.floor]))]
    return np.clip(theta, problem.lower, problem.upper)


def non_negative_least_squares(basis: Array) -> Array:
    """For each (terms, points) matrix the non-negative sizes whose sum comes nearest to one everywhere.

    There are few terms, so every subset of them is solved and the best one without a negative size is kept.
    """
    num_fits, num_terms, _ = basis.shape
    gram = basis @ basis.transpose(0, 2, 1)
    target = basis.sum(axis=2)
    best = np.full(num_fits, np.inf)
    sizes = np.zeros((num_fits, num_terms))
    for count in range(1, num_terms + 1):
        for subset in map(list, combinations(range(num_terms), count)):
            block = gram[:, subset][:, :, subset]
            size = np.trace(block, axis1=1, axis2=2)
            # Where a term is nothing or infinite at all points there is nothing to solve, and no start.
            fair = np.isfinite(block).all(axis=(1, 2)) & (np.einsum("nii->ni", block) > 0).all(axis=1)
            block = np.where(fair[:, None, None], block + 1e-12 * size[:, None, None] * np.eye(count), np.eye(count))
            found = np.linalg.solve(block, target[:, subset][:, :, None])[:, :, 0]
            loss = -np.sum(found * target[:, subset], axis=1)
            better = fair & (found >= 0).all(axis=1) & (loss < best)
            best[better] = loss[better]
            sizes[better] = 0.0
            sizes[np.ix_(better, subset)] = found[better]
    return sizes


def best_fits(problem: Problem, log_y: Array, weights: Array, delta: float) -> tuple[Array, Array]:
    """The distinct optima over all starts, best first: the most promising starts are followed to their end."""
    starts = make_starts(problem, log_y)
    spread = 0.05
    first = objective(problem, starts, log_y[None], weights[None], spread)
    order = np.argsort(first)
    chosen = np.unique(np.concatenate([order[:NUM_POLISHED], order[:: max(1, len(order) // 16)]]))
    ends, values = solve(problem, starts[chosen], log_y, weights, delta, spread=spread)
    kept: list[int] = []
    for index in np.argsort(values):
        if all(np.abs(ends[index] - ends[other]).max() > 1e-3 for other in kept):
            kept.append(int(index))
    return ends[kept], values[kept]
