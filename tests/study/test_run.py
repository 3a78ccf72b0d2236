"""A whole study in small: what it leaves, that it survives being killed, and that a second run does nothing."""

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from babelcap.config import build_config
from babelcap.errors import UserError
from babelcap.laws.ahead import read_prediction
from babelcap.laws.judged import judge
from babelcap.measures import LOSS
from babelcap.records import RunRecord, find_result, read_run_records, write_run_records
from babelcap.storage import locked, read_json, write_json
from babelcap.study.config import StudyConfig
from babelcap.study.grid import study_graph
from babelcap.study.kept import KEPT, keep_study, read_kept_captions, rejudge
from babelcap.study.local import JOBS, claimed, remove_leftovers, run_study
from babelcap.study.overview import describe_study
from babelcap.study.prediction import predict_study

SECONDS = 300
Values = Callable[..., dict[str, Any]]
Start = Callable[[Path], subprocess.Popen[str]]


@pytest.fixture(scope="module")
def start(values_of: Values) -> Start:
    """Runs a study's command in a process of its own."""

    def run(study: Path) -> subprocess.Popen[str]:
        config = study.parent / f"{study.name}.json"
        write_json(config, values_of(study))
        command = [sys.executable, "-m", "babelcap", "study", "run", str(config)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return run


def wait_for(condition: Callable[[], object], process: subprocess.Popen[str]) -> None:
    until = time.monotonic() + SECONDS
    while not condition() and process.poll() is None and time.monotonic() < until:
        time.sleep(0.02)


def workers_of(process: subprocess.Popen[str]) -> list[int]:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    return [int(child) for child in children if b"spawn_main" in Path(f"/proc/{child}/cmdline").read_bytes()]


def comparable(study: Path) -> list[dict]:
    """Records without what a clock measured; as JSON, in which a rate over nothing is text that equals itself."""
    records = read_run_records(study / "runs.jsonl")
    return [json.loads(record.model_dump_json()) | {"seconds": 0} for record in records]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, start: Start, values_of: Values) -> Path:
    """One study for all tests, also where they run in several processes."""
    root = tmp_path_factory.getbasetemp()
    study = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "finished"
    with locked(study.parent / "finished.lock"):
        if (study / "finished.json").is_file():
            return study
        process = start(study)
        output, errors = process.communicate(timeout=SECONDS)
        assert process.returncode == 0, errors
        assert output.strip().splitlines()[-1] == f"report: {study / 'report' / 'index.html'}"
        num_steps = len(study_graph(build_config(StudyConfig, values_of(study))).steps)
        assert f"[{num_steps}/{num_steps}]" in errors
    return study


def test_what_a_study_leaves(finished: Path) -> None:
    records = {record.run: record for record in read_run_records(finished / "runs.jsonl")}
    assert list(records) == sorted(records)
    main = records["micro-gemma-s.balanced.s0.b000006"]
    assert (main.study, main.family, main.size, main.base) == ("tiny", "gemma", "micro-gemma-s", "balanced")
    assert (main.num_steps, main.S, main.kind) == (6, 48, "main")
    assert sum(main.extra["samples_by_pair"].values()) == 48
    measures = {(result.measure, result.split) for result in main.results}
    assert ("cross_entropy/sample_mean/conditioned/shuffled", "eval") in measures
    assert ("captions/objects/prefix+shortlist", "holdout") in measures
    assert ("downstream/captioning/gated_CIDEr/prefix/shuffled", "eval") in measures
    assert ("downstream/translation/chrF/plain/shuffled", "eval") in measures
    accuracy = next(result for result in main.results if result.measure == "downstream/ambiguity/accuracy/plain")
    assert accuracy.num_samples == {f"translation-{code}": 4 for code in ("de", "fr", "es", "ru", "zh")}
    assert set(accuracy.per_split) == {"ST", "every"}
    assert next(r.per_split for r in main.initial if r.measure == "cross_entropy/sample_mean/raw") == main.T
    assert 0 < main.extra["chance"]["colours"] < 1
    assert "captions/language/chance" in {result.measure for result in main.results}
    small = records["micro-gemma-s.balanced.s0.b000003"]
    assert not [r for r in small.results if "shortlist" in r.measure or r.measure.endswith("plain/shuffled")]
    assert [result for result in small.results if result.measure == "downstream/translation/BLEU/plain"]
    assert (finished / "report" / "index.html").stat().st_size > 1000


