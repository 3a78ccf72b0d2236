"""Launches a study on this machine: every step that is not done, longest chains first, in workers; then the report.

Stopped at any point, by whatever means, the same command goes on: what is done stays done.
"""

import os
import shutil
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from babelcap.config import content_hash, write_config
from babelcap.errors import UserError
from babelcap.jobs.pool import Outcome, Pool
from babelcap.storage import locked, write_json
from babelcap.study.config import StudyConfig
from babelcap.study.display import Display, make_display
from babelcap.study.estimate import estimate_steps, read_timing, write_timing
from babelcap.study.finish import finish_study
from babelcap.study.graph import ROOMS, Step, ahead
from babelcap.study.grid import StudyGraph, study_graph

ENTRY = "babelcap.study.steps:run_in_worker"
MAX_DEATHS = 3  # of workers in one step, before it is given up
WAIT_SECONDS = 0.5
LOCK = ".lock"
JOBS = "slurm.json"  # step's hash -> id of the job that was submitted for it


def num_workers_of(config: StudyConfig) -> int:
    return config.num_workers or len(os.sched_getaffinity(0))


def run_study(config: StudyConfig) -> Path:
    """Returns the path of the report."""
    study = config.output.resolve()
    graph = study_graph(config)
    with claimed(study):
        remove_leftovers(study)
        write_study(graph, study)
        run_steps(graph, study, num_workers_of(config))
        return finish_study(graph, study)


def write_study(graph: StudyGraph, study: Path) -> None:
    """What is run, whoever runs it."""
    config = graph.config
    write_config(study / "config.json", config)
    settings = config.model_dump(mode="json") | {"coverage": config.coverage.model_dump(mode="json")}
    values = {"config": settings, "hash": content_hash(config)}
    write_json(study / "study.json", values | {"steps": {step.name: str(step.folder) for step in graph.steps}})


def run_steps(graph: StudyGraph, study: Path, num_workers: int) -> None:
    finished = {step.hash: entry for step in graph.steps if (entry := step.done(study)) is not None}
    todo = [step for step in graph.steps if step.hash not in finished]
    if not todo:
        return
    estimates = estimate_steps(graph.steps, read_timing(study))
    started, clock = time.time(), time.monotonic()
    num_workers = min(num_workers, len(todo))
    display = make_display(graph.steps, set(finished), estimates, num_workers)
    try:
        with stop_as_interrupt(), display, Pool(num_workers, ENTRY, study / "logs") as pool:
            scheduler = Scheduler(todo, {hash: found.seconds for hash, found in estimates.items()}, finished)
            scheduler.run(pool, study, display)
    except KeyboardInterrupt:
        raise UserError("stopped; what is done stays done, and the same command goes on from there") from None
    finally:
        session = {"started": round(started), "seconds": round(time.monotonic() - clock, 1), "workers": num_workers}
        write_timing(study, finished.values(), session)
    if scheduler.failed:
        lines = [f"{name}: {message}" for name, message in scheduler.failed.items()]
        more = f" (and {len(lines) - 1} more steps failed)" if len(lines) > 1 else ""
        raise UserError(f"{lines[0]}{more}; see {study / 'logs'}. The same command tries again")


class Scheduler:
    """Which step is next. `finished` is filled in as steps end."""

    def __init__(self, todo: list[Step], seconds: Mapping[str, float], finished: dict[str, Any]) -> None:
        self.steps = {step.hash: step for step in todo}
        priority = ahead(todo, seconds)
        self.pending = sorted(todo, key=lambda step: -priority[step.hash])
        self.finished = finished
        self.failed: dict[str, str] = {}
        self.num_deaths: dict[str, int] = {}
        self.num_running = 0

    def run(self, pool: Pool, study: Path, display: Display) -> None:
        while True:
            while pool.num_idle and (step := self._next()) is not None:
                pool.start(step.job(study))
                self.num_running += 1
                display.started(step)
            if not self.num_running:
                return
            for outcome in pool.wait(WAIT_SECONDS):
                self._take(outcome, display)
            display.refresh()

    def _next(self) -> Step | None:
        for step in self.pending:
            if all(need.hash in self.finished for need in step.inputs.values()):
                self.pending.remove(step)
                return step
        return None

    def _take(self, outcome: Outcome, display: Display) -> None:
        step = self.steps[outcome.job["hash"]]
        self.num_running -= 1
        if outcome.died is not None:
            deaths = self.num_deaths[step.hash] = self.num_deaths.get(step.hash, 0) + 1
            if deaths < MAX_DEATHS:
                display.failed(step, f"its worker process {outcome.died}; started again ({deaths + 1} of {MAX_DEATHS})")
                self.pending.insert(0, step)
                return
            self.failed[step.name] = f"its worker process {outcome.died}, {deaths} times"
            display.failed(step, self.failed[step.name])
        elif outcome.error is not None:
            self.failed[step.name] = outcome.error
            display.failed(step, f"failed: {outcome.error}")
        else:
            self.finished[step.hash] = outcome.value
            display.finished(step, outcome.value["seconds"])


def claimed(study: Path) -> AbstractContextManager[None]:
    """One process at a time runs a study."""
    return locked(study / LOCK, refuse=f"{study}: another process runs this study; wait or choose another output")


def remove_leftovers(study: Path) -> None:
    """Folders that a killed process was writing when it died; on this machine, where no other may be writing."""
    if (study / JOBS).is_file():
        return
    for room in {room for room, _ in ROOMS.values()}:
        for path in (study / room).glob(".*.partial"):
            process = path.name.removesuffix(".partial").rpartition(".")[2].partition("-")[0]
            if process.isdigit() and not _is_alive(int(process)):
                shutil.rmtree(path, ignore_errors=True)
                path.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(process, 0)
        return True
    return False


@contextmanager
def stop_as_interrupt() -> Iterator[None]:
    """SIGTERM ends a study as Ctrl-C does: the workers are asked to leave first."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
