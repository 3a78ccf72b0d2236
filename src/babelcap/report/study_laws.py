"""The laws of a study, fitted from its records alone: for each family, reading, test split and form.

T in the law of a reading is that same reading before training. Seeds of one run are one group.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
from scipy import stats

from babelcap.errors import UserError
from babelcap.laws import (
    Choice,
    Fit,
    Table,
    fit,
    leave_largest_budget_out,
    leave_one_model_out,
    mean_over_groups,
    table_of_runs,
)
from babelcap.laws.ahead import fit_rate
from babelcap.laws.fit import without_rows
from babelcap.laws.judged import Rolled, roll
from babelcap.laws.runs import ALL, MAIN, main_family
from babelcap.laws.solver import Array
from babelcap.laws.validate import HeldOut
from babelcap.measures import PARTS, TARGETS, TRUE_CAPTIONS, Reading, loss_measure
from babelcap.records import RunRecord, find_result
from babelcap.report.statistics import CONFIDENCE, Estimate
from babelcap.report.study_folder import Study

FORMS = ("pst", "ps", "compute")
NUM_BOOTSTRAP = 200


@dataclass(frozen=True)
class StudyLaw:
    """A law of one family, reading, test split and form; or why there is none."""

    family: str
    reading: Reading
    target: str
    form: str
    fitted: Fit | None = None
    refused: str = ""
    largest_budget: HeldOut | None = None
    one_model: HeldOut | None = None


@dataclass(frozen=True)
class StudyLaws:
    laws: tuple[StudyLaw, ...]
    family: str  # whose laws the claims are judged by
    readings: dict[str, Reading] = field(default_factory=dict)  # test split -> the loss that it is judged by
    content: dict[str, Fit] = field(default_factory=dict)  # measure of captions -> the law of what is missing in UC
    rolled: tuple[Rolled, ...] = ()

    def get(self, reading: str, target: str, form: str, family: str | None = None) -> StudyLaw | None:
        wanted = (family or self.family, reading, target, form)
        return next((law for law in self.laws if (law.family, law.reading, law.target, law.form) == wanted), None)

    def best(self, reading: str, target: str, family: str | None = None) -> StudyLaw | None:
        """With T where it could be fitted, else without."""
        found = [self.get(reading, target, form, family) for form in ("pst", "ps")]
        fitted = [law for law in found if law is not None and law.fitted is not None]
        return fitted[0] if fitted else found[0]

    def headline(self, target: str) -> StudyLaw | None:
        """By the loss that the test split is judged by."""
        return self.best(self.readings[target], target) if target in self.readings else None

    def headline_fits(self, form: str) -> dict[str, Fit]:
        laws = {target: self.get(reading, target, form) for target, reading in self.readings.items()}
        return {name: law.fitted for name, law in laws.items() if law is not None and law.fitted is not None}

    def fits(self, reading: str, form: str) -> dict[str, Fit]:
        laws = {target: self.get(reading, target, form) for target in TARGETS}
        return {name: law.fitted for name, law in laws.items() if law is not None and law.fitted is not None}


def law_table(records: Sequence[RunRecord], family: str, reading: Reading, target: str) -> Table:
    """Of the main runs whose T is known, so that the laws with and without T are of the same points."""
    return table_of_runs(records, target, Choice(loss_measure(reading), family=family), with_T=True)


def fit_study_laws(study: Study) -> StudyLaws:
    main = [record for record in study.records if record.kind == MAIN]
    present = sorted({record.family for record in main}, reverse=True)
    families = [*present, ALL] if len(present) > 1 else present
    laws = tuple(
        _fit_law(study.records, family, reading, target, form)
        for family in families
        for reading in shown_readings(study)
        for target in TARGETS
        for form in FORMS
    )
    family = main_family(main)
    content = {measure: fitted for measure in TRUE_CAPTIONS if (fitted := fit_rate(main, family, measure, "UC"))}
    measures = [*(loss_measure(reading) for reading in shown_readings(study)), *TRUE_CAPTIONS]
    return StudyLaws(laws, family, study.readings, content, tuple(roll(main, measures)))


def shown_readings(study: Study) -> tuple[Reading, ...]:
    """The loss that captions are judged by, the paper's, and its parts where they were measured."""
    parts = any(find_result(record.results, loss_measure("content")) for record in study.records)
    return (study.given, "raw", *(PARTS if parts else ()))


def _fit_law(records: Sequence[RunRecord], family: str, reading: Reading, target: str, form: str) -> StudyLaw:
    """Law 1 is of the best loss at a compute, so `compute` takes the frontier."""
    try:
        table = law_table(records, family, reading, target)
        fitted = fit(
            form, table.columns, table.y, groups=table.groups, target=target, num_bootstrap=NUM_BOOTSTRAP,
            frontier_only=form == "compute",
        )  # fmt: skip
    except UserError as error:
        return StudyLaw(family, reading, target, form, refused=str(error))
    held = [_held_out(check, fitted) for check in (leave_largest_budget_out, leave_one_model_out)]
    return StudyLaw(family, reading, target, form, fitted, "", *held)


def law_entries(laws: StudyLaws) -> list[dict[str, Any]]:
    """laws.json: for each family, reading of the loss, test split and form the fit, or why there is none."""
    return [_entry(law) for law in laws.laws]


def _entry(law: StudyLaw) -> dict[str, Any]:
    named = {"family": law.family, "reading": law.reading, "target": law.target, "form": law.form}
    if law.fitted is None:
        return named | {"refused": law.refused}
    return named | {
        "fit": law.fitted.to_record().model_dump(mode="json"),
        "largest_budget": None if law.largest_budget is None else asdict(law.largest_budget),
        "one_model": None if law.one_model is None else asdict(law.one_model),
    }


def means_of(table: Table) -> tuple[dict[str, Array], Array]:
    """Over the seeds of each run."""
    return mean_over_groups(table.columns, table.y, table.groups or range(len(table.y)))


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


def num_rises(table: Table) -> tuple[int, int]:
    """(rises, steps): how often the mean loss of a model rises from one budget to the next."""
    columns, losses = means_of(table)
    models: dict[tuple[float, float], list[tuple[float, float]]] = {}
    for P, T, S, loss in zip(columns["P"], columns["T"], columns["S"], losses, strict=True):
        models.setdefault((P, T), []).append((S, loss))
    steps = [
        after[1] > before[1]
        for runs in models.values()
        for before, after in zip(sorted(runs)[:-1], sorted(runs)[1:], strict=True)
    ]
    return sum(steps), len(steps)


def best_of_sizes(table: Table) -> dict[str, Array]:
    """C, P and y as the figure of the frontier wants them: at each size and budget the best base, so that the runs of
    one size make one line.
    """
    columns, losses = means_of(table)
    best: dict[tuple[float, float], float] = {}
    for P, C, loss in zip(columns["P"], columns["C"], losses, strict=True):
        best[P, C] = min(loss, best.get((P, C), loss))
    sizes, compute = zip(*best, strict=True)
    return {"C": np.array(compute), "P": np.array(sizes), "y": np.array(list(best.values()))}
