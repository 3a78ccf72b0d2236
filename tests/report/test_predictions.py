"""Parts of the loss, predictions made before the runs, the law of content, trials: claims, figures and the page."""

import math
import random
from pathlib import Path

import pytest

from babelcap.laws.ahead import Prediction, predict_runs
from babelcap.laws.judged import judge
from babelcap.measures import CALIBRATED_BY_CHANCE, loss_measure
from babelcap.records import EvalResult, RunRecord, write_run_records
from babelcap.report import build_report
from babelcap.report.answers import answers
from babelcap.report.build import make_claims
from babelcap.report.drawings import make_drawings
from babelcap.report.loss_claims import budget_ends
from babelcap.report.skill import skill_table
from babelcap.report.statistics import loss_over_seeds
from babelcap.report.study_folder import Study, loss, read_study
from babelcap.report.study_laws import fit_study_laws
from babelcap.report.trials import find_trials, trials_table
from babelcap.report.verdicts import HOLDS


def with_parts(record: RunRecord) -> RunRecord:
    """Content falls with S, wording does not; one temperature takes more away the more samples there were."""
    rng = random.Random(record.run)
    noise = math.exp(rng.gauss(0, 0.02))
    raw = next(found.per_split["UC"] for found in record.results if found.measure == loss_measure())
    gap = 0.1 * math.log(record.S)
    values = {
        "prefix_given": 9 * record.S**-0.2 * record.P**-0.05 * noise,
        "language": 0.4 * noise,
        "content": 40 * record.S**-0.3 * record.P**-0.1 * noise,
        "wording": 0.3 * record.S**0.05 * noise,
        "calibrated": raw - gap,
    }
    added = [result(loss_measure(reading), value) for reading, value in values.items()]  # type: ignore[arg-type]
    worded = {"as_captions": 1 + gap, "as_translations": 1 - gap / 2}
    added += [result(f"{loss_measure()}/{manner}", value) for manner, value in worded.items()]
    initial = [result(loss_measure(reading), 3.0 + len(record.base) / 5) for reading in values]  # type: ignore[arg-type]
    return record.model_copy(update={"results": [*record.results, *added], "initial": [*record.initial, *initial]})


def result(measure: str, value: float) -> EvalResult:
    splits = {"UC": value, "SC": value / 2, "ST": value / 3}
    errors = dict.fromkeys(splits, 0.05)
    return EvalResult(
        measure=measure,
        split="eval",
        per_pair={},
        per_split=splits,
        num_samples={},
        sampling_errors=errors,
        signature=CALIBRATED_BY_CHANCE,
    )


@pytest.fixture(scope="module")
def sharper(records: list[RunRecord]) -> list[RunRecord]:
    return [with_parts(record) if record.kind == "main" else record for record in records]


@pytest.fixture(scope="module")
def predicted(sharper: list[RunRecord]) -> Prediction:
    """The largest budget, from the smaller ones."""
    known = [record for record in sharper if record.num_steps < 1000]
    planned = [record for record in sharper if record.num_steps == 1000 and record.kind == "main"]
    rows = tuple(predict_runs(known, planned))
    runs = tuple(record.run for record in planned)
    return Prediction(time="2026-01-01T00:00:00+00:00", records_sha256="f" * 64, runs=runs, predicted=rows)


def trial(record: RunRecord, name: str, value: str) -> RunRecord:
    run = f"{record.run}.{name}-{value}"
    return record.model_copy(update={"kind": "trial", "trial": f"{name}={value}", "run": run})


def test_the_prefix_is_given_where_that_was_measured(records: list[RunRecord], sharper: list[RunRecord]) -> None:
    assert Study(tuple(records)).readings == dict.fromkeys(("UC", "ST", "SC"), "conditioned")
    assert Study(tuple(sharper)).readings == {"UC": "prefix_given", "ST": "raw", "SC": "raw"}
    trials_alone = tuple(trial(record, "rate", "1e-3") for record in sharper if record.kind == "main")
    assert Study(trials_alone).readings == {"UC": "prefix_given", "ST": "raw", "SC": "raw"}


