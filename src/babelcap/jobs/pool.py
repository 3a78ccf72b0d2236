"""Worker processes of one thread each. One that dies is replaced and its job reported; when the parent dies they leave.

This module imports nothing heavy: in a worker the number of threads is set before torch is there to read it.
"""

import _thread
import importlib
import multiprocessing
import os
import signal
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from babelcap.errors import UserError, disk_message

# One thread each; and what a step of training frees is kept for the next one: returning it to the system and getting
# it back, page by page, is most of a small model's system time (glibc; others ignore these).
ENVIRONMENT = {
    "OMP_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "MALLOC_MMAP_THRESHOLD_": str(2**30),
    "MALLOC_TRIM_THRESHOLD_": str(2**32),
    "MALLOC_TOP_PAD_": str(2**26),
}
PARENT_CHECK_SECONDS = 0.2
MAX_IDLE_DEATHS = 5
STOP_SECONDS = 20.0  # that a worker has to save its training in, when it is asked to leave


@dataclass(frozen=True)
class Outcome:
    """How a job ended: with a value, with an error (of the user's or not), or with the death of its process."""

    job: Any
    value: Any = None
    error: str | None = None
    trace: str = ""
    died: str | None = None  # how the process ended


class Worker:
    def __init__(self, number: int, entry: str, log: Path) -> None:
        context = multiprocessing.get_context("spawn")  # a fork would inherit the parent's threads' locks
        self.number = number
        self.connection, theirs = context.Pipe()
        self.process = context.Process(
            target=worker_main, args=(theirs, entry, os.getpid(), str(log)), name=f"babelcap-worker-{number}"
        )
        self.process.start()
        theirs.close()
        self.job: Any = None

    def start(self, job: Any) -> None:
        self.job = job
        with suppress(BrokenPipeError, ConnectionResetError):  # if it died just now, `outcome` will see it
            self.connection.send(job)

    def outcome(self) -> Outcome | None:
        """How the job ended, if it did."""
        try:
            if self.connection.poll():
                value, error, trace = self.connection.recv()
                job, self.job = self.job, None
                return Outcome(job, value, error, trace)
        except (EOFError, ConnectionResetError):
            pass
        else:
            if self.process.is_alive():
                return None
        self.process.join()
        job, self.job = self.job, None
        return Outcome(job, died=describe_exit(self.process.exitcode))

    def stop(self) -> None:
        """Asks it to leave; a training saves first. With its connection closed it will not wait for another job."""
        self.connection.close()
        if self.job is not None and self.process.is_alive():
            self.process.terminate()

    def end(self, seconds: float) -> None:
        self.process.join(seconds)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class Pool:
    """`entry` is "module:function", called in a worker with each job. As a context: leaving it ends the workers."""

    def __init__(self, num_workers: int, entry: str, logs: Path) -> None:
        self.entry, self.logs, self.num_idle_deaths = entry, logs, 0
        logs.mkdir(parents=True, exist_ok=True)
        self._environment = {name: os.environ.get(name) for name in ENVIRONMENT}
        os.environ.update(ENVIRONMENT)  # inherited by what is spawned
        self.workers = [self._new(number) for number in range(num_workers)]

    def _new(self, number: int) -> Worker:
        return Worker(number, self.entry, self.logs / f"worker-{number}.log")

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def num_idle(self) -> int:
        return sum(worker.job is None for worker in self.workers)

    def start(self, job: Any) -> None:
        next(worker for worker in self.workers if worker.job is None).start(job)

    def wait(self, seconds: float) -> list[Outcome]:
        """The outcomes since the last call; waits for one if there is none yet, but not longer than `seconds`."""
        handles = [worker.connection for worker in self.workers] + [worker.process.sentinel for worker in self.workers]
        wait(handles, seconds)
        outcomes = []
        for place, worker in enumerate(self.workers):
            outcome = worker.outcome()
            if outcome is None:
                continue
            if outcome.died is not None:
                worker.connection.close()
                self.workers[place] = self._new(worker.number)
            if outcome.job is not None:
                outcomes.append(outcome)
            else:
                self.num_idle_deaths += 1
        if self.num_idle_deaths > MAX_IDLE_DEATHS:
            raise UserError(f"worker processes die before they get a job; see {self.logs}")
        return outcomes

    def close(self) -> None:
        for worker in self.workers:
            worker.stop()
        until = time.monotonic() + STOP_SECONDS
        for worker in self.workers:
            worker.end(max(0.1, until - time.monotonic()))
        for name, value in self._environment.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def describe_exit(code: int | None) -> str:
    if code is None or code >= 0:
        return f"left with exit code {code}"
    name = signal.Signals(-code).name
    reason = "; out of memory?" if name == "SIGKILL" else ""
    return f"was ended by {name}{reason}"


def worker_main(connection: Connection, entry: str, parent: int, log: str) -> None:
    """Runs jobs until the connection closes. Its output goes to the log, as the terminal is the parent's."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C too, and asks its workers to leave
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    # Not by `threading`, whose `start` waits for ever for a thread that lacks the memory to begin.
    _thread.start_new_thread(_leave_with_parent, (parent,))
    module, function = entry.split(":")
    run = getattr(importlib.import_module(module), function)
    while True:
        try:
            job = connection.recv()
        except (EOFError, ConnectionResetError):
            return
        try:
            answer: tuple[Any, str | None, str] = (run(job), None, "")
        except UserError as error:
            answer = (None, str(error), "")
        except Exception as error:
            trace = traceback.format_exc()
            with suppress(OSError):  # where the disk of the logs is full too, the parent is told all the same
                print(trace, file=sys.stderr, flush=True)
            told = disk_message(error) if isinstance(error, OSError) else None
            answer = (None, told or f"{type(error).__name__}: {error}", trace)
        try:
            connection.send(answer)
        except (BrokenPipeError, ConnectionResetError):
            return


def _leave_with_parent(parent: int) -> None:
    """A worker without its parent would go on writing where the next parent's workers write."""
    while os.getppid() == parent:
        time.sleep(PARENT_CHECK_SECONDS)
    os._exit(1)
