"""The progress bar: on a terminal, and nowhere else."""

import io
import sys

import pytest

from babelcap.jobs.progress import ProgressBar, duration, progress
from babelcap.jobs.receipts import Receipt
from babelcap.jobs.stages import row_progress
from babelcap.training.progress import Reporter


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def use_terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    """Within a test: pytest puts its own standard error in place between setup and call."""
    found = Terminal()
    monkeypatch.setattr(sys, "stderr", found)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "160")
    return found


def test_a_terminal_sees_the_count_a_remark_and_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    bar = ProgressBar("Reading", 10, done=3, keep=True)
    bar.advance(2)
    bar.set(6, "loss [bold]1.5")
    bar.say("a [line]")
    bar.set(7)
    bar.close()
    shown = terminal.getvalue()
    assert bar.shown
    assert "Reading" in shown
    assert "7/10" in shown
    assert "loss [bold]1.5" in shown  # as it is: no markup, and it stays
    assert "a [line]" in shown


def test_elsewhere_nothing_is_written(capsys: pytest.CaptureFixture[str]) -> None:
    with progress("Reading", 10) as advance:
        advance(1)
    bar = ProgressBar("Reading", None)
    bar.set(1, "x")
    bar.say("y")
    bar.close()
    assert (bar.shown, capsys.readouterr().err) == (False, "")


METRICS = {"loss": 1.25, "loss_by_pair": {"caption-en": 1.0}, "learning_rate": 1e-3}
RATES = {"samples_per_second": 10.0, "target_tokens_per_second": 90.0}


def test_training_reports_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    reporter = Reporter("run", 0, 4, every_steps=2)
    for step in (1, 2, 3):
        reporter.update(step, METRICS, RATES)
    reporter.say("saved")
    reporter.close()
    assert "loss 1.250 (caption-en 1.00)" in terminal.getvalue()
    assert "saved" in terminal.getvalue()


def test_training_reports_in_plain_lines(capsys: pytest.CaptureFixture[str]) -> None:
    reporter = Reporter("run", 0, 4, every_steps=2)
    quiet = Reporter("run", 0, 4, every_steps=2, quiet=True)
    for step in (1, 2, 3, 4):
        reporter.update(step, METRICS, RATES)
        quiet.update(step, METRICS, RATES)
        quiet.say("nothing")
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" loss")[0] for line in lines] == ["run step 2/4", "run step 4/4"]


@pytest.mark.parametrize(
    ("seconds", "words"), [(3.4, "3 s"), (59.6, "1 min 00 s"), (3599, "59 min 59 s"), (7260, "2 h 01 min")]
)
def test_durations_in_words(seconds: float, words: str) -> None:
    assert duration(seconds) == words


def test_a_stage_tells_rows_and_rows_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = use_terminal(monkeypatch)
    with row_progress("clean", 3) as advance:
        for _ in range(2):
            advance(Receipt(stage="clean", stage_hash="", inputs={}, num_in=1500, num_out=1500))
    assert "2/3" in terminal.getvalue()
    assert "3,000 rows, " in terminal.getvalue()
    assert " rows/s" in terminal.getvalue()
