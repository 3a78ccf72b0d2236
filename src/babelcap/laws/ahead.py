"""Predicted before it was run: what the records that exist say of runs that do not.

A loss is predicted by the law of its family with T, or without where T cannot be told apart; a rate through its miss,
y = (1 - rate) / (1 - chance), so that chance is its floor and 1 its ceiling: directly, y = b0 P^b1 S^b2, and through
the predicted loss L of the same captions, y = a L^b. Beside them stand guesses that need no law: the run's own model at
its last budget, and the nearest size at the same budget. `judged` holds them against what was measured.
"""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import Field

from babelcap.errors import UserError
from babelcap.laws.fit import fit
from babelcap.laws.fitted import Fit
from babelcap.laws.runs import MAIN, Choice, Table, table_of_runs
from babelcap.measures import CAPTION_PREFIX, PARTS, TARGETS, TRUE_CAPTIONS, Reading, loss_measure
from babelcap.records import Record, RunRecord, find_result, validate_sealed
from babelcap.storage import read_json

FORMS = ("pst", "ps")
READ: tuple[Reading, ...] = ("raw", "prefix_given", *PARTS)
LEAST_MISS = 1e-3  # a rate of one has no logarithm of its miss
THROUGH: tuple[Reading, ...] = (
    "content",
    "prefix_given",
    "conditioned",
    "raw",
)  # the loss that says most of a rate: the first there is
MEASURES = (
    *(loss_measure(reading) for reading in READ),
    *TRUE_CAPTIONS,
)


class Predicted(Record):
    """One number of one run, with the interval it should lie in."""

    run: str
    measure: str
    target: str
    value: float
    low: float
    high: float
    form: str
    num_points: int
    law_ps: float | None = None  # what the law without T says
    last_budget: float | None = None  # as measured: of the same model, base and nearest smaller budget
    nearest_size: float | None = None  # as measured: of the nearest size with the same base and budget
    through_loss: float | None = None  # of a rate: what the predicted loss says of it

    @property
    def is_rate(self) -> bool:
        return self.measure.startswith(CAPTION_PREFIX)


class Prediction(Record):
    """Written before the runs: of which records it was made, and when."""

    time: str
    records_sha256: str
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    runs: tuple[str, ...]  # that were predicted
    predicted: tuple[Predicted, ...]


def read_prediction(path: str | Path) -> Prediction:
    return validate_sealed(Prediction, read_json(path), path, "a prediction is judged as it was written")


def predict_runs(
    records: Sequence[RunRecord], planned: Sequence[RunRecord], measures: Sequence[str] = MEASURES
) -> list[Predicted]:
    """`planned` are records without results: P, S, F and what was measured before training are known of them."""
    found: list[Predicted] = []
    for family in sorted({record.family for record in planned}):
        runs = [record for record in planned if record.family == family and record.kind == MAIN]
        for measure in measures:
            for target in TARGETS:
                found += _predict_measure(records, runs, Choice(measure, family=family), target)
    return found


def _predict_measure(
    records: Sequence[RunRecord], planned: Sequence[RunRecord], choice: Choice, target: str
) -> list[Predicted]:
    is_rate = choice.measure.startswith(CAPTION_PREFIX)
    try:
        table = table_of_runs(records, target, choice, with_T=not is_rate)
    except UserError:
        return []  # nothing of this kind was measured
    chance = _chance(records, choice.measure) if is_rate else None
    fits = {form: fitted for form in FORMS if (fitted := _fit(form, table, chance)) is not None}
    through = _through_loss(records, planned, choice, target, chance) if chance is not None else {}
    found = []
    for run in planned:
        columns = _columns(run, target, choice)
        usable = [form for form in fits if all(name in columns for name in fits[form].form.columns)]
        if not usable:
            continue
        form = usable[0]
        value, low, high = _at(fits[form], columns, chance)
        law_ps = _at(fits["ps"], columns, chance)[0] if "ps" in usable and form != "ps" else None
        found.append(
            Predicted(
                run=run.run, measure=choice.measure, target=target, value=value, low=low, high=high, form=form,
                num_points=len(fits[form].points), law_ps=law_ps,
                last_budget=_last_budget(records, run, choice.measure, target),
                nearest_size=_nearest_size(records, run, choice.measure, target),
                through_loss=through.get(run.run),
            )
        )  # fmt: skip
    return found