def test_controls_and_finetuning_are_what_they_say(finished: Path) -> None:
    records = {record.kind: record for record in read_run_records(finished / "runs.jsonl")}
    assert set(records["no-translation"].extra["samples_by_pair"]) == {"caption-en", "caption-de"}
    unfit = records["unfit-translation"]
    assert unfit.corpus_hash == records["main"].corpus_hash  # a view of the same corpus
    assert unfit.extra["samples_by_pair"] == records["main"].extra["samples_by_pair"]
    assert unfit.results != records["main"].results
    assert records["unfit-translation"].model_hash == records["main"].model_hash
    tuned: RunRecord = records["finetuned"]
    assert tuned.started_from == records["main"].run == "micro-gemma-s.balanced.s0.b000006"
    assert any(pair in tuned.extra["samples_by_pair"] for pair in ("caption-es", "caption-zh", "caption-ru"))
    assert tuned.initial == [r for r in records["main"].results if r.measure.startswith("cross_entropy")]
    captions = next(result for result in tuned.results if result.measure == "captions/language/plain")
    assert set(captions.per_split) == {"UC", "SC", "unseen"}  # what pretraining left out


def test_gallery_laws_and_timing(finished: Path) -> None:
    gallery = read_json(finished / "gallery.json")["pictures"]
    assert len(gallery) == 2
    shown = {(caption["run"], caption["language"], caption["variant"]) for caption in gallery[0]["captions"]}
    assert ("micro-gemma-s.balanced.s0.b000006", "zh", "prefix") in shown
    assert len({run for run, _, _ in shown}) == 4
    assert gallery[0]["truth"]
    laws = read_json(finished / "laws.json")
    assert {entry["target"] for entry in laws} == {"UC", "ST", "SC"}
    # One size: nothing can be fitted. Few targets, none of which begins with its prefix in some languages.
    reasons = {True: ("not identified", "no run has"), False: ("not identified",)}
    assert all(any(why in e["refused"] for why in reasons[e["reading"] == "prefix_given"]) for e in laws)
    timing = read_json(finished / "timing.json")
    assert {step["kind"] for step in timing["steps"]} == set(timing["core_seconds"])
    assert len(timing["sessions"]) == 1


def test_what_is_kept_of_it_can_be_judged_anew(finished: Path, values_of: Values, tmp_path: Path) -> None:
    """Damaged rates become what the captions say again; losses, chance and the benchmarks' twins stay as they were."""
    config = build_config(StudyConfig, values_of(finished))
    assert keep_study(config, tmp_path / "kept")[-1] == KEPT
    records = read_run_records(tmp_path / "kept" / "runs.jsonl")
    kept = read_kept_captions(tmp_path / "kept" / KEPT)
    assert {line.run for line in kept} == {record.run for record in records}
    same = rejudge(tmp_path / "kept")
    assert (same.num_changed, same.num_runs) == (0, 0)
    assert comparable(tmp_path / "kept") == comparable(finished)
    assert read_json(tmp_path / "kept" / "gallery.json") == read_json(finished / "gallery.json")

    wrong = [record.model_copy(deep=True) for record in records]
    judged = next(result for result in wrong[0].results if result.measure == "captions/language/prefix")
    judged.per_pair["caption-es"] = 0.123
    write_run_records(tmp_path / "kept" / "runs.jsonl", wrong)
    gallery = read_json(tmp_path / "kept" / "gallery.json")
    gallery["pictures"][0]["captions"][0]["right"] = None
    write_json(tmp_path / "kept" / "gallery.json", gallery)
    mended = rejudge(tmp_path / "kept")
    assert (mended.num_changed, mended.num_runs) == (1, 1)
    assert comparable(tmp_path / "kept") == comparable(finished)
    assert read_json(tmp_path / "kept" / "gallery.json") == read_json(finished / "gallery.json")

    write_json(tmp_path / "kept" / "gallery.json", {"pxctures": []})
    with pytest.raises(UserError, match=r"gallery.json: has no pictures; it may be damaged"):
        rejudge(tmp_path / "kept")
    write_run_records(tmp_path / "kept" / "runs.jsonl", records[1:])
    with pytest.raises(UserError, match="has no record of"):
        rejudge(tmp_path / "kept")
    (tmp_path / "kept" / KEPT).write_bytes(gzip.compress(b'{"run": "x"}\n'))
    with pytest.raises(UserError, match=r"captions.jsonl.gz:1: world_seed"):
        rejudge(tmp_path / "kept")
    with pytest.raises(UserError, match="run the study to its end first"):
        keep_study(config.model_copy(update={"output": tmp_path / "none"}), tmp_path / "other")


