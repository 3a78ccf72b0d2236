"""What the attacks share: inputs damaged by chance, and a watch over every reader that has to cope with them.

Each input is read or refused in one line, within bounds of processor time and memory. What was tried is listed at the
end of the tests (`pytest -m slow tests/attack`). BABELCAP_ATTACK_SCALE=5 tries five times as many.
"""

import json
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from babelcap.errors import BadSample, UserError

MAX_SECONDS = 5.0  # of processor time, for one input
MAX_MIB = 1024  # of memory, for one input, above what the process had before
MAX_LINE = 2000  # characters of what the user is told
SCALE = float(os.environ.get("BABELCAP_ATTACK_SCALE", "1"))  # of the number of cases of each long attack
WRONG: tuple[Any, ...] = (
    None, True, 0, 3, -1, 2.5, 2**63, -(2**70), 10**30, 10**400, 1e308, float("nan"), float("inf"), "", "x", "../../x",
    "a\nb", "a\0b", "\ud800", "<script>", "9" * 5000, [], [[]], [None], {}, {"a": []}, {"": 1}, [1] * 50, [[[[[]]]]],
)  # fmt: skip
WRONG_BYTES = (
    b"",
    b"\0",
    b"\n",
    b'"',
    b"{",
    b",",
    b"\t",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"[" * 3000,
    b"9" * 5000,
    b"nan",
)


def wrong_value(value: Any, draw: random.Random) -> Any:
    """The same JSON value with one thing in it exchanged, left out or doubled."""
    if isinstance(value, dict) and value and draw.random() < 0.87:
        name = draw.choice(list(value))
        if draw.random() < 0.1:
            return {other: item for other, item in value.items() if other != name}
        return {**value, name: wrong_value(value[name], draw)}
    if isinstance(value, list) and value and draw.random() < 0.87:
        place = draw.randrange(len(value))
        if draw.random() < 0.1:
            return value + value[place : place + 1]
        return [*value[:place], wrong_value(value[place], draw), *value[place + 1 :]]
    return draw.choice(WRONG)


def damage(content: bytes, name: str, draw: random.Random) -> bytes:
    """Another value in JSON; elsewhere a piece flipped, cut, doubled, exchanged, or the end gone."""
    if name.endswith((".json", ".jsonl", ".jsonlines")) and draw.random() < 0.5:
        lines = [content.decode()] if name.endswith(".json") else content.decode().splitlines()
        place = draw.randrange(len(lines))
        lines[place] = json.dumps(wrong_value(json.loads(lines[place]), draw))
        return "\n".join(lines).encode()
    start = draw.randrange(len(content))
    end = min(len(content), start + draw.choice((1, 4, 16, 200)))
    piece = content[start:end]
    pieces = (
        bytes([piece[0] ^ 1 << draw.randrange(8)]) + piece[1:],
        piece * 2,
        bytes(len(piece)),
        b"\xff" * len(piece),
        draw.randbytes(len(piece)),
        draw.choice(WRONG_BYTES),
    )
    return content[:start] if draw.random() < 0.1 else content[:start] + draw.choice(pieces) + content[end:]


@pytest.fixture(scope="session")
def wrong() -> Callable[[Any, random.Random], Any]:
    return wrong_value


@pytest.fixture(scope="session")
def damaged() -> Callable[[list[Path], int, random.Random], Iterator[Path]]:
    """Each damage to one of the files in turn, in its place while the caller reads."""

    def damaged(files: list[Path], number: int, draw: random.Random) -> Iterator[Path]:
        whole = {path: path.read_bytes() for path in files}
        for _ in range(number):
            path = draw.choice(files)
            path.write_bytes(damage(whole[path], path.name, draw))
            yield path
            path.write_bytes(whole[path])

    return damaged


class Watch:
    """Runs a reader on one bad input after the other and measures each."""

    def __init__(self, reader: str) -> None:
        self.reader = reader
        self.num_read = self.num_refused = 0
        self.slowest_seconds = self.peak_mib = 0.0

    def __call__(self, read: Callable[[], object], case: object = "") -> str:
        """What the user is told, nothing where the input was read; any other exception is the test's failure."""
        said = ""
        before_mib, before_seconds = _start_of_peak(), _processor_seconds()
        with _stopped_after(MAX_SECONDS):
            try:
                read()
                self.num_read += 1
            except (UserError, BadSample) as error:
                self.num_refused += 1
                said = str(error) or "bad sample"
        seconds, mib = _processor_seconds() - before_seconds, _memory_mib("VmHWM") - before_mib
        assert seconds < MAX_SECONDS, f"{self.reader} {case}: {seconds:.1f} s of processor time"
        assert mib < MAX_MIB, f"{self.reader} {case}: {mib:.0f} MiB of memory"
        assert "\n" not in said, f"{self.reader} {case}: more than one line: {said}"
        assert len(said) < MAX_LINE, f"{self.reader} {case}: {said[:300]}"
        self.slowest_seconds, self.peak_mib = max(self.slowest_seconds, seconds), max(self.peak_mib, mib)
        return said


def _processor_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _memory_mib(name: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _start_of_peak() -> float:
    """The memory in use; from here on `VmHWM` is the most that was in use since now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _memory_mib("VmRSS")


@contextmanager
def _stopped_after(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise AssertionError(f"more than {seconds:g} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


@pytest.fixture
def watch(request: pytest.FixtureRequest, record_property: Callable[[str, object], None]) -> Iterator[Watch]:
    callspec = getattr(request.node, "callspec", None)
    name = request.node.originalname.removeprefix("test_")
    watch = Watch(name if callspec is None or callspec.id.isdigit() else callspec.id)
    yield watch
    record_property("attack", [watch.reader, watch.num_read, watch.num_refused, watch.slowest_seconds, watch.peak_mib])


@pytest.fixture
def attack(tmp_path: Path, damaged: Any, watch: Watch) -> Callable[[Any, int], None]:
    """Makes a reader's files (`make(folder)` gives `files` and `read`), damages them so many times and reads each."""

    def attack(make: Any, number: int) -> None:
        (tmp_path / "in").mkdir()
        target = make(tmp_path / "in")
        target.read(tmp_path / "sound")
        for place, path in enumerate(damaged(target.files, number, random.Random(f"{make.__name__}/{number}"))):
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
