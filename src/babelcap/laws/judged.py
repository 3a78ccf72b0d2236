"""How predictions turned out: errors and intervals beside guesses that need no law; also rolled over runs there are.

The error of a loss is exp(mean |log ratio|) - 1, that of a rate the mean |difference|. An error of 15 % is no skill
where the guess "as at the last budget" has 10 %: skill = 1 - error / error of the best guess.
"""

import math
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from babelcap.laws.ahead import MEASURES, Predicted, Prediction, measured, predict_runs
from babelcap.laws.runs import MAIN
from babelcap.records import Record, RunRecord

GUESSES = ("law_ps", "last_budget", "nearest_size")
MIN_BEFORE = 2  # budgets or sizes that a cut-off leaves to be fitted


class Judged(Record):
    """How the predictions of one measure and test split turned out."""

    measure: str
    target: str
    num_runs: int
    num_inside: int  # of their intervals
    error: float
    error_law_ps: float | None = None
    error_last_budget: float | None = None
    error_nearest_size: float | None = None
    error_through_loss: float | None = None  # of a rate

    @property
    def best_guess(self) -> float | None:
        """The error of the better guess that needs no law; the law without T is a law."""
        return min(
            (error for error in (self.error_last_budget, self.error_nearest_size) if error is not None), default=None
        )

    @property
    def skill(self) -> float | None:
        """Above zero: better than the guess."""
        return 1 - self.error / self.best_guess if self.best_guess else None


class Rolled(Record):
    """A cut-off: what was left out, and how it was predicted from all that is smaller."""

    family: str
    column: str  # S: a budget was left out, with all larger ones; P: a size
    value: float  # of what was left out
    judged: Judged


def judge(prediction: Prediction, records: Sequence[RunRecord]) -> list[Judged]:
    """Of the predicted runs that have been measured since; a guess is judged on the runs for which there was one."""
    return judge_rows(prediction.predicted, records)


def judge_rows(predictions: Sequence[Predicted], records: Sequence[RunRecord]) -> list[Judged]:
    rows: dict[tuple[str, str], list[tuple[Predicted, float]]] = {}
    for predicted, value in measured_since(predictions, records):
        rows.setdefault((predicted.measure, predicted.target), []).append((predicted, value))
    return [
        Judged(
            measure=measure,
            target=target,
            num_runs=len(pairs),
            num_inside=sum(predicted.low <= value <= predicted.high for predicted, value in pairs),
            error=_error(pairs, "value") or 0.0,
            error_through_loss=_error(pairs, "through_loss"),
            **{f"error_{name}": _error(pairs, name) for name in GUESSES},
        )
        for (measure, target), pairs in rows.items()
    ]


def measured_since(predictions: Sequence[Predicted], records: Sequence[RunRecord]) -> list[tuple[Predicted, float]]:
    """Each prediction with what was measured, where it was."""
    by_run = {record.run: record for record in records}
    found = []
    for predicted in predictions:
        record = by_run.get(predicted.run)
        value = None if record is None else measured(record, predicted.measure, predicted.target)
        if value is not None:
            found.append((predicted, value))
    return found


def _error(pairs: Sequence[tuple[Predicted, float]], name: str) -> float | None:
    """Of the guess of that name, over the runs that have it."""
    guesses = [(getattr(predicted, name), value) for predicted, value in pairs]
    known = [(guess, value) for guess, value in guesses if guess is not None]
    if pairs[0][0].is_rate:
        return float(np.mean([abs(guess - value) for guess, value in known])) if known else None
    logs = [abs(math.log(value / guess)) for guess, value in known if guess > 0 and value > 0]
    return math.expm1(float(np.mean(logs))) if logs else None


def roll(records: Sequence[RunRecord], measures: Sequence[str] = MEASURES) -> list[Rolled]:
    """Each budget predicted from the smaller ones, and each size from the smaller sizes, as if it had not been run."""
    found: list[Rolled] = []
    main = [record for record in records if record.kind == MAIN]
    for family in sorted({record.family for record in main}):
        mine = [record for record in main if record.family == family]
        for column in ("S", "P"):
            values = sorted({getattr(record, column) for record in mine})
            for _, value in list(pairwise(values))[MIN_BEFORE - 1 :]:
                before = [record for record in mine if getattr(record, column) < value]
                held = [record for record in mine if getattr(record, column) == value]
                rows = judge_rows(predict_runs(_without_later(before, held, column), held, measures), held)
                found += [Rolled(family=family, column=column, value=value, judged=row) for row in rows]
    return found


def _without_later(before: list[RunRecord], held: list[RunRecord], column: str) -> list[RunRecord]:
    """Sizes of one P differ a little with their vocabulary; what has the held-out size's name is not before it."""
    names = {record.size for record in held} if column == "P" else set()
    return [record for record in before if record.size not in names]