def test_a_second_run_does_nothing_and_a_change_only_its_own(finished: Path, start: Start, values_of: Values) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.rglob("done.json")}
    report = (finished / "report" / "index.html").stat().st_mtime_ns
    process = start(finished)
    _, errors = process.communicate(timeout=SECONDS)
    assert (process.returncode, errors) == (0, "")
    assert {path: path.stat().st_mtime_ns for path in finished.rglob("done.json")} == before
    assert (finished / "report" / "index.html").stat().st_mtime_ns == report
    plan = describe_study(build_config(StudyConfig, values_of(finished)))
    assert plan["num_done"] == plan["num_steps"]
    assert plan["wall_seconds"] == 0
    changed = describe_study(build_config(StudyConfig, values_of(finished, evaluation__max_new_tokens=5)))
    assert {step["kind"] for step in changed["steps"] if not step["done"]} == {"captions"}
    assert all(step["measured"] for step in changed["steps"])


def without_runs(finished: Path, study: Path) -> None:
    """A study whose worlds, bases and captioners are there and nothing else."""
    for room in ("world", "bases", "models"):
        shutil.copytree(finished / room, study / room, ignore=shutil.ignore_patterns("features"))


@pytest.mark.slow
def test_killed_and_started_again_it_ends_with_the_same_records(finished: Path, tmp_path: Path, start: Start) -> None:
    study = tmp_path / "study"
    without_runs(finished, study)
    # The parent is killed during the trainings: its workers leave with it.
    process = start(study)
    wait_for(lambda: list(study.glob("runs/*/*/checkpoints/*")), process)
    workers = workers_of(process)
    process.kill()
    process.communicate()
    assert len(workers) == 2
    # Workers are killed: they are replaced.
    process = start(study)
    wait_for(lambda: list(study.glob("runs/*finetuned*/*/metrics.jsonl")), process)
    for worker in workers_of(process):
        os.kill(worker, signal.SIGKILL)
    output, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    assert "its worker process was ended by SIGKILL" in errors
    assert output.endswith("index.html\n")
    assert comparable(study) == comparable(finished)


@pytest.mark.slow
def test_asked_to_stop_it_says_what_to_do_and_goes_on(finished: Path, tmp_path: Path, start: Start) -> None:
    study = tmp_path / "study"
    without_runs(finished, study)
    process = start(study)
    wait_for(lambda: list(study.glob("runs/*/*/record.json")), process)
    process.send_signal(signal.SIGTERM)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 2, errors
    assert "the same command goes on from there" in errors
    assert not [path for path in (study / "logs").iterdir() if "Traceback" in path.read_text()]
    process = start(study)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 0, errors
    assert comparable(study) == comparable(finished)


def test_one_process_runs_a_study_and_leftovers_go(tmp_path: Path) -> None:
    with claimed(tmp_path), pytest.raises(UserError, match="another process runs this study"), claimed(tmp_path):
        pass
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = tmp_path / "world" / f".main-0.{dead.pid}-1234abcd.partial"
    kept = tmp_path / "world" / f".main-0.{os.getpid()}-1234abcd.partial"
    left.mkdir(parents=True)
    kept.mkdir()
    (tmp_path / JOBS).touch()  # jobs on other machines may be writing
    remove_leftovers(tmp_path)
    assert left.exists()
    (tmp_path / JOBS).unlink()
    remove_leftovers(tmp_path)
    assert not left.exists()
    assert kept.exists()


