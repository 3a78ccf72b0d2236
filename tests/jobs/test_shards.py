"""One function over many shards: order, failures as they were, and workers that die."""

import importlib
import posix
from pathlib import Path
from types import ModuleType

import pytest

from babelcap.errors import BadSample, UserError
from babelcap.jobs import shards
from babelcap.jobs.shards import map_shards, stream_shards

WORK = '''
import os, pathlib, signal
from babelcap.errors import BadSample, UserError

def square(number):
    return number * number

def fail(kind):
    if kind == "user":
        raise UserError("a mistake")
    if kind == "sample":
        raise BadSample("corrupt image", "x")
    if kind == "full":
        raise OSError(28, "No space left on device", "/x")
    raise ZeroDivisionError("a fault")

def die_at_first(path):
    """Dies the first two times, and works then."""
    path = pathlib.Path(path)
    number = len(list(path.parent.glob(path.name + ".*")))
    path.with_name(f"{path.name}.{number}").touch()
    if number < 2:
        os.kill(os.getpid(), signal.SIGKILL)
    return number
'''


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Functions of a module that worker processes can import."""
    (tmp_path / "work_for_shards.py").write_text(WORK)
    monkeypatch.syspath_prepend(tmp_path)
    return importlib.import_module("work_for_shards")


@pytest.mark.parametrize("num_workers", [1, 3])
def test_results_come_in_order(work: ModuleType, num_workers: int) -> None:
    assert map_shards(work.square, range(20), num_workers, "Squaring") == [number**2 for number in range(20)]
    assert map_shards(work.square, [], num_workers, "Squaring") == []


def test_results_are_streamed_and_may_be_left(work: ModuleType) -> None:
    stream = stream_shards(work.square, range(1000), 2, "Squaring", [2] * 1000)
    assert [next(stream) for _ in range(3)] == [0, 1, 4]
    stream.close()  # ends the workers


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        ("user", UserError, "a mistake"),
        ("sample", BadSample, "corrupt image"),
        ("full", OSError, "No space left"),
        ("fault", ZeroDivisionError, "a fault"),
    ],
)
def test_a_failure_is_raised_as_it_was(work: ModuleType, kind: str, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        map_shards(work.fail, [kind] * 2, 2, "Failing")
    if kind == "full":
        assert (caught.value.errno, caught.value.filename) == (28, "/x")  # type: ignore[attr-defined]
    if kind == "fault":
        assert "in fail" in "".join(caught.value.__notes__)  # where it happened


def test_a_dead_worker_is_replaced_and_its_shard_done_again(work: ModuleType, tmp_path: Path) -> None:
    assert map_shards(work.die_at_first, [str(tmp_path / name) for name in "ab"], 2, "Dying") == [2, 2]


def test_a_shard_that_kills_its_workers_is_named() -> None:
    with pytest.raises(
        UserError, match=rf"shard [12] of 2 .* took {shards.MAX_DEATHS} worker processes .* exit code 7"
    ):
        map_shards(posix._exit, [7, 7], 2, "Dying")
