"""A small world and a build of it, for the tests that run many stages."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from babelcap.generate.config import BuildConfig
from babelcap.jobs.receipts import Receipt
from babelcap.jobs.stages import Finished, Stage, run_task
from tiny_build import SmallBuilds, build_settings, make_source
from torture.kill_stages import Builder, make_builder


class HereEngine:
    """Runs tasks in this process: what stages do, without the seconds that worker processes take to start."""

    def __enter__(self) -> "HereEngine":
        return self

    def __exit__(self, *_: object) -> None: ...

    def run(self, stage: Stage, tasks: Sequence[dict[str, Any]]) -> Iterator[Finished]:
        for task in tasks:
            yield Finished(task["name"], Receipt.model_validate(run_task(task)))


@pytest.fixture(scope="session")
def here() -> HereEngine:
    return HereEngine()


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_source(tmp_path_factory.mktemp("world") / "w")


@pytest.fixture(scope="session")
def settings(world: Path) -> Callable[..., BuildConfig]:
    return partial(build_settings, world)


@pytest.fixture(scope="module")
def builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    found = make_builder(tmp_path_factory.mktemp("builder") / "log.txt")
    yield found
    found.close()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory, world: Path) -> Callable[..., Path]:
    """Writes the configuration of a build of four small tars and two languages into a folder."""
    return SmallBuilds(world, tmp_path_factory.mktemp("tars")).write


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, small: Callable[..., Path], builder: Builder) -> Path:
    """An undisturbed build."""
    folder = small(tmp_path_factory.mktemp("whole") / "build")
    builder.build(folder)
    assert builder.end() == 0, builder.said()
    return folder
