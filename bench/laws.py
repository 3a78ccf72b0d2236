"""Time of a bootstrap of the chinchilla law: all replicates in one batch, against scipy's curve_fit in a loop.

Seconds of processor time in one thread, so that other work on the machine changes little. The limit is what evaluating
the law alone takes, as often as the batch asks for it.

Run: python bench/laws.py [--quick] [--json]
With --coverage N instead: how often profile and percentile intervals hold the truth in N simulated studies.
"""

import argparse
import json
import time
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from babelcap.laws import Fit, fit, solver

Array = NDArray[np.float64]
DELTA = 1e-3


TRUTH = {"E": 1.8172, "A": 482.01, "a": 0.3478, "B": 2085.43, "b": 0.3658}


def points(num_points: int, seed: int = 0) -> tuple[dict[str, Array], Array]:
    generator = np.random.default_rng(seed)
    P = np.exp(generator.uniform(np.log(4.4e7), np.log(1.6e10), num_points))
    S = np.exp(generator.uniform(np.log(6e18), np.log(3e21), num_points)) / 6 / P
    return {"P": P, "S": S}, losses(P, S, 0.01, generator)


def losses(P: Array, S: Array, noise: float, generator: np.random.Generator) -> Array:
    law = TRUTH["E"] + TRUTH["A"] / P ** TRUTH["a"] + TRUTH["B"] / S ** TRUTH["b"]
    return np.asarray(law * np.exp(noise * generator.standard_normal(len(P))))


def coverage(num_studies: int) -> dict[str, dict[str, float]]:
    """The share of studies whose 95 % intervals hold the truth, over all coefficients."""
    P, S = map(np.ravel, np.meshgrid([4.3e8, 1.04e9, 3.5e9, 1.12e10], [5.12e5, 2.048e6, 5.12e6, 1.024e7]))
    shares: dict[str, dict[str, float]] = {}
    for name in ("60 points, 1 % noise", "4 sizes by 4 budgets, 2 % noise"):
        hits: dict[str, list[bool]] = {"profile": [], "percentile": []}
        for seed in range(num_studies):
            columns, y = points(60, seed)
            if name.startswith("4"):
                columns, y = {"P": P, "S": S}, losses(P, S, 0.02, np.random.default_rng(seed))
            fitted = fit("chinchilla", columns, y, num_bootstrap=300)
            for method, found in (("profile", fitted.intervals), ("percentile", fitted.intervals_by("percentile"))):
                hits[method] += [found[key][0] <= value <= found[key][1] for key, value in TRUTH.items()]
        shares[name] = {method: float(np.mean(values)) for method, values in hits.items()}
    return shares


def law(log_P: Array, log_S: Array, E: float, log_A: float, a: float, log_B: float, b: float) -> Array:
    return np.log(abs(E) + np.exp(log_A - a * log_P) + np.exp(log_B - b * log_S))


def loop_seconds(columns: dict[str, Array], y: Array, start: list[float], num_replicates: int, robust: bool) -> float:
    """Seconds a replicate from the optimum: curve_fit, least squares; or BFGS on the Huber loss, as is usual."""
    log_P, log_S, log_y = np.log(columns["P"]), np.log(columns["S"]), np.log(y)
    generator = np.random.default_rng(1)
    begin = time.process_time()
    for _ in range(num_replicates):
        rows = generator.integers(len(y), size=len(y))
        P, S, target = log_P[rows], log_S[rows], log_y[rows]
        if robust:
            optimize.minimize(
                lambda x, P=P, S=S, target=target: np.sum(special.huber(DELTA, target - law(P, S, *x))),
                start,
                method="BFGS",
            )
        else:
            optimize.curve_fit(lambda _, *x, P=P, S=S: law(P, S, *x), P, target, p0=start, maxfev=5000)
    return (time.process_time() - begin) / num_replicates


class Batch(NamedTuple):
    """Seconds of a fit with its profile, of its replicates, and of these in the law itself."""

    once: float
    replicates: float
    evaluated: float
    fitted: Fit


def batch_seconds(columns: dict[str, Array], y: Array, num_replicates: int, delta: float) -> Batch:
    begin = time.process_time()
    fitted = fit("chinchilla", columns, y, num_bootstrap=num_replicates, delta=delta)
    middle, evaluated, evaluate = time.process_time(), 0.0, solver.log_prediction

    def timed(*given: Any) -> Any:
        nonlocal evaluated
        start = time.process_time()
        found = evaluate(*given)
        evaluated += time.process_time() - start
        return found

    with patch.object(solver, "log_prediction", timed):
        assert len(fitted.replicates) == num_replicates
    return Batch(middle - begin, time.process_time() - middle, evaluated, fitted)


def measure(num_points: int, num_replicates: int, num_in_loop: int) -> dict[str, float]:
    columns, y = points(num_points)
    robust = batch_seconds(columns, y, num_replicates, DELTA)
    squares = batch_seconds(columns, y, num_replicates, 1e3)
    c = robust.fitted.coefficients
    start = [c["E"], np.log(c["A"]), c["a"], np.log(c["B"]), c["b"]]
    curve_fit = num_replicates * loop_seconds(columns, y, start, num_in_loop, robust=False)
    bfgs = num_replicates * loop_seconds(columns, y, start, num_in_loop, robust=True)
    return {
        "points": num_points,
        "replicates": num_replicates,
        "fit_and_profile_seconds": robust.once,
        "robust_batch_seconds": robust.replicates,
        "robust_bfgs_loop_seconds": bfgs,
        "squares_batch_seconds": squares.replicates,
        "squares_curve_fit_loop_seconds": curve_fit,
        "robust_ratio": bfgs / robust.replicates,
        "squares_ratio": curve_fit / squares.replicates,
        "robust_share_of_evaluating": robust.evaluated / robust.replicates,
        "squares_share_of_evaluating": squares.evaluated / squares.replicates,
        "curve_fit_loop_to_robust_batch": curve_fit / robust.replicates,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer replicates")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--coverage", type=int, metavar="N", help="coverage in N studies instead of time")
    arguments = parser.parse_args()
    if arguments.coverage:
        for name, shares in coverage(arguments.coverage).items():
            print(f"  {name:32}", *(f"{method} {100 * share:.1f} %" for method, share in shares.items()))
        return
    result = measure(200, 200 if arguments.quick else 1000, 20 if arguments.quick else 100)
    if arguments.json:
        print(json.dumps(result))
        return
    print("chinchilla, {points} points, {replicates} bootstrap replicates, seconds of one core".format(**result))
    print("  fit: best optimum and profile intervals   {fit_and_profile_seconds:7.2f}".format(**result))
    print("  bootstrap                     one batch   scipy in a loop    loop / batch")
    print(
        "    Huber loss, against BFGS      {robust_batch_seconds:7.2f}           {robust_bfgs_loop_seconds:7.2f}"
        "         {robust_ratio:7.1f}".format(**result)
    )
    print(
        "    least squares, curve_fit      {squares_batch_seconds:7.2f}           {squares_curve_fit_loop_seconds:7.2f}"
        "         {squares_ratio:7.1f}".format(**result)
    )


if __name__ == "__main__":
    main()
