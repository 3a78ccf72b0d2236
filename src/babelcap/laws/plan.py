"""Plans from a law: what to train for a budget, what a loss costs, what a lower T is worth, curves of equal loss.

A sample costs c(P) = F(P) (1 + Pt/P) multiply-accumulates; a budget C buys S = C / c(P) samples. F and Pt/P as powers
of P come from the points, or F = 128 P and Pt = P stand in: one multiply-accumulate a parameter for 128 tokens.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from babelcap.errors import UserError
from babelcap.laws.fitted import Fit
from babelcap.laws.law import Law, evaluate
from babelcap.laws.points import positive_numbers
from babelcap.laws.solver import Array

TOKENS = 128.0
NUM_SIZES = 1201
REACH = 10.0  # how far beyond the points' sizes a plan may look
NUM_DRAWS = 400
S_RANGE = (1.0, 1e18)


@dataclass(frozen=True)
class Cost:
    """Multiply-accumulates a sample costs in training: factor * P^exponent."""

    factor: float = 2 * TOKENS
    exponent: float = 1.0
    source: str = "assumed: 128 multiply-accumulates a parameter, all of them trained"

    def per_sample(self, P: Array) -> Array:
        cost: Array = self.factor * P**self.exponent
        return cost

    @classmethod
    def from_points(cls, law: Law) -> "Cost":
        """A power of P through the points' F (1 + Pt/P), where the law was fitted to points that have them."""
        columns = law.points.columns if isinstance(law, Fit) else {}
        if not {"P", "F", "Pt"} <= set(columns):
            return cls()
        P, first = np.unique(columns["P"], return_index=True)
        cost = columns["F"][first] * (1 + columns["Pt"][first] / P)
        if len(P) == 1:
            return cls(float(cost[0] / P[0]), 1.0, "one model size, its cost taken as proportional to P")
        slope, middle = np.polyfit(np.log(P), np.log(cost), 1)
        return cls(float(np.exp(middle)), float(slope), f"fitted to {len(P)} model sizes")


@dataclass
class Plan:
    """The best choice and, where the law has replicates, its interval: name -> (low, high)."""

    P: float
    S: float
    C: float
    loss: float
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def draws_of(law: Law) -> Array | None:
    """Coefficients as uncertain as the fit: bootstrap replicates; none for a law of which only numbers are known."""
    return law.replicates[:NUM_DRAWS] if isinstance(law, Fit) else None


def _sizes(law: Law, limits: tuple[float, float] | None) -> Array:
    """Sizes to choose from. A product of powers has no best size, so it is not asked beyond the sizes of its points."""
    low, high = law.ranges.get("P", (1e6, 1e12))
    reach = 1.0 if _is_product(law) else REACH
    low, high = limits or (low / reach, high * reach)
    if not 0 < low < high:
        raise UserError(f"limits of P: found {low:g} to {high:g}; the first has to be smaller, both above zero")
    return np.geomspace(low, high, NUM_SIZES)


def _is_product(law: Law) -> bool:
    return len([term for term in law.form.terms if term.powers]) == 1


def _check(law: Law) -> None:
    if not {"P", "S"} <= set(law.form.columns):
        raise UserError(f"a plan weighs P against S, and {law.form.name} ({law.form.formula}) has not both")


def _others(law: Law, at: Mapping[str, float] | None) -> dict[str, float]:
    """The law's further columns, as T: given, or the middle of the points."""
    others = {}
    for name in law.form.columns:
        if name in ("P", "S"):
            continue
        if at and name in at:
            others[name] = float(positive_numbers(name, at[name]))
        elif isinstance(law, Fit):
            others[name] = float(np.median(law.points.columns[name]))
        else:
            raise UserError(f"a plan with {law.form.name} needs a value of {name}")
    return others


def _interval(values: Array) -> tuple[float, float]:
    low, high = np.nanquantile(values, [0.025, 0.975])
    return float(low), float(high)


def _edge_notes(law: Law, P: Array, best: int) -> list[str]:
    if 0 < best < len(P) - 1:
        return []
    end, way = ("smallest", "smaller") if best == 0 else ("largest", "larger")
    why = "a product of powers has no best size along a budget" if _is_product(law) else "the law has its best beyond"
    return [f"P is the {end} allowed: {why}, {way} would be better still; set the limits to look further"]


def plan_for_budget(
    law: Law,
    C: float,
    *,
    cost: Cost | None = None,
    at: Mapping[str, float] | None = None,
    limits: tuple[float, float] | None = None,
    with_intervals: bool = True,
) -> Plan:
    """The P and S of lowest loss that a budget of C multiply-accumulates buys."""
    _check(law)
    C = float(positive_numbers("C", C))
    cost = cost or Cost.from_points(law)
    P, others = _sizes(law, limits), _others(law, at)
    S = C / cost.per_sample(P)
    columns = {"P": P, "S": S} | {name: np.full_like(P, value) for name, value in others.items()}
    losses = law.predict(columns)
    best = int(np.argmin(losses))
    plan = Plan(float(P[best]), float(S[best]), C, float(losses[best]), notes=_edge_notes(law, P, best))
    draws = draws_of(law) if with_intervals else None
    if draws is not None:
        drawn = evaluate(law.form, draws, columns)
        chosen = drawn.argmin(axis=1)
        plan.intervals["loss"] = _interval(drawn[:, best])
        if not plan.notes:  # at an edge it is the limit that chose, which is not uncertain and not a finding
            plan.intervals |= {"P": _interval(P[chosen]), "S": _interval(S[chosen])}
    plan.notes += law.extrapolations({"P": plan.P, "S": plan.S, **others})
    return plan


