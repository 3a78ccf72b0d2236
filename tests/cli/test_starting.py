"""The garbage collector rests while a command starts, and is as it was afterwards; also after a failure."""

import gc
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

import pytest

from babelcap.cli.starting import ending, starting


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    was_enabled = gc.isenabled()
    yield
    gc.unfreeze()
    (gc.enable if was_enabled else gc.disable)()


@pytest.mark.parametrize("enabled", [True, False])
def test_the_collector_rests_and_is_as_it_was(enabled: bool) -> None:
    (gc.enable if enabled else gc.disable)()
    with starting():
        assert not gc.isenabled()
    assert gc.isenabled() is enabled


def fail() -> None:
    with starting():
        raise KeyError


def test_after_a_failure_it_is_as_it_was() -> None:
    gc.enable()
    with pytest.raises(KeyError):
        fail()
    assert gc.isenabled()


@pytest.mark.parametrize("around", [starting, ending])
def test_what_is_there_afterwards_is_not_looked_through(around: Callable[[], AbstractContextManager[None]]) -> None:
    before = gc.get_freeze_count()
    with around():
        made: list[list[int]] = [[] for _ in range(1000)]
    assert gc.get_freeze_count() >= before + len(made)


def test_garbage_of_later_is_still_found() -> None:
    with starting():
        pass
    circle: list[object] = []
    circle.append(circle)
    del circle
    assert gc.collect() > 0
