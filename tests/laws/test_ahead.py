"""Predictions of runs to come: a known law is found again, rates stay between chance and one, and guesses by hand."""

import json
import math
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.laws.ahead import Prediction, predict_runs
from babelcap.laws.judged import judge, roll
from babelcap.measures import TRUE_CAPTIONS, loss_measure
from babelcap.records import EvalResult, RunRecord, write_run_records

RAW = loss_measure()
OBJECTS = TRUE_CAPTIONS[0]
CHANCE = 0.2


def result(measure: str, value: float) -> EvalResult:
    return EvalResult(measure=measure, split="eval", per_pair={}, per_split={"UC": value}, num_samples={})


def record(P: int, S: int, T: float, seed: int = 0, noise: float = 1.0, measured: bool = True) -> RunRecord:
    """loss = 100 P^-.1 S^-.2 T^.5, and a miss of 3 P^-.05 S^-.1 of what chance leaves."""
    loss = 100 * P**-0.1 * S**-0.2 * T**0.5 * noise
    rate = 1 - (1 - CHANCE) * 3 * P**-0.05 * S**-0.1 * noise
    base = f"T{T:g}"
    return RunRecord(
        run=f"{P}.{base}.{S}.{seed}", family="gemma", size=f"size-{P}", base=base, seed=seed, num_steps=S // 10,
        batch_size=10, P=P, Pt=P, F=1.0, S=S, C=2.0 * S, initial=[result(RAW, T)],
        results=[result(RAW, loss), result(OBJECTS, rate)] if measured else [],
        extra={"chance": {"objects": CHANCE}},
    )  # fmt: skip


def small_grid(noise: float) -> list[RunRecord]:
    generator = np.random.default_rng(0)
    return [
        record(P, S, T, seed, math.exp(noise * generator.standard_normal()))
        for P in (10**6, 3 * 10**6, 10**7)
        for S in (1000, 4000, 16000)
        for T in (4.0, 6.0)
        for seed in (0, 1)
    ]


def test_a_known_law_is_found_and_carried_on() -> None:
    planned = record(4 * 10**7, 64000, 4.0, measured=False)
    truth = record(4 * 10**7, 64000, 4.0)
    found = {(row.measure, row.target): row for row in predict_runs(small_grid(0.01), [planned])}
    assert set(found) == {(RAW, "UC"), (OBJECTS, "UC")}
    loss, objects = found[RAW, "UC"], found[OBJECTS, "UC"]
    assert (loss.form, objects.form) == ("pst", "ps")
    assert loss.value == pytest.approx(truth.results[0].per_split["UC"], rel=0.03)
    assert loss.low < truth.results[0].per_split["UC"] < loss.high
    assert objects.value == pytest.approx(truth.results[1].per_split["UC"], abs=0.03)
    assert CHANCE < objects.low < objects.value < objects.high < 1


def test_guesses_by_hand() -> None:
    records = small_grid(0.0)
    planned = record(10**7, 64000, 4.0, measured=False)
    loss = next(row for row in predict_runs(records, [planned]) if row.measure == RAW)
    assert loss.last_budget == pytest.approx(100 * 1e7**-0.1 * 16000**-0.2 * 2)
    assert loss.nearest_size is None  # nobody has that budget
    planned = record(4 * 10**7, 16000, 6.0, measured=False)
    loss = next(row for row in predict_runs(records, [planned]) if row.measure == RAW)
    assert loss.nearest_size == pytest.approx(100 * 1e7**-0.1 * 16000**-0.2 * 6**0.5)
    assert loss.last_budget is None


def make_prediction(records: list[RunRecord], planned: list[RunRecord]) -> Prediction:
    rows = tuple(predict_runs(records, planned))
    return Prediction(time="2026-01-01T00:00:00+00:00", records_sha256="0", runs=("x",), predicted=rows)


