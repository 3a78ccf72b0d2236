"""A fitted law: its coefficients with intervals, how well it fits, and what it predicts with how much doubt."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from scipy import stats

from babelcap.errors import UserError
from babelcap.laws.bootstrap import bca_interval, draw_weights, leave_out_weights, percentile_interval, refit
from babelcap.laws.law import Law, evaluate
from babelcap.laws.points import Points
from babelcap.laws.solver import Array, Problem, log_prediction, solve
from babelcap.records import LawFit


@dataclass
class Uncertainty:
    """Ends of the intervals in natural coordinates (log prefactors, exponents, the floor), and how they were found."""

    low: Array
    high: Array
    method: str
    covariance: Array | None = None
    freedom: int = 1
    p_values: Array | None = None


@dataclass
class Fit(Law):
    points: Points = field(kw_only=True, repr=False)
    problem: Problem = field(kw_only=True, repr=False)
    theta: Array = field(kw_only=True, repr=False)  # centred coordinates
    optima: Array = field(kw_only=True, repr=False)
    uncertainty: Uncertainty = field(kw_only=True, repr=False)
    delta: float | None = None
    confidence: float = 0.95
    interval_method: str = "t"
    num_bootstrap: int = 1000
    seed: int = 0
    not_identified: dict[str, str] = field(default_factory=dict)

    @classmethod
    def make(
        cls, points: Points, problem: Problem, theta: Array, optima: Array, uncertainty: Uncertainty, **settings: Any
    ) -> "Fit":
        form = problem.form
        values = to_formula(problem, problem.to_natural(theta))
        if not np.isfinite(values).all():
            spans = ", ".join(f"{name} {v.min():.3g} to {v.max():.3g}" for name, v in points.columns.items())
            raise UserError(f"form {form.name}: no finite coefficients fit these points ({spans}); look for odd values")
        low, high = to_formula(problem, uncertainty.low), to_formula(problem, uncertainty.high)
        fitted = cls(
            form,
            dict(zip(form.coefficients, map(float, values), strict=True)),
            dict(zip(form.coefficients, zip(map(float, low), map(float, high), strict=True), strict=True)),
            points=points,
            problem=problem,
            theta=theta,
            optima=optima,
            uncertainty=uncertainty,
            interval_method=uncertainty.method,
            ranges={name: (float(v.min()), float(v.max())) for name, v in points.columns.items()},
            **settings,
        )
        fitted._judge()
        return fitted

    def _judge(self) -> None:
        """Names the coefficients that the points cannot pin down."""
        level = f"{100 * self.confidence:g} %"
        bounds = zip(self.form.coefficients, self.uncertainty.low, self.uncertainty.high, strict=True)
        for name, low, high in bounds:
            if name == self.form.floor and low <= 0:
                reach = f"any floor from 0 to {high:.3g}" if np.isfinite(high) else "any floor"
                self.not_identified[name] = f"the points fit {reach} equally well ({level})"
            elif np.isinf(low) or np.isinf(high):
                sides = "on either side" if np.isinf(low) and np.isinf(high) else "on one side"
                self.not_identified[name] = f"its {level} interval has no end {sides}"
        self.warnings += [f"{name} is not identified: {reason}" for name, reason in self.not_identified.items()]
        if self.uncertainty.freedom < 3:
            self.warnings.append(
                f"{len(self.points)} points leave {self.uncertainty.freedom} to judge the noise by: "
                f"the intervals are as wide as they must be, more points would narrow them"
            )

    @cached_property
    def residuals(self) -> Array:
        """log y - log prediction, a point each."""
        residuals: Array = np.log(self.points.y) - log_prediction(self.problem, self.theta[None])[0][0]
        return residuals

    @property
    def r2(self) -> float:
        """The share of the variance of y that the law explains."""
        y = self.points.y
        return _r2(y, y * np.exp(-self.residuals))

    @property
    def r2_log(self) -> float:
        log_y = np.log(self.points.y)
        return _r2(log_y, log_y - self.residuals)

    @cached_property
    def aicc(self) -> float:
        """Corrected Akaike criterion of the least-squares fit in log space, comparable between forms; low is good."""
        num_points, size = len(self.points), self.problem.num_coefficients + 1
        if num_points - size - 1 <= 0:
            return float("inf")
        squares = float(self.residuals @ self.residuals)
        if self.delta is not None:
            ones = np.ones((1, num_points))
            squares = 2 * float(solve(self.problem, self.optima, np.log(self.points.y), ones, 1e3)[1].min())
        likelihood = num_points * np.log(max(squares / num_points, 1e-30))
        return float(likelihood + 2 * size + 2 * size * (size + 1) / (num_points - size - 1))

    @cached_property
    def replicates(self) -> Array:
        """Bootstrap of the coefficients in natural coordinates, (replicates, coefficients)."""
        if self.num_bootstrap < 20:
            raise UserError(f"num_bootstrap: found {self.num_bootstrap}; this needs at least 20 replicates")
        generator = np.random.default_rng([self.seed, 2])
        weights = draw_weights(len(self.points), self.points.groups, self.num_bootstrap, generator)
        found = self.problem.to_natural(self._refit(weights))
        found = found[np.isfinite(found).all(axis=1)]
        if len(found) < 0.5 * self.num_bootstrap:
            raise UserError(
                f"bootstrap: only {len(found)} of {self.num_bootstrap} replicates determine the law; add points"
            )
        return found

    def _refit(self, weights: Array) -> Array:
        return refit(self.problem, self.optima[:3], np.log(self.points.y), weights, self.delta)

    @cached_property
    def standard_errors(self) -> dict[str, float]:
        """Of the coefficients as the formula has them: from the covariance where it is closed, else the bootstrap's."""
        if self.uncertainty.covariance is not None:
            errors = np.sqrt(np.diag(self.uncertainty.covariance))
            scale = [
                self.coefficients[name] if name in self.form.prefactors else 1.0 for name in self.form.coefficients
            ]
            errors = errors * np.array(scale)  # d exp(x) = exp(x) dx
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                errors = to_formula(self.problem, self.replicates).std(axis=0, ddof=1)
        return dict(zip(self.form.coefficients, map(float, errors), strict=True))

    @property
    def p_values(self) -> dict[str, float]:
        """Of exponent = 0, and of log prefactor = 0, from the t distribution; empty where there is no closed form."""
        if self.uncertainty.p_values is None:
            return {}
        return dict(zip(self.form.coefficients, map(float, self.uncertainty.p_values), strict=True))

    def intervals_by(self, method: str) -> dict[str, tuple[float, float]]:
        """Intervals by bootstrap, `percentile` or `bca`, whatever the fit's own method is."""
        if method == "percentile":
            low, high = percentile_interval(self.replicates, self.confidence)
        elif method == "bca":
            jackknife = self.problem.to_natural(self._refit(leave_out_weights(len(self.points), self.points.groups)))
            estimate = self.problem.to_natural(self.theta)
            low, high = bca_interval(self.replicates, estimate, jackknife, self.confidence)
        else:
            raise UserError(f"interval: found {method!r}; choose percentile or bca")
        ends = zip(map(float, to_formula(self.problem, low)), map(float, to_formula(self.problem, high)), strict=True)
        return dict(zip(self.form.coefficients, ends, strict=True))

    def prediction_interval(
        self, columns: Mapping[str, Any] | None = None, *, of_mean: bool = False, **named: Any
    ) -> tuple[Array, Array]:
        """Where a new run's y will lie with the fit's confidence; `of_mean`: where the law itself lies."""
        at = self._columns(columns, named)
        if self.uncertainty.covariance is not None:
            return self._t_interval(at, of_mean)
        values = evaluate(self.form, self.replicates, at)
        if not of_mean:
            generator = np.random.default_rng([self.seed, 3])
            values = values * np.exp(self.noise * generator.standard_t(self.uncertainty.freedom, size=values.shape))
        return percentile_interval(values, self.confidence)

    @property
    def noise(self) -> float:
        """Standard deviation of log y around the law."""
        lost = self.problem.num_coefficients
        return float(np.sqrt(np.sum(self.residuals**2) / max(len(self.points) - lost, 1)))

    def _t_interval(self, at: dict[str, Array], of_mean: bool) -> tuple[Array, Array]:
        assert self.uncertainty.covariance is not None
        shape = next(iter(at.values())).shape
        logs = [sign * np.log(at[column]) for column, _, sign in self.form.terms[0].powers]
        gradient = np.stack([np.ones(shape), *logs], axis=-1)
        variance = np.einsum("...i,ij,...j->...", gradient, self.uncertainty.covariance, gradient)
        variance = variance + (0.0 if of_mean else self.noise**2)
        reach = stats.t.ppf(0.5 + self.confidence / 2, self.uncertainty.freedom) * np.sqrt(variance)
        middle = self.predict(at)
        with np.errstate(over="ignore", invalid="ignore"):  # no bound
            return middle * np.exp(-reach), middle * np.exp(reach)

    def to_record(self) -> LawFit:
        """All of it as a value that is written to files."""
        ends = {name: (_or_none(low), _or_none(high)) for name, (low, high) in self.intervals.items()}
        groups = self.points.groups
        return LawFit(
            form=self.form.name,
            formula=self.form.formula,
            target=self.target,
            coefficients=self.coefficients,
            intervals=ends,
            confidence=self.confidence,
            interval_method=self.interval_method,
            standard_errors={name: _or_none(error) for name, error in self.standard_errors.items()},
            p_values={name: _or_none(value) for name, value in self.p_values.items()},
            not_identified=self.not_identified,
            r2=self.r2,
            r2_log=self.r2_log,
            aicc=_or_none(self.aicc),
            num_points=len(self.points),
            num_groups=None if groups is None else int(groups.max()) + 1,
            ranges=self.ranges,
            warnings=self.warnings,
            extra={"delta": self.delta, "noise": self.noise},
        )


def to_formula(problem: Problem, natural: Array) -> Array:
    """Natural coordinates -> coefficients as the formula has them: prefactors are no longer logs."""
    values = np.array(natural, dtype=float)
    for index, name in enumerate(problem.form.coefficients):
        if name in problem.form.prefactors and index != problem.floor:
            with np.errstate(over="ignore"):
                values[..., index] = np.exp(values[..., index])
    return values


def _r2(y: Array, prediction: Array) -> float:
    unit = float(np.abs(y).max()) or 1.0  # squares of the largest numbers would be too large for a number
    with np.errstate(over="ignore"):  # a prediction far off: no law at all
        y, prediction = y / unit, prediction / unit
    total = float(np.sum((y - y.mean()) ** 2))
    return 1 - float(np.sum((y - prediction) ** 2)) / total if total > 0 else float("nan")


def _or_none(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None
