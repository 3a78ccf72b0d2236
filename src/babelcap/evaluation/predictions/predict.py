"""Predicting: each task becomes a folder of answers; killed at any moment, the same command ends with the same lines.

Batches are a pure function of the items and the system's batch size. Several workers or Ray take shards of batches.
"""

import gc
import importlib
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from babelcap.errors import UserError
from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.predictions.folder import (
    ANSWERS,
    CAPTION,
    DESCRIPTION,
    LOSSES,
    OWN,
    SECONDS,
    SHUFFLED,
    SUM,
    Description,
    Prediction,
    answer_lines,
    begin,
    dataset_sha256,
    keep_whole_batches,
    line_sum,
)
from babelcap.evaluation.predictions.tasks import Task, asked_items, check_pictures
from babelcap.jobs.progress import ProgressBar
from babelcap.storage import RememberedChecksums, locked, sweep_partials

if TYPE_CHECKING:
    from babelcap.evaluation.systems import System

CHECKSUMS = ".checksums.json"
LOCK = ".lock"
OPENER = "babelcap.evaluation.systems:open_system"


@dataclass(frozen=True)
class SystemSource:
    """A system as it travels to other processes: how it is opened, not a model in memory.

    `options` are the fields of SystemOptions; several devices, divided by commas, are taken in turn by the workers.
    """

    name: str
    options: Mapping[str, Any]
    opener: str = OPENER

    def open(self) -> "System":
        from babelcap.evaluation.systems import SystemOptions

        module, _, function = self.opener.partition(":")
        options = dict(self.options)
        if options.get("device"):
            options["device"] = _own_device(str(options["device"]).split(","))
        system: System = getattr(importlib.import_module(module), function)(self.name, SystemOptions(**options))
        return system


def _own_device(devices: Sequence[str]) -> str:
    """Worker i of a local pool takes device i; Ray shows each of its workers its own as the first."""
    number = multiprocessing.current_process().name.rpartition("-")[2]
    return devices[int(number) % len(devices) if number.isdigit() else 0]


@dataclass(frozen=True)
class PredictOptions:
    output: Path
    shuffled: bool = False
    num_workers: int = 1
    engine: str = "local"
    address: str | None = None  # of a Ray cluster

    @property
    def is_parallel(self) -> bool:
        return self.num_workers > 1 or self.engine != "local"


def predict(
    tasks: Sequence[Task],
    source: SystemSource,
    options: PredictOptions,
    on_failure: Callable[[str], None] | None = None,
) -> list[Prediction]:
    """The predictions of all tasks, complete.

    With `on_failure`, what a system cannot do is told there, in one line, and the other tasks are done all the same.
    """
    system: System | None = source.open()
    assert system is not None
    identity, batch_size = dict(system.identity), system.batch_size
    if options.is_parallel:
        system = None  # the workers open their own: this one gives its memory back
        gc.collect()
    found = []
    for task in tasks:
        try:
            prediction = prepare(task, identity, batch_size, source, options)
            if system is None:
                from babelcap.evaluation.predictions.shards import predict_on_engine

                predict_on_engine(prediction, source, options)
            else:
                predict_here(prediction, system)
            found.append(prediction)
        except UserError as error:
            if on_failure is None:
                raise
            on_failure(f"{task.benchmark}, {task.part}: {error}")
    return found


def prepare(
    task: Task, identity: Mapping[str, Any], batch_size: int, source: SystemSource, options: PredictOptions
) -> Prediction:
    """The folder, with all that decides its answers written down."""
    checksums = RememberedChecksums(options.output / CHECKSUMS)
    asked = asked_items(task.items, checksums, shuffled=options.shuffled)
    checksums.save()
    given = {"system": source.name, "options": dict(source.options), **task.given}
    description = Description(
        benchmark=task.benchmark,
        part=task.part,
        system=identity,
        batch_size=batch_size,
        pictures=SHUFFLED if options.shuffled else OWN,
        dataset_sha256=dataset_sha256(asked),
        num_items=len(asked),
        num_references=sum(len(item.references) for item in task.items),
        given=given,
    )
    if not (options.output / description.folder / DESCRIPTION).is_file():
        check_pictures(task.items, task.benchmark)  # once: afterwards its hash says that nothing has changed
    return Prediction(begin(options.output, description, asked))


def plan_batches(prediction: Prediction) -> list[list[Item]]:
    """Items of one style and language and of similar length together, as they are shown to the system."""
    items = [replace(asked.item, image=asked.shown) for asked in prediction.asked]
    order = sorted(range(len(items)), key=lambda place: (*_likeness(items[place]), place))
    size = prediction.description.batch_size
    return [[items[place] for place in order[start : start + size]] for start in range(0, len(order), size)]


def _likeness(item: Item) -> tuple[str, str, int]:
    return item.style, item.language, len(item.source or "")


def predict_here(prediction: Prediction, system: "System") -> None:
    """In this process, a batch at a time."""
    folder, part = prediction.folder, prediction.description.part
    with writing(prediction):
        batches = plan_batches(prediction)
        num_done = keep_whole_batches(folder / ANSWERS, batches)
        bar = ProgressBar(folder.name, len(batches), done=num_done)
        try:
            with (folder / ANSWERS).open("a", encoding="utf-8") as file:
                for batch in batches[num_done:]:
                    file.write(answer_lines(answer(system, part, batch)))
                    file.flush()
                    bar.advance(1)
        finally:
            bar.close()


@contextmanager
def writing(prediction: Prediction) -> Iterator[None]:
    """One process at a time; what a killed one left half written is swept."""
    with locked(prediction.folder / LOCK, refuse=f"{prediction.folder} is being written"):
        sweep_partials(prediction.folder)
        yield


def answer(system: "System", part: str, batch: Sequence[Item]) -> list[dict[str, Any]]:
    """The lines of a batch; the seconds are each item's share of the batch's."""
    start = time.perf_counter()
    texts: list[dict[str, Any]]
    if part == LOSSES:
        right = system.token_losses(batch, [item.references[0] for item in batch])
        wrong = system.token_losses(batch, [item.contrast or "" for item in batch])
        texts = [{"right": list(a), "wrong": list(b)} for a, b in zip(right, wrong, strict=True)]
    else:
        answers = (system.caption if part == CAPTION else system.translate)(batch)
        texts = [{"raw": _whole(found.raw), "text": _whole(found.text)} for found in answers]
    seconds = round((time.perf_counter() - start) / len(batch), 6)
    rows = [{"id": item.id, "language": item.language, **values} for item, values in zip(batch, texts, strict=True)]
    return [row | {SUM: line_sum(row), SECONDS: seconds} for row in rows]


def _whole(text: str) -> str:
    """Half of a surrogate pair, which a broken token may leave, is no character and cannot be written."""
    return text.encode("utf-8", "replace").decode("utf-8")