def test_judged_by_hand(tmp_path: Path) -> None:
    planned = [record(10**7, 64000, T, measured=False) for T in (4.0, 6.0)]
    prediction = make_prediction(small_grid(0.01), planned)
    values = {row.run: row.value for row in prediction.predicted if row.measure == RAW}
    measured = [
        run.model_copy(update={"results": [result(RAW, values[run.run] * factor)]})
        for run, factor in zip(planned, (1.0, 1.5), strict=True)
    ]
    (judged,) = judge(prediction, measured)
    assert (judged.measure, judged.num_runs, judged.num_inside) == (RAW, 2, 1)
    assert judged.error == pytest.approx(math.sqrt(1.5) - 1)  # exp of the mean of 0 and log 1.5
    assert judged.error_last_budget is not None
    assert judged.error_nearest_size is None

    (tmp_path / "prediction.json").write_text(prediction.model_dump_json())
    write_run_records(tmp_path / "runs.jsonl", measured)
    arguments = ["study", "judge", str(tmp_path / "prediction.json"), str(tmp_path / "runs.jsonl")]
    done = CliRunner().invoke(app, [*arguments, "--json"])
    assert json.loads(done.stdout)[0]["num_inside"] == 1
    assert "22.5 %" in CliRunner().invoke(app, arguments).stdout
    some = CliRunner().invoke(app, [*arguments, "--where", f"run!={measured[0].run}", "--json"])
    assert json.loads(some.stdout)[0]["num_runs"] == 1


def test_what_is_no_prediction_is_refused(tmp_path: Path) -> None:
    (tmp_path / "prediction.json").write_text('{"time": 1}')
    done = CliRunner().invoke(app, ["study", "judge", str(tmp_path / "prediction.json"), str(tmp_path / "runs.jsonl")])
    assert done.exit_code == 2
    assert "prediction.json: time: " in done.stderr


def test_a_rate_is_told_directly_and_through_the_loss() -> None:
    """miss = 3 P^-.05 S^-.1 = 3 (P^-.1 S^-.2)^.5 = .3 L^.5 T^-.25 where L = 100 P^-.1 S^-.2 T^.5."""
    records = [run for run in small_grid(0.0) if run.base == "T4"]
    planned = record(4 * 10**7, 64000, 4.0, measured=False)
    objects = next(row for row in predict_runs(records, [planned]) if row.measure == OBJECTS)
    truth = record(4 * 10**7, 64000, 4.0).results[1].per_split["UC"]
    assert (objects.value, objects.through_loss) == (pytest.approx(truth, abs=1e-6), pytest.approx(truth, abs=1e-6))
    (judged,) = [row for row in judge(make_prediction(records, [planned]), [record(4 * 10**7, 64000, 4.0)])
                 if row.measure == OBJECTS]  # fmt: skip
    assert judged.error == pytest.approx(0.0, abs=1e-6)  # a difference, not a ratio


def test_rolled_over_cut_offs_a_law_beats_guesses_where_there_is_one() -> None:
    rows = [row for row in roll(small_grid(0.01)) if row.judged.measure == RAW]
    assert [(row.column, row.value) for row in rows] == [("S", 16000.0), ("P", 1e7)]
    by_budget, by_size = (row.judged for row in rows)
    assert by_budget.error < 0.03
    assert by_budget.error_last_budget == pytest.approx(4**0.2 - 1, rel=0.1)
    assert by_budget.error_nearest_size is None
    assert by_size.error_nearest_size == pytest.approx((10 / 3) ** 0.1 - 1, rel=0.2)
    for row in (by_budget, by_size):
        assert row.skill is not None
        assert row.skill > 0.7


def test_a_loss_that_does_not_move_has_no_skill_to_show() -> None:
    generator = np.random.default_rng(1)
    flat = [
        run.model_copy(update={"results": [result(RAW, 2.0 * math.exp(0.02 * generator.standard_normal()))]})
        for run in small_grid(0.0)
    ]
    judged = next(row.judged for row in roll(flat) if row.column == "S")
    assert judged.error < 0.05  # a small error, and still:
    assert judged.skill is not None
    assert judged.skill < 0.4