def test_claims_of_the_parts(sharper: list[RunRecord], predicted: Prediction) -> None:
    study = Study(tuple(sharper), prediction=predicted)
    claims = {claim.key: claim for claim in make_claims(study, fit_study_laws(study))}
    assert "over captions that begin with it" in claims["law-prefix_given"].title
    assert claims["law-raw"].conditions[0].what == "UC: R²"
    assert len(claims["law-raw"].conditions) == 2  # of UC alone: the others are judged by the raw loss anyway
    assert claims["wording"].verdict == HOLDS
    assert claims["overconfidence"].verdict == HOLDS
    content, wording = claims["parts"].conditions[0], claims["parts"].conditions[-1]
    assert (content.holds, wording.holds) == (True, True)
    assert content.measured is not None
    assert content.measured.value == pytest.approx(-0.3, abs=0.03)
    held = claims["predicted"].conditions[0].measured
    assert held is not None
    rows = judge(predicted, sharper)
    assert held.value == sum(row.num_inside for row in rows) / sum(row.num_runs for row in rows)
    assert "ffffffffffff" in claims["predicted"].notes[0]
    assert {condition.holds for condition in claims["skill"].conditions} <= {True, False}
    assert "better." in claims["content-law"].notes[0]


def test_the_ends_of_the_budgets_have_the_same_seeds(sharper: list[RunRecord]) -> None:
    kept = [record for record in sharper if record.kind == "main" and (record.num_steps > 125 or record.seed < 2)]
    ends = budget_ends(Study(tuple(kept)))
    assert ends is not None
    first, last = ends
    assert (first.key.S, last.key.S) == (125 * 32, 1000 * 32)
    assert first.seeds == last.seeds == [0, 1]


def test_samples_widen_an_interval_of_seeds(sharper: list[RunRecord]) -> None:
    alone, widened = loss_over_seeds([1.0, 1.1, 1.2], None), loss_over_seeds([1.0, 1.1, 1.2], 0.05)
    assert alone is not None
    assert widened is not None
    reach = alone.high - alone.value  # type: ignore[operator]
    assert widened.high == pytest.approx(1.1 + math.hypot(reach, 1.959964 * 0.05))
    one = loss_over_seeds([1.0], 0.05)
    assert one is not None
    assert (one.low, one.seeds) == (pytest.approx(1 - 1.959964 * 0.05), (1.0,))
    cell = Study(tuple(sharper)).headline()
    assert cell is not None
    found = loss(cell, "content", "UC")
    assert found is not None
    assert "over samples" in found.method


def test_trials_stand_beside_what_they_were_changed_from(records: list[RunRecord]) -> None:
    main = [r for r in records if (r.size, r.base, r.num_steps, r.kind) == ("micro-gemma-l", "balanced", 500, "main")]
    tuned = [
        trial(record, "tuning_pictures", number).model_copy(update={"started_from": record.run})
        for record in main
        for number in ("200", "50")
    ]
    tried = [trial(record, "match", value) for record in main for value in ("1", "0")]
    study = Study((*records, *tried, *tuned), config={"report": {"baselines": {"match": "0.9"}}})
    found = {one.name: one for one in find_trials(study)}
    assert [(one.value, one.is_baseline) for one in found["match"].tried] == [
        ("0", False), ("0.9", True), ("1", False),
    ]  # fmt: skip
    assert [one.value for one in found["tuning_pictures"].tried] == ["0", "50", "200"]
    assert len(trials_table(study).rows) == 6
    # A trial is no run of the grid: laws, cells and the tables of runs are as without it.
    assert [cell.key for cell in study.cells()] == [cell.key for cell in Study(tuple(records)).cells()]
    assert "trials" in [drawing.name for drawing in make_drawings(study, fit_study_laws(study))]


def test_a_study_of_trials_alone_has_a_report(records: list[RunRecord], tmp_path: Path) -> None:
    tried = [trial(record, "rate", f"{record.num_steps}e-6") for record in records if record.size == "micro-gemma-s"]
    write_run_records(tmp_path / "runs.jsonl", tried)
    page = build_report(tmp_path).read_text(encoding="utf-8")
    assert "learning rate" in page
    assert "This was not measured." in page


def test_the_page_answers_and_shows_the_prediction(
    sharper: list[RunRecord], predicted: Prediction, tmp_path: Path
) -> None:
    write_run_records(tmp_path / "runs.jsonl", sharper)
    (tmp_path / "prediction.json").write_text(predicted.model_dump_json())
    study = read_study(tmp_path)
    assert study.prediction == predicted
    laws = fit_study_laws(study)
    found = answers(study, laws)
    assert len(found) == 5
    assert "runs were predicted before they were run" in found[4].text
    assert ("predicted before it was run", "raw", "UC") in [row[:3] for row in skill_table(study, laws).rows]
    page = build_report(tmp_path).read_text(encoding="utf-8")
    for name in ("parts", "predicted", "skill"):
        assert f'id="figure-{name}"' in page
    for answer in found:
        assert answer.question in page
