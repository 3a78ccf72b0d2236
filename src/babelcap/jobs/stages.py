"""A stage maps shard to shard, on local processes or on Ray; killed at any moment, the same command ends the same.

    <work>/<stage>-<hash>/<shard>.parquet     done, with its receipt; without it, not done
    <work>/attempts/<stage>-<hash>/<shard>    how often it was started and did not end: it may kill its process

Engines only run tasks: what is left to do, what is tried again and what is set aside is decided here, for all of them.
"""

import importlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from babelcap.errors import NO_ROOM, UserError, disk_message
from babelcap.jobs.progress import ProgressBar
from babelcap.jobs.receipts import (
    JOURNAL,
    Inputs,
    MadeBy,
    Receipt,
    ShardOutput,
    inputs_sha256,
    is_done,
    read_receipt,
    versions_of,
    write_shard,
)
from babelcap.storage import RememberedChecksums, sweep_partials, text_sha256, write_text

MAX_ATTEMPTS = 3  # that end in a failure or in a dead process, before a shard is set aside
MAX_SAME_FAILURES = 3  # of different shards, with none that worked: then it is not the shards
ATTEMPTS = "attempts"
CHECKSUMS = "checksums.json"
STOPS = "stops"  # in place of a receipt: why the stage cannot go on
ShardFunction = Callable[[dict[str, Any], dict[str, Any]], ShardOutput]  # (inputs, settings)


@dataclass(frozen=True)
class Stage:
    """`entry` is "module:function", called with (inputs, settings | resources) where a shard is made."""

    name: str
    entry: str
    settings: dict[str, Any]  # all that changes the result
    version: int = 1  # raised whenever the code changes what the settings give
    before: tuple["Stage", ...] = ()
    resources: dict[str, Any] = field(default_factory=dict)  # how it is computed: devices, batches in flight, keys
    models: dict[str, str] = field(default_factory=dict)  # role -> which one, for the receipt: settings hold it too
    libraries: tuple[str, ...] = ()  # distributions whose versions the receipt tells
    holds_model: bool = False  # an engine keeps such workers, instead of starting one for each shard
    gpus_per_worker: float = 0.0

    @cached_property
    def hash(self) -> str:
        parts = [self.name, self.entry, self.version, self.settings, [stage.hash for stage in self.before]]
        return text_sha256(parts)[:16]

    @property
    def folder(self) -> str:
        return f"{self.name}-{self.hash[:8]}"


@dataclass(frozen=True)
class Shard:
    """`parameters` say which part of its inputs a shard is made of, where it is not all of them."""

    name: str
    inputs: Inputs
    parameters: dict[str, Any] = field(default_factory=dict)

    def contents(self, checksums: RememberedChecksums | None = None) -> dict[str, str]:
        """What it is made of, by content."""
        own = {"parameters": text_sha256(self.parameters)} if self.parameters else {}
        return inputs_sha256(self.inputs, checksums) | own


class Unavailable(Exception):
    """What all shards of a stage need is not there, such as a server: the stage stops, and nothing has failed."""


class Failure(NamedTuple):
    shard: str
    message: str
    is_mistake: bool  # the user's, told in one line: trying again would not help
    stops: bool = False  # the stage, as no other shard could be made either


class Finished(NamedTuple):
    """How a task ended: with a receipt, or with a failure."""

    shard: str
    receipt: Receipt | None
    failure: Failure | None = None


