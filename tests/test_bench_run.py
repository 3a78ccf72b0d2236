"""bench/run.py: one summary, of which a part can be measured anew; planted measurements in the scripts' place."""

import json
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

BENCH = Path(__file__).parent.parent / "bench"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return import_module("run")


def summarise(run: ModuleType, monkeypatch: pytest.MonkeyPatch, folder: Path, ratio: float, *only: str) -> list[Any]:
    """Every script gives one line with this ratio; the lines of the summary afterwards."""
    monkeypatch.setattr(
        run, "measured", lambda name, quick: [{"name": f"{name}: time", "baseline": "", "ratio": ratio}]
    )
    monkeypatch.setattr(sys, "argv", ["run.py", "--output", str(folder), *(["--only", *only] if only else [])])
    run.main()
    return json.loads((folder / "results.json").read_text())["rows"]


def test_a_part_measured_anew_takes_its_place_among_the_others(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    whole = summarise(run, monkeypatch, tmp_path, 1.0)
    assert [found["script"] for found in whole] == list(run.READERS)
    again = summarise(run, monkeypatch, tmp_path, 2.0, "growth", "generate")
    assert [found["script"] for found in again] == list(run.READERS)
    assert {found["script"] for found in again if found["ratio"] == 2.0} == {"growth", "generate"}
    assert (tmp_path / "RESULTS.md").read_text().count("| growth: time |") == 1


def test_what_another_machine_measured_does_not_stay(
    run: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    summarise(run, monkeypatch, tmp_path, 1.0)
    monkeypatch.setattr(run, "processor", lambda: "another")
    assert [found["script"] for found in summarise(run, monkeypatch, tmp_path, 2.0, "laws")] == ["laws"]


def test_a_damaged_summary_is_written_anew(run: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_text("{")
    assert len(summarise(run, monkeypatch, tmp_path, 1.0, "laws")) == 1