def _fit(form: str, table: Table, chance: float | None) -> Fit | None:
    y = table.y if chance is None else [miss(rate, chance) for rate in table.y]
    try:
        return fit(form, table.columns, y, groups=table.groups)
    except UserError:
        return None  # the points do not determine it


def fit_rate(records: Sequence[RunRecord], family: str, measure: str, target: str) -> Fit | None:
    """The law of what is missing of a rate: y = (1 - rate) / (1 - chance) = b0 P^b1 S^b2."""
    try:
        table = table_of_runs(records, target, Choice(measure, family=family))
    except UserError:
        return None
    return _fit("ps", table, _chance(records, measure))


def miss(rate: float, chance: float) -> float:
    """What is missing of a rate, as a share of what chance leaves: 1 at chance, 0 where all is right."""
    return max((1 - rate) / (1 - chance), LEAST_MISS)


def _through_loss(
    records: Sequence[RunRecord], planned: Sequence[RunRecord], choice: Choice, target: str, chance: float
) -> dict[str, float]:
    """Run -> its rate, by the law of the loss and the law from loss to rate."""
    mine = [record for record in records if record.kind == MAIN and choice.family in (record.family, None)]
    for reading in THROUGH:
        measure = loss_measure(reading)
        losses = {
            row.run: row.value for row in _predict_measure(mine, planned, Choice(measure, family=choice.family), target)
        }
        pairs = [(measured(record, measure, target), measured(record, choice.measure, target)) for record in mine]
        points = [(loss, rate) for loss, rate in pairs if loss is not None and loss > 0 and rate is not None]
        if not losses or len(points) < 4:
            continue
        try:
            law = fit("power:L", {"L": [loss for loss, _ in points]}, [miss(rate, chance) for _, rate in points])
        except UserError:
            return {}
        return {run: _at(law, {"L": loss}, chance)[0] for run, loss in losses.items()}
    return {}


def _columns(run: RunRecord, target: str, choice: Choice) -> dict[str, float]:
    columns = {name: float(getattr(run, name)) for name in ("P", "Pt", "F", "S", "C")}
    before = find_result(run.initial, choice.measure)
    T = None if before is None else before.at(target)
    return columns if T is None or math.isnan(T) else columns | {"T": T}


def _at(fitted: Fit, columns: dict[str, float], chance: float | None) -> tuple[float, float, float]:
    """The value with the ends of its interval; of a rate, turned back from its miss."""
    given = {name: np.array([columns[name]]) for name in fitted.form.columns}
    value, low, high = (float(part[0]) for part in (fitted.predict(given), *fitted.prediction_interval(given)))
    if chance is None:
        return value, low, high
    turned = [min(1.0, max(0.0, 1 - (1 - chance) * miss)) for miss in (value, high, low)]
    return turned[0], turned[1], turned[2]


def _chance(records: Sequence[RunRecord], measure: str) -> float:
    name = measure.split("/")[1]
    found = [record.extra["chance"][name] for record in records if name in record.extra.get("chance", {})]
    return float(np.mean(found)) if found else 0.0


def measured(record: RunRecord, measure: str, target: str) -> float | None:
    result = find_result(record.results, measure)
    value = None if result is None else result.at(target)
    return None if value is None or math.isnan(value) else value


def _mean(records: Sequence[RunRecord], measure: str, target: str) -> float | None:
    values = [value for record in records if (value := measured(record, measure, target)) is not None]
    return float(np.mean(values)) if values else None


def _last_budget(records: Sequence[RunRecord], run: RunRecord, measure: str, target: str) -> float | None:
    same = [r for r in records if (r.kind, r.size, r.base) == (MAIN, run.size, run.base) and r.S < run.S]
    last = max((record.S for record in same), default=0)
    return _mean([record for record in same if last == record.S], measure, target)


def _nearest_size(records: Sequence[RunRecord], run: RunRecord, measure: str, target: str) -> float | None:
    alike = [
        r for r in records
        if (r.kind, r.family, r.base, r.S) == (MAIN, run.family, run.base, run.S) and r.size != run.size
    ]  # fmt: skip
    if not alike:
        return None
    nearest = min(abs(math.log(record.P / run.P)) for record in alike)
    return _mean([r for r in alike if abs(math.log(r.P / run.P)) == nearest], measure, target)
