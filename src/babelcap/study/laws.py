"""The laws of a study, fitted from its records alone: for each family, measure and test split, each form that applies.

T in a law of some measure is that same measure before training. Seeds of one run are one group.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any

from babelcap.errors import UserError
from babelcap.laws import Fit, fit, leave_largest_budget_out, leave_one_model_out
from babelcap.records import EvalResult, RunRecord
from babelcap.study.config import StudyLaws

COLUMNS = ("P", "Pt", "F", "S", "C")
ALL = "all"


def value_of(results: Iterable[EvalResult], measure: str, target: str, split: str = "eval") -> float | None:
    for result in results:
        if result.measure == measure and result.split == split and target in result.per_split:
            return result.per_split[target]
    return None


def law_points(
    records: Sequence[RunRecord], family: str, measure: str, target: str
) -> tuple[dict[str, list[float]], list[float], list[str]]:
    """Columns, losses and groups of the main runs of a family, or of both families."""
    columns: dict[str, list[float]] = {name: [] for name in (*COLUMNS, "T")}
    losses, groups = [], []
    for record in records:
        if record.extra.get("kind") != "main" or family not in (record.family, ALL):
            continue
        after, before = (value_of(results, measure, target) for results in (record.results, record.initial))
        if after is None or before is None:
            continue
        for name in COLUMNS:
            columns[name].append(float(getattr(record, name)))
        columns["T"].append(before)
        losses.append(after)
        groups.append(f"{record.size} {record.base} {record.S}")
    return columns, losses, groups


def fit_laws(records: Sequence[RunRecord], settings: StudyLaws) -> list[dict[str, Any]]:
    """One entry for each family, measure, target and form: the fit with what it predicts, or why there is none."""
    families = [name for name in settings.families if name == ALL or any(r.family == name for r in records)]
    if len({record.family for record in records}) == 1:
        families = [name for name in families if name != ALL]
    entries = []
    for family in families:
        for measure in settings.measures:
            for target in settings.targets:
                columns, losses, groups = law_points(records, family, measure, target)
                for form in settings.forms:
                    entry = {"family": family, "measure": measure, "target": target, "form": form}
                    entries.append(entry | _fit_one(form, columns, losses, groups, target, settings.num_bootstrap))
    return entries


def _fit_one(
    form: str,
    columns: dict[str, list[float]],
    losses: list[float],
    groups: list[str],
    target: str,
    num_bootstrap: int,
) -> dict[str, Any]:
    has_seeds = len(set(groups)) < len(groups)
    try:
        fitted = fit(
            form,
            columns,
            losses,
            groups=groups if has_seeds else None,
            target=target,
            num_bootstrap=num_bootstrap,
        )
    except UserError as error:
        return {"refused": str(error)}
    return {
        "fit": fitted.to_record().model_dump(mode="json"),
        "largest_budget": _held_out(leave_largest_budget_out, fitted),
        "one_model": _held_out(leave_one_model_out, fitted),
    }


def _held_out(check: Any, fitted: Fit) -> dict[str, Any] | None:
    try:
        found: dict[str, Any] = asdict(check(fitted))
    except UserError:
        return None  # too few points remain
    return found