def samples_for(law: Law, natural: Array, P: Array, target: float, others: Mapping[str, float]) -> Array:
    """The S at which the law reaches `target`, (draws, sizes); NaN where no S does."""
    low = np.full((len(natural), len(P)), np.log(S_RANGE[0]))
    high = np.full_like(low, np.log(S_RANGE[1]))

    def losses(log_S: Array) -> Array:
        rows = []
        for index in range(len(natural)):
            columns = {"P": P, "S": np.exp(log_S[index])}
            columns |= {name: np.full_like(P, value) for name, value in others.items()}
            rows.append(evaluate(law.form, natural[index : index + 1], columns)[0])
        return np.array(rows)

    reached = (losses(high) <= target) & (losses(low) > target)
    for _ in range(50):
        middle = 0.5 * (low + high)
        above = losses(middle) > target
        low, high = np.where(above, middle, low), np.where(above, high, middle)
    return np.where(reached, np.exp(high), np.nan)


def plan_for_loss(
    law: Law,
    target: float,
    *,
    cost: Cost | None = None,
    at: Mapping[str, float] | None = None,
    limits: tuple[float, float] | None = None,
) -> Plan:
    """The cheapest P and S that reach a loss; an error when the law says that none do."""
    _check(law)
    target = float(positive_numbers("loss", target))
    floor = law.coefficients[law.form.floor] if law.form.floor else 0.0
    if target <= floor:
        raise UserError(f"loss: {target:g} lies below the law's floor of {floor:.4g}; no P and S reach it")
    cost = cost or Cost.from_points(law)
    P, others = _sizes(law, limits), _others(law, at)
    S = samples_for(law, law.natural[None], P, target, others)[0]
    if np.isnan(S).all():
        raise UserError(f"loss: no S reaches {target:g} with P from {P[0]:.3g} to {P[-1]:.3g}; allow larger models")
    budgets = S * cost.per_sample(P)
    best = int(np.nanargmin(budgets))
    plan = Plan(float(P[best]), float(S[best]), float(budgets[best]), target)
    plan.notes += _edge_notes(law, P, best)
    draws = draws_of(law)
    if draws is not None:
        coarse = P[::8]
        S_drawn = samples_for(law, draws[:200], coarse, target, others)
        price = np.where(np.isnan(S_drawn), np.inf, S_drawn * cost.per_sample(coarse))
        possible = np.isfinite(price).any(axis=1)
        chosen = price.argmin(axis=1)[possible]
        rows = np.flatnonzero(possible)
        if len(rows):
            plan.intervals = {"S": _interval(S_drawn[rows, chosen]), "C": _interval(price[rows, chosen])}
            if not plan.notes:
                plan.intervals["P"] = _interval(coarse[chosen])
        if not possible.all():
            share = 100 * (1 - possible.mean())
            plan.notes.append(f"{share:.0f} % of the bootstrap replicates say that this loss cannot be reached")
    plan.notes += law.extrapolations({"P": plan.P, "S": plan.S, **others})
    return plan


@dataclass(frozen=True)
class Worth:
    """A change of T has the effect of multiplying `column` by `factor`."""

    column: str
    factor: float
    interval: tuple[float, float] | None


def worth_of(law: Law, T_from: float, T_to: float, column: str = "P") -> Worth:
    """Going from one T to another is worth a factor on P or S: m with m^b_column = (T_to / T_from)^b_T."""
    powers = {name: coefficient for term in law.form.terms for name, coefficient, _ in term.powers}
    if len([term for term in law.form.terms if term.powers]) != 1 or not {"T", column} <= set(powers):
        raise UserError(f"the worth of T needs a product of powers with T and {column}; {law.form.name} is not one")
    ratio = np.log(float(positive_numbers("T", T_to)) / float(positive_numbers("T", T_from)))

    def factor(of_T: Array, of_column: Array) -> Array:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            result: Array = np.exp(ratio * of_T / of_column)
        return result

    value = float(factor(np.array(law.coefficients[powers["T"]]), np.array(law.coefficients[powers[column]])))
    draws = draws_of(law)
    if draws is None:
        return Worth(column, value, None)
    names = law.form.coefficients
    of_column = draws[:, names.index(powers[column])]
    drawn = factor(draws[:, names.index(powers["T"])], of_column)
    if min(np.mean(of_column > 0), np.mean(of_column < 0)) > 0.025:
        return Worth(column, value, (0.0, float("inf")))  # the sign of the exponent is open, so is the factor
    return Worth(column, value, _interval(drawn))


def iso_loss(
    law: Law, levels: Array, *, at: Mapping[str, float] | None = None, limits: tuple[float, float] | None = None
) -> tuple[Array, Array]:
    """Sizes P and, for each level of loss, the S that reaches it at each P: (levels, sizes); NaN where none does."""
    _check(law)
    P, others = _sizes(law, limits)[::8], _others(law, at)
    S = np.array([samples_for(law, law.natural[None], P, float(level), others)[0] for level in np.ravel(levels)])
    return P, S
