"""`babelcap study` on the command line, and what it shows while it runs."""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.storage import write_json
from babelcap.study.config import StudyConfig
from babelcap.study.display import Display, LiveDisplay, duration
from babelcap.study.estimate import estimate_steps
from babelcap.study.grid import study_graph


@pytest.fixture
def config(tmp_path: Path, values_of: Callable[..., dict[str, Any]]) -> Path:
    write_json(tmp_path / "tiny.json", values_of(tmp_path / "study"))
    return tmp_path / "tiny.json"


def test_dry_run_and_status(config: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["study", "run", str(config), "--dry-run"])
    assert done.exit_code == 0, done.output
    assert "5 records from" in done.stdout
    assert "with 2 workers" in done.stdout
    done = CliRunner().invoke(app, ["study", "status", str(config), "num_workers=3", "--json"])
    plan = json.loads(done.stdout)
    assert (plan["num_done"], plan["num_workers"]) == (0, 3)
    assert {step["kind"] for step in plan["steps"]} == {
        "world", "benchmarks", "base", "prepare", "train", "finetune", "loss", "captions"
    }  # fmt: skip
    assert not (tmp_path / "study").exists()


def test_status_of_the_published_study_needs_nothing() -> None:
    paper = Path(__file__).parents[2] / "configs" / "study" / "paper.toml"
    done = CliRunner().invoke(app, ["study", "status", str(paper)])
    assert done.exit_code == 0, done.output
    assert "to do        finetune 11.2B.published.s0.finetuned.from010000\n" in done.stdout
    assert "paper: 0 of 58 steps done" in done.stdout


def test_mistakes_are_one_line(config: Path, tmp_path: Path) -> None:
    for arguments, words in (
        (["study", "run", str(config), "name=x\ntouch INJ #"], "letters, digits"),
        (["study", "gather", str(config)], "none of its 5 runs has ended yet"),
        (["study", "run", str(config), "evaluation.num_caption=3"], "did you mean 'evaluation.num_captions'?"),
        (["study", "run", str(tmp_path / "none.toml")], "no such configuration file"),
        (["study", "report", str(tmp_path)], "has no runs.jsonl"),
    ):
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 2
        assert words in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_lines_and_live_table(tiny: Callable[..., StudyConfig], capsys: pytest.CaptureFixture[str]) -> None:
    steps = study_graph(tiny()).steps
    estimates = estimate_steps(steps, {})
    display = Display(steps, {steps[0].hash}, estimates, 2)
    left = display.remaining_seconds()
    display.started(steps[1])
    display.finished(steps[1], 61.4)
    assert f"[2/{len(steps)}] {steps[1].name}: 1 min 01 s" in capsys.readouterr().err
    assert display.remaining_seconds() == pytest.approx(left - estimates[steps[1].hash].seconds / 2)
    live = LiveDisplay(steps, set(), estimates, 2)
    live.running[steps[0].hash] = (steps[0], time.monotonic())
    table = live._table()
    assert "to go" in table.title
    assert table.row_count == 8


def test_durations_are_short() -> None:
    assert [duration(seconds) for seconds in (3.4, 75, 3700)] == ["3 s", "1 min 15 s", "1 h 01 min"]
