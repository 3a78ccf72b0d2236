"""What the attacks share; the damage, the watch and the readers are those of `torture/`.

What was tried is listed at the end of the tests (`pytest -m slow tests/attack`). BABELCAP_ATTACK_SCALE=5 tries five
times as many.
"""

import os
import random
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from torture.damage import damage_in_turn
from torture.watch import Watch

SCALE = float(os.environ.get("BABELCAP_ATTACK_SCALE", "1"))  # of the number of cases of each long attack


@pytest.fixture
def watch(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Iterator[Watch]:
    callspec = getattr(request.node, "callspec", None)
    name = request.node.originalname.removeprefix("test_")
    watch = Watch(name if callspec is None or callspec.id.isdigit() else callspec.id)
    yield watch
    record_property("attack", [watch.reader, watch.num_read, watch.num_refused, watch.slowest_seconds, watch.peak_mib])


@pytest.fixture
def attack(tmp_path: Path, watch: Watch) -> Callable[[Any, int], None]:
    """Makes a reader's files (`make(folder)` gives `files` and `read`), damages them so many times and reads each."""

    def attack(make: Any, number: int) -> None:
        (tmp_path / "in").mkdir()
        target = make(tmp_path / "in")
        target.read(tmp_path / "sound")
        for place, path in enumerate(damage_in_turn(target.files, number, random.Random(f"{make.__name__}/{number}"))):
            watch(lambda: target.read(tmp_path / "out"), (place, path.name))
            shutil.rmtree(tmp_path / "out", ignore_errors=True)

    return attack


@pytest.fixture
def flips(record_property: Callable[[str, object], None]) -> Callable[[str, Mapping[str, int]], None]:
    """Notes how the flipped bits of a file were met, for the list at the end."""

    def note(what: str, ended: Mapping[str, int]) -> None:
        record_property("flips", [what, dict(ended)])

    return note


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The long attacks try as many cases as was asked for."""
    for item in items:
        if SCALE != 1 and Path(__file__).parent in item.path.parents and item.get_closest_marker("slow"):
            given: dict[str, Any] = item.callspec.params  # type: ignore[attr-defined]
            given["number"] = max(1, round(SCALE * given["number"]))


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Works under xdist too, whose workers send their reports here."""
    if "slow" not in config.getoption("markexpr").replace("not slow", ""):
        return
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    last = [dict(report.user_properties) for report in reports if getattr(report, "when", "") == "teardown"]
    flips = sorted((found["flips"] for found in last if "flips" in found), key=str)
    if flips:
        terminalreporter.section("flipped bits")
        for what, ended in flips:
            how = ", ".join(f"{name}: {number:,}" for name, number in ended.items())
            terminalreporter.line(f"{what:28}{sum(ended.values()):6,}  {how}")
    rows = [tuple(found["attack"]) for found in last if "attack" in found and sum(found["attack"][1:3])]
    if not rows:
        return
    terminalreporter.section("attacks on readers")
    terminalreporter.line(f"{'reader':44}{'tried':>8}{'refused':>8}{'read':>8}{'slowest s':>11}{'peak MiB':>10}")
    total = ("all", sum(r[1] for r in rows), sum(r[2] for r in rows), max(r[3] for r in rows), max(r[4] for r in rows))
    for reader, num_read, num_refused, seconds, mib in [*sorted(rows), total]:
        tried = num_read + num_refused
        terminalreporter.line(f"{reader:44}{tried:8,}{num_refused:8,}{num_read:8,}{seconds:11.2f}{mib:10.0f}")