@pytest.mark.slow
def test_a_step_that_fails_is_named_and_the_rest_goes_on(finished: Path, tmp_path: Path, start: Start) -> None:
    study = tmp_path / "study"
    without_runs(finished, study)
    (next(study.glob("world/full-*")) / "corpus.json").write_text("{}")
    process = start(study)
    _, errors = process.communicate(timeout=SECONDS)
    assert process.returncode == 2
    assert "finetune micro-gemma-s.balanced.s0.finetuned.from000006: failed" in errors
    done = {json.loads(path.read_text())["name"] for path in study.rglob("done.json")}
    assert "captions micro-gemma-s.balanced.s0.b000006" in done
    assert not [name for name in done if name.startswith("captions") and "finetuned" in name]


def test_nothing_is_predicted_that_is_measured_already(finished: Path, values_of: Values) -> None:
    with pytest.raises(UserError, match="all 2 main runs have records; a prediction is made before they are run"):
        predict_study(build_config(StudyConfig, values_of(finished)))


@pytest.mark.slow
def test_predicted_then_run_then_judged(tmp_path: Path, values_of: Values) -> None:
    """The larger budget of both sizes from the smaller ones: nothing is trained for it, and it is judged afterwards."""

    def config(*budgets: int) -> StudyConfig:
        grid = [{"sizes": ["micro-gemma-s", "micro-gemma-m"], "budgets": list(budgets), "seeds": [0, 1]}]
        return build_config(StudyConfig, values_of(tmp_path / "study", grid=grid, finetune=[]))

    run_study(config(3, 6, 9))
    path = predict_study(config(3, 6, 9, 12))
    prediction = read_prediction(path)
    assert set(prediction.runs) == {f"micro-gemma-{size}.balanced.s{seed}.b000012" for size in "sm" for seed in (0, 1)}
    losses = {(row.run, row.target): row for row in prediction.predicted if row.measure == LOSS}
    assert len(losses) == 4 * 3
    assert all(row.low < row.value < row.high for row in losses.values())
    with pytest.raises(UserError, match="is there already; a prediction is not written over"):
        predict_study(config(3, 6, 9, 12))
    run_study(config(3, 6, 9, 12))
    judged = judge(prediction, read_run_records(tmp_path / "study" / "runs.jsonl"))
    assert {row.target: row.num_runs for row in judged if row.measure == LOSS} == {"UC": 4, "ST": 4, "SC": 4}


@pytest.mark.slow
def test_predicted_from_the_records_of_another_study(tmp_path: Path, values_of: Values) -> None:
    def config(name: str, sizes: list[str], *budgets: int) -> StudyConfig:
        grid = [{"sizes": sizes, "budgets": list(budgets), "seeds": [0, 1]}]
        return build_config(StudyConfig, values_of(tmp_path / name, grid=grid, finetune=[]))

    run_study(config("small", ["micro-gemma-s", "micro-gemma-m"], 3, 6, 9))
    records = read_run_records(tmp_path / "small" / "runs.jsonl")
    prediction = read_prediction(predict_study(config("longer", ["micro-gemma-m"], 12), others=records))
    assert set(prediction.runs) == {f"micro-gemma-m.balanced.s{seed}.b000012" for seed in (0, 1)}
    last = [record for record in records if record.num_steps == 9 and record.size == "micro-gemma-m"]
    expected = sum(find_result(record.results, LOSS, "eval").at("UC") for record in last) / 2
    losses = [row for row in prediction.predicted if row.measure == LOSS and row.target == "UC"]
    assert [row.last_budget for row in losses] == [pytest.approx(expected)] * 2
    with pytest.raises(UserError, match=r"have 2 of the runs to predict, micro-gemma-m\.balanced\.s0\.b000006 first"):
        predict_study(config("again", ["micro-gemma-m"], 6), others=records)
