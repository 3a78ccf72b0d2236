"""Studies with known coefficients: the truth that fits have to find."""

import numpy as np
from numpy.typing import NDArray

from babelcap.laws import Law, form_of

Array = NDArray[np.float64]
TRUTH = {
    "compute": (200.0, -0.2),
    "ps": (400.0, -0.2, -0.15),
    "pst": (300.0, -0.2, -0.15, 0.5),
    "compute+eps": (200.0, -0.2, 0.8),
    "ps+eps": (400.0, -0.2, -0.15, 0.5),
    "pst+eps": (300.0, -0.2, -0.15, 0.5, 0.5),
    "chinchilla": (1.8172, 482.01, 0.3478, 2085.43, 0.3658),
}


def true_law(name: str) -> Law:
    form = form_of(name)
    return Law(form, dict(zip(form.coefficients, TRUTH[name], strict=True)), {})


def study(name: str, num_points: int, noise: float, generator: np.random.Generator) -> tuple[dict[str, Array], Array]:
    """Columns and losses with lognormal noise, over the ranges of published studies."""
    P = np.exp(generator.uniform(np.log(4.4e7), np.log(1.6e10), num_points))
    if name == "chinchilla":
        S = np.exp(generator.uniform(np.log(6e18), np.log(3e21), num_points)) / 6 / P
    else:
        S = np.exp(generator.uniform(np.log(1e6), np.log(1e9), num_points))
    columns = {"P": P, "S": S, "T": generator.uniform(2, 8, num_points), "C": P * S / 1e9}
    return columns, true_law(name).predict(columns) * np.exp(noise * generator.standard_normal(num_points))


def grid(num_seeds: int = 1) -> dict[str, Array]:
    """Four model sizes by four budgets, as in the paper."""
    P, S = np.meshgrid([428.8e6, 1039.7e6, 3485e6, 11221.8e6], np.array([500.0, 2000.0, 5000.0, 10000.0]) * 1024)
    return {"P": np.tile(P.ravel(), num_seeds), "S": np.tile(S.ravel(), num_seeds)}
