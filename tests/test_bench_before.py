"""bench/before.py: what is held against what, in which order, and that what runs inside a source runs in this one."""

import json
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

BENCH = Path(__file__).parent.parent / "bench"
GIB = 2**30
BEFORE = {
    "captions": {"captions": 1 / 64},
    "generate": {"float32": 6.0, "shortlist": 4.0},
    "train": {"seconds": 3.0, "peak_bytes": 6.0 * GIB, "loss": 9.0},
}
NOW = {
    "captions": {"captions": 1 / 256},
    "generate": {"float32": 3.0, "shortlist": 2.0, "int8": 1.5, "int8, shortlist": 0.5},
    "train": {"seconds": 1.0, "peak_bytes": 4.0 * GIB, "loss": 9.0},
}


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return import_module("before")


@pytest.fixture
def one_source(before: ModuleType) -> ModuleType:
    return import_module("one_source")


@pytest.fixture
def asked(before: ModuleType, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """What is asked of which source, in its order; the answers are planted."""
    seen: list[tuple[str, str]] = []

    def in_source(source: Path, what: str, **options: Any) -> dict[str, float]:
        is_ours = source == before.SOURCE
        seen.append(("now" if is_ours else "before", f"{what} {options.get('precision', '')}".strip()))
        return (NOW if is_ours else BEFORE)[what]

    def seconds_of(arguments: list[str], source: Path) -> float:
        is_ours = source == before.SOURCE
        seen.append(("now" if is_ours else "before", arguments[2]))
        return {"caption": 3.0, "--help": 0.25}[arguments[2]] * (1 if is_ours else 2)

    monkeypatch.setattr(before, "in_source", in_source)
    monkeypatch.setattr(before, "seconds_of", seconds_of)
    return seen


@pytest.fixture
def other(tmp_path: Path) -> Path:
    (tmp_path / "babelcap").mkdir()
    return tmp_path


def run(before: ModuleType, monkeypatch: pytest.MonkeyPatch, *words: object) -> None:
    monkeypatch.setattr(sys, "argv", ["before.py", *map(str, words)])
    before.main()


def test_one_command_gives_before_and_now_of_every_target(
    before: ModuleType,
    asked: list[tuple[str, str]],
    other: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(before, monkeypatch, other, "--quick", "--images", 1, "--json")
    rows = {row["name"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert {name: (row["ratio"], row["baseline"], row["target"]) for name, row in rows.items()} == {
        "captions: pictures to texts": (4.0, "another checkout", 3.0),
        "generate: float32": (2.0, "another checkout", None),
        "generate: shortlist of 20,000": (2.0, "another checkout", None),
        "generate: int8": (4.0, "another checkout, float32", None),
        "generate: int8, shortlist of 20,000": (8.0, "another checkout, shortlist", None),
        "train step: 0.4B": (3.0, "another checkout", None),
        "train step: 0.4B, memory": (1.5, "another checkout", None),
        "train step: 0.4B, bfloat16": (3.0, "another checkout, float32", None),
        "train step: 0.4B, bfloat16, memory": (1.5, "another checkout, float32", None),
        "start: caption": (2.0, "another checkout", 2.0),
        "start: --help": (2.0, "another checkout", None),
    }
    assert all(row["low"] == row["ratio"] == row["high"] for row in rows.values())
    shown = {name: (rows[name]["before"], rows[name]["now"], rows[name]["unit"]) for name in list(rows)[:7:6]}
    assert shown == {
        "captions: pictures to texts": (64.0, 256.0, "captions/s"),
        "train step: 0.4B, memory": (6.0, 4.0, "GiB"),
    }


def test_the_sources_take_turns(
    before: ModuleType,
    asked: list[tuple[str, str]],
    other: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    run(before, monkeypatch, other, "--only", "train", "captions", "--repeats", 2, "--images", 1)
    steps = [("before", "train fp32"), ("now", "train fp32"), ("now", "train bf16")]
    assert asked == [*steps, *steps, *[("before", "captions"), ("now", "captions")] * 2]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines][::4] == ["train step: 0.4B", "captions: pictures to texts"]
    assert "target 3.0]  64 -> 256 captions/s  against another checkout" in lines[-1]


def test_a_source_that_knows_int8_is_held_against_its_own(before: ModuleType) -> None:
    line = before.Line("generate: int8", "int8", "float32")
    rounds = [({"float32": 8.0, "int8": 3.0}, {"int8": 1.0}), ({"float32": 9.0, "int8": 2.0}, {"int8": 2.0})]
    found = before.make_row(line, rounds)
    assert (found["baseline"], found["ratio"], found["low"], found["high"]) == ("another checkout", 2.0, 1.0, 3.0)


def test_sources_that_compute_different_losses_are_not_compared(
    before: ModuleType,
    asked: list[tuple[str, str]],
    other: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(NOW, "train", NOW["train"] | {"loss": 9.1})
    with pytest.raises(AssertionError, match=r"different losses: \[9\.0, 9\.1\]"):
        run(before, monkeypatch, other, "--only", "train", "--repeats", 1, "--images", 1)


def test_another_folder_is_refused(
    before: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(before, monkeypatch, tmp_path)
    assert "holds no babelcap; name the src folder of a checkout" in capsys.readouterr().err


def test_what_runs_inside_a_source_runs_in_this_one(one_source: ModuleType) -> None:
    with torch.random.fork_rng():
        found = one_source.generate("micro-florence-s", 2, 2, 4, 200, 64)
        assert set(found) == {"float32", "shortlist", "int8", "int8, shortlist"}
        found |= one_source.train("micro-florence-s", "fp32", 2, 8, 64, 1) if sys.platform == "linux" else {}
    assert min(found.values()) > 0


def test_what_moved_is_found_where_it_is(one_source: ModuleType) -> None:
    from babelcap.models.sizing.sizes import size_config

    assert one_source.moved("size_config", "models.sizes", "models.sizing.sizes") is size_config
    with pytest.raises(ModuleNotFoundError, match=r"no module of this source has size_config: models\.sizes"):
        one_source.moved("size_config", "models.sizes")