class Engine(Protocol):
    """Runs tasks in any order and yields how each ended, a worker's death among the ways. Left, it ends its workers."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def run(self, stage: Stage, tasks: Sequence[dict[str, Any]]) -> Iterator[Finished]: ...


class StageResult(NamedTuple):
    receipts: dict[str, Receipt]  # of all shards that are done, by name
    set_aside: dict[str, str]  # shard -> why
    num_made: int  # in this run; the others were done before


def run_stage(stage: Stage, shards: Sequence[Shard], work: Path, engine: Engine) -> StageResult:
    """Makes every shard that is not made yet. A shard that fails again and again is set aside, and tried once more
    at the end; the others are done all the same.
    """
    folder = work / stage.folder
    folder.mkdir(parents=True, exist_ok=True)
    sweep_partials(folder)
    sweep_partials(work / ATTEMPTS / stage.folder)
    checksums = RememberedChecksums(work / CHECKSUMS)
    receipts: dict[str, Receipt] = {}
    todo: list[Shard] = []
    for shard in shards:
        receipt = _made(shard, stage, folder, checksums)
        if receipt is None:
            todo.append(shard)
        else:
            receipts[shard.name] = receipt
    checksums.save()
    failed: dict[str, Failure] = {}
    with row_progress(stage.name, len(todo)) as advance:
        runner = _Runner(stage, work, engine, receipts, failed, advance)
        runner.run(todo)
        runner.run_once([shard for shard in todo if shard.name in failed and not failed[shard.name].is_mistake])
    sweep_partials(folder)  # of workers that outlived a killed run for a moment, while this one had begun
    made = len(todo) - len(failed)
    return StageResult(receipts, {name: failure.message for name, failure in sorted(failed.items())}, made)


@contextmanager
def row_progress(name: str, num_shards: int) -> Iterator[Callable[[Receipt], None]]:
    """Shards and the time left by them, and how many rows a second went in."""
    bar, began, done, rows = ProgressBar(name, num_shards), time.monotonic(), 0, 0

    def advance(receipt: Receipt) -> None:
        nonlocal done, rows
        done, rows = done + 1, rows + receipt.num_in
        bar.set(done, f"{rows:,} rows, {rows / max(1e-6, time.monotonic() - began):,.0f} rows/s")

    try:
        yield advance
    finally:
        bar.close()


@dataclass
class _Runner:
    """One go over some shards, and over those that failed until they have failed too often."""

    stage: Stage
    work: Path
    engine: Engine
    receipts: dict[str, Receipt]
    failed: dict[str, Failure]
    advance: Callable[[Receipt], None]

    def run(self, shards: Sequence[Shard]) -> None:
        for shard in shards:
            _attempts_path(self.work, self.stage, shard.name).unlink(missing_ok=True)
        pending = list(shards)
        for _ in range(MAX_ATTEMPTS):  # whatever the files of attempts say: a full disk takes no count
            self._go(pending)
            pending = [shard for shard in pending if self._may_try_again(shard.name)]
            if not pending:
                break

    def run_once(self, shards: Sequence[Shard]) -> None:
        for shard in shards:  # Ray tries by itself for as long as this allows
            write_text(_attempts_path(self.work, self.stage, shard.name), str(MAX_ATTEMPTS - 1))
        if shards:
            self._go(shards)

    def _go(self, shards: Sequence[Shard]) -> None:
        for ended in self.engine.run(self.stage, [_task(self.stage, shard, self.work) for shard in shards]):
            self._take(ended)

    def _take(self, ended: Finished) -> None:
        if ended.receipt is not None:
            self.receipts[ended.shard] = ended.receipt
            self.failed.pop(ended.shard, None)
            self.advance(ended.receipt)
        elif ended.failure is not None:
            if ended.failure.stops:
                raise UserError(f"{self.stage.name}: {ended.failure.message}; what is done stays done, run it again")
            self.failed[ended.shard] = ended.failure
            messages = {failure.message for failure in self.failed.values()}
            if not self.receipts and len(self.failed) >= MAX_SAME_FAILURES and len(messages) == 1:
                what = f"so ended the first {len(self.failed)} shards, and none worked"
                raise UserError(f"{self.stage.name}: {messages.pop()} ({what})")

    def _may_try_again(self, shard: str) -> bool:
        failure = self.failed.get(shard)
        if failure is None or failure.is_mistake:
            return False
        return num_attempts(_attempts_path(self.work, self.stage, shard)) < MAX_ATTEMPTS


def run_task(task: dict[str, Any]) -> dict[str, Any]:
    """Makes one shard, in whatever process an engine chose; returns its receipt as plain values, or that it may not be
    tried now: no shard can be written on a full disk.
    """
    try:
        return _run_task(task)
    except OSError as error:
        if error.errno not in NO_ROOM:
            raise
        return {STOPS: disk_message(error)}


def _run_task(task: dict[str, Any]) -> dict[str, Any]:
    output, attempts = Path(task["output"]), Path(task["attempts"])
    inputs = {role: _as_paths(paths) for role, paths in task["inputs"].items()}
    # What was computed before is only read here: many processes would write it.
    contents = Shard(task["name"], inputs, task["parameters"]).contents(RememberedChecksums(Path(task["checksums"])))
    if not is_done(output, task["hash"], contents):
        write_text(attempts, str(num_attempts(attempts) + 1))
        module, _, function = task["entry"].partition(":")
        make: ShardFunction = getattr(importlib.import_module(module), function)
        settings = task["settings"] | task["resources"] | task["parameters"] | {"output": task["output"]}
        try:
            made = make(inputs, settings)
        except Unavailable as error:
            attempts.unlink(missing_ok=True)
            return {STOPS: str(error)}
        versions = versions_of(task["libraries"])
        write_shard(output, made, MadeBy(task["stage"], task["hash"], contents, task["models"], versions))
        output.with_suffix(JOURNAL).unlink(missing_ok=True)
    attempts.unlink(missing_ok=True)
    receipt = read_receipt(output)
    assert receipt is not None
    return receipt.model_dump(mode="json")


def stage_outputs(stage: Stage, shards: Iterable[Shard], work: Path) -> dict[str, Path]:
    return {shard.name: work / stage.folder / f"{shard.name}.parquet" for shard in shards}


def _task(stage: Stage, shard: Shard, work: Path) -> dict[str, Any]:
    return {
        "stage": stage.name,
        "hash": stage.hash,
        "entry": stage.entry,
        "name": shard.name,
        "settings": stage.settings,
        "resources": stage.resources,
        "models": stage.models,
        "libraries": stage.libraries,
        "parameters": shard.parameters,
        "checksums": str(work / CHECKSUMS),
        "inputs": {role: _as_text(paths) for role, paths in shard.inputs.items()},
        "output": str(work / stage.folder / f"{shard.name}.parquet"),
        "attempts": str(_attempts_path(work, stage, shard.name)),
    }


def _made(shard: Shard, stage: Stage, folder: Path, checksums: RememberedChecksums) -> Receipt | None:
    """The receipt of a shard that is made and whose inputs are still what they were."""
    path = folder / f"{shard.name}.parquet"
    receipt = read_receipt(path)
    if receipt is None or receipt.stage_hash != stage.hash:
        return None  # before the inputs are read, which may take long
    return receipt if is_done(path, stage.hash, shard.contents(checksums), checksums) else None


def _attempts_path(work: Path, stage: Stage, shard: str) -> Path:
    return work / ATTEMPTS / stage.folder / shard


def num_attempts(path: Path) -> int:
    """On disk, since the process that counts may be the one that dies."""
    try:
        return int(path.read_text())
    except (FileNotFoundError, ValueError):
        return 0


def _as_text(paths: Path | Sequence[Path]) -> str | list[str]:
    return os.fspath(paths) if isinstance(paths, Path) else [os.fspath(path) for path in paths]


def _as_paths(paths: str | Sequence[str]) -> Path | list[Path]:
    return Path(paths) if isinstance(paths, str) else [Path(path) for path in paths]
