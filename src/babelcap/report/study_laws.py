"""The laws of a study, fitted from its records alone: for each family, reading, test split and form.

T in the law of a reading is that same reading before training. Seeds of one run are one group.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats

from babelcap.errors import UserError
from babelcap.laws import Fit, fit, frontier, leave_largest_budget_out, leave_one_model_out
from babelcap.laws.fit import without_rows
from babelcap.laws.validate import HeldOut
from babelcap.records import RunRecord
from babelcap.report.reading import MAIN, Study, kind_of, value
from babelcap.report.statistics import CONFIDENCE, Estimate

MEASURES = {
    "conditioned": "cross_entropy/sample_mean/conditioned",
    "raw": "cross_entropy/sample_mean/raw",
}
TARGETS = ("UC", "ST", "SC")
FORMS = ("pst", "ps", "compute")
ALL = "all"
COLUMNS = ("P", "Pt", "F", "S", "C")
NUM_BOOTSTRAP = 200


@dataclass(frozen=True)
class StudyLaw:
    """A law of one family, reading, test split and form; or why there is none."""

    family: str
    reading: str
    target: str
    form: str
    fitted: Fit | None = None
    refused: str = ""
    largest_budget: HeldOut | None = None
    one_model: HeldOut | None = None


@dataclass(frozen=True)
class LawPoints:
    columns: dict[str, list[float]]
    losses: list[float]
    groups: list[str]

    @property
    def has_seeds(self) -> bool:
        return len(set(self.groups)) < len(self.groups)


@dataclass(frozen=True)
class StudyLaws:
    laws: tuple[StudyLaw, ...]
    family: str  # whose laws the claims are judged by

    def get(self, reading: str, target: str, form: str, family: str | None = None) -> StudyLaw | None:
        wanted = (family or self.family, reading, target, form)
        return next((law for law in self.laws if (law.family, law.reading, law.target, law.form) == wanted), None)

    def best(self, reading: str, target: str) -> StudyLaw | None:
        """With T where it could be fitted, else without."""
        found = [self.get(reading, target, form) for form in ("pst", "ps")]
        fitted = [law for law in found if law is not None and law.fitted is not None]
        return fitted[0] if fitted else found[0]

    def fits(self, reading: str, form: str) -> dict[str, Fit]:
        laws = {target: self.get(reading, target, form) for target in TARGETS}
        return {name: law.fitted for name, law in laws.items() if law is not None and law.fitted is not None}


def law_points(records: Sequence[RunRecord], family: str, reading: str, target: str) -> LawPoints:
    columns: dict[str, list[float]] = {name: [] for name in (*COLUMNS, "T")}
    losses, groups = [], []
    for record in records:
        if kind_of(record) != MAIN or family not in (record.family, ALL):
            continue
        after = value(record, MEASURES[reading], target)
        before = value(record, MEASURES[reading], target, before=True)
        if after is None or before is None:
            continue
        for name in COLUMNS:
            columns[name].append(float(getattr(record, name)))
        columns["T"].append(before)
        losses.append(after)
        groups.append(f"{record.size} {record.base} {record.S}")
    return LawPoints(columns, losses, groups)


def fit_study_laws(study: Study) -> StudyLaws:
    present = sorted({record.family for record in study.records if kind_of(record) == MAIN}, reverse=True)
    families = [*present, ALL] if len(present) > 1 else present
    laws = tuple(
        _fit_law(family, reading, target, form, law_points(study.records, family, reading, target))
        for family in families
        for reading in MEASURES
        for target in TARGETS
        for form in FORMS
    )
    return StudyLaws(laws, _judged_family(laws, families))


def _judged_family(laws: Sequence[StudyLaw], families: Sequence[str]) -> str:
    """The family with most points in which P, S and T vary on their own; failing T, in which P and S do."""
    for form in ("pst", "ps"):
        sizes = {
            law.family: len(law.fitted.points)
            for law in laws
            if law.form == form and law.fitted is not None and law.reading == "conditioned" and law.family != ALL
        }
        if sizes:
            return max(sizes, key=lambda family: sizes[family])
    return families[-1] if families else ALL


def _fit_law(family: str, reading: str, target: str, form: str, points: LawPoints) -> StudyLaw:
    columns: dict[str, Any] = dict(points.columns)
    losses: list[float] = points.losses
    groups = points.groups if points.has_seeds else None
    try:
        if form == "compute":
            columns, losses, groups = _frontier_of_means(points)
        fitted = fit(form, columns, losses, groups=groups, target=target, num_bootstrap=NUM_BOOTSTRAP)
    except UserError as error:
        return StudyLaw(family, reading, target, form, refused=str(error))
    held = [_held_out(check, fitted) for check in (leave_largest_budget_out, leave_one_model_out)]
    return StudyLaw(family, reading, target, form, fitted, "", *held)


def _frontier_of_means(points: LawPoints) -> tuple[dict[str, Any], list[float], None]:
    """Law 1 is of the best loss at a compute: of the means over seeds, so that a lucky seed is not the frontier."""
    columns, losses = mean_over_groups(points)
    if not losses:
        raise UserError("0 distinct points: not identified; run a grid")
    rows = frontier(columns, losses)
    return {name: np.asarray(column)[rows] for name, column in columns.items()}, [losses[row] for row in rows], None


def mean_over_groups(points: LawPoints) -> tuple[dict[str, list[float]], list[float]]:
    names = list(dict.fromkeys(points.groups))
    rows = [[place for place, group in enumerate(points.groups) if group == name] for name in names]

    def means(numbers: Sequence[float]) -> list[float]:
        return [sum(numbers[place] for place in some) / len(some) for some in rows]

    return {name: means(column) for name, column in points.columns.items()}, means(points.losses)


def _held_out(check: Any, fitted: Fit) -> HeldOut | None:
    try:
        found: HeldOut = check(fitted)
    except UserError:
        return None  # too few points remain
    return found


def held_out_budget(fitted: Fit) -> tuple["np.ndarray", "np.ndarray"] | None:
    """Losses of the largest budget as measured, and as predicted from the smaller budgets alone."""
    samples = fitted.points.columns["S"]
    held = samples >= samples.max() * (1 - 1e-9)
    try:
        apart = without_rows(fitted, held)
    except UserError:
        return None
    return fitted.points.y[held], apart.predict(
        {name: fitted.points.columns[name][held] for name in apart.form.columns}
    )


def exponent(law: StudyLaw | None, column: str) -> Estimate | None:
    """Of P, S, T or C, with the interval of the fit."""
    if law is None or law.fitted is None:
        return None
    for name_of_column, coefficient, _ in law.fitted.form.terms[0].powers:
        if name_of_column == column:
            low, high = law.fitted.intervals[coefficient]
            method = f"{law.fitted.interval_method} interval of the fit"
            return Estimate(law.fitted.coefficients[coefficient], low, high, len(law.fitted.points), method)
    return None


def exponent_difference(law: StudyLaw, first: str, second: str) -> Estimate | None:
    """exponent of `first` - exponent of `second`, with its t interval: both come from one fit and hang together."""
    fitted = law.fitted
    if fitted is None or fitted.uncertainty.covariance is None:
        return None
    places = {column: place for place, (column, _, _) in enumerate(fitted.form.terms[0].powers, 1)}
    if first not in places or second not in places:
        return None
    covariance, (a, b) = fitted.uncertainty.covariance, (places[first], places[second])
    variance = float(covariance[a, a] + covariance[b, b] - 2 * covariance[a, b])
    names = fitted.form.coefficients
    middle = fitted.coefficients[names[a]] - fitted.coefficients[names[b]]
    reach = float(stats.t.ppf(0.5 + CONFIDENCE / 2, fitted.uncertainty.freedom)) * max(variance, 0.0) ** 0.5
    return Estimate(middle, middle - reach, middle + reach, len(fitted.points), "t interval of the fit")


def num_rises(points: LawPoints) -> tuple[int, int]:
    """(rises, steps): how often the mean loss of a model rises from one budget to the next."""
    columns, losses = mean_over_groups(points)
    models: dict[tuple[float, float], list[tuple[float, float]]] = {}
    for P, T, S, loss in zip(columns["P"], columns["T"], columns["S"], losses, strict=True):
        models.setdefault((P, T), []).append((S, loss))
    steps = [
        after[1] > before[1]
        for runs in models.values()
        for before, after in zip(sorted(runs)[:-1], sorted(runs)[1:], strict=True)
    ]
    return sum(steps), len(steps)


def runs_of(points: LawPoints) -> Mapping[str, Any]:
    """C, P and y as the figure of the frontier wants them: at each size and budget the best base, so that the runs of
    one size make one line.
    """
    columns, losses = mean_over_groups(points)
    best: dict[tuple[float, float], float] = {}
    for P, C, loss in zip(columns["P"], columns["C"], losses, strict=True):
        best[P, C] = min(loss, best.get((P, C), loss))
    sizes, compute = zip(*best, strict=True)
    return {"C": np.array(compute), "P": np.array(sizes), "y": np.array(list(best.values()))}
