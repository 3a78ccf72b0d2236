"""Engines of stages: local worker processes, or Ray Data with a cluster. Paths go in, receipts come out."""

import contextlib
import json
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from babelcap.errors import UserError
from babelcap.jobs.pool import Pool
from babelcap.jobs.receipts import Receipt
from babelcap.jobs.stages import MAX_ATTEMPTS, STOPS, Failure, Finished, Stage, num_attempts, run_task

ENTRY = "babelcap.jobs.stages:run_task"
WAIT_SECONDS = 0.5


class LocalEngine:
    """Worker processes of this machine; one that dies is replaced, and its shard is told to have failed.

    As a context: the workers are started with the first task and serve all stages, until it is left.
    """

    def __init__(self, num_workers: int, logs: Path) -> None:
        self.num_workers, self.logs = num_workers, logs
        self._pool: Pool | None = None

    def __enter__(self) -> "LocalEngine":
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def run(self, stage: Stage, tasks: Sequence[dict[str, Any]]) -> Iterator[Finished]:
        waiting = list(reversed(tasks))
        num_running = 0
        pool = self._pool = self._pool or Pool(self.num_workers, ENTRY, self.logs)
        while waiting or num_running:
            while waiting and pool.num_idle:
                pool.start(waiting.pop())
                num_running += 1
            for outcome in pool.wait(WAIT_SECONDS):
                num_running -= 1
                name = outcome.job["name"]
                if outcome.value is not None:
                    yield finished(name, outcome.value)
                elif outcome.died is not None:
                    yield Finished(name, None, Failure(name, f"its process {outcome.died}", False))
                else:
                    is_mistake = not outcome.trace
                    yield Finished(name, None, Failure(name, str(outcome.error), is_mistake))


class RayEngine:
    """Ray Data over the tasks: actors for stages that hold a model, tasks for the others.

    Ray starts a dying actor again for ever; so a task that was attempted too often fails by itself, before it starts.
    """

    def __init__(self, num_workers: int, address: str | None = None) -> None:
        try:
            import ray  # noqa: F401
        except ImportError:
            raise UserError("engine 'ray' needs Ray; install it with: pip install 'babelcap[cluster]'") from None
        self.num_workers, self.address = num_workers, address

    def __enter__(self) -> "RayEngine":
        return self

    def __exit__(self, *_: object) -> None:
        import ray

        ray.shutdown()

    def run(self, stage: Stage, tasks: Sequence[dict[str, Any]]) -> Iterator[Finished]:
        import ray

        if not ray.is_initialized():
            local = {"num_cpus": self.num_workers, "include_dashboard": False} if self.address is None else {}
            ray.init(address=self.address, log_to_driver=False, configure_logging=False, **local)
        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        logging.getLogger("ray.data").setLevel(logging.ERROR)  # our own progress tells what its many lines would
        items = [{"task": json.dumps(task)} for task in tasks]
        needs = {"num_gpus": stage.gpus_per_worker} if stage.gpus_per_worker else {"num_cpus": 1}
        size = min(self.num_workers, len(tasks))
        dataset = ray.data.from_items(items, override_num_blocks=len(items))
        if stage.holds_model:
            mapped = dataset.map(RayWorker, compute=ray.data.ActorPoolStrategy(size=size), **needs)
        else:
            mapped = dataset.map(run_guarded, **needs)
        seen = set()
        with contextlib.suppress(ray.exceptions.RayError):  # what it did not tell of failed
            for row in mapped.iter_rows():
                ended = _told(json.loads(row["ended"]))
                seen.add(ended.shard)
                yield ended
        for task in tasks:
            if task["name"] not in seen:
                yield Finished(task["name"], None, Failure(task["name"], "its Ray worker died", False))


class RayWorker:
    """An actor, so that what a stage keeps in its process (a model) is loaded once."""

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        return run_guarded(row)


def run_guarded(row: dict[str, Any]) -> dict[str, Any]:
    """A failure is a value here: an exception would end the whole of Ray's run."""
    task = json.loads(row["task"])
    attempts = Path(task["attempts"])
    if num_attempts(attempts) >= MAX_ATTEMPTS:
        ended = {"shard": task["name"], "message": f"its process died {MAX_ATTEMPTS} times", "is_mistake": False}
        return {"ended": json.dumps(ended)}
    try:
        ended = {"shard": task["name"], "made": run_task(task)}
    except UserError as error:
        ended = {"shard": task["name"], "message": str(error), "is_mistake": True}
    except Exception as error:
        ended = {"shard": task["name"], "message": f"{type(error).__name__}: {error}", "is_mistake": False}
    return {"ended": json.dumps(ended)}


def _told(values: dict[str, Any]) -> Finished:
    name = values["shard"]
    if "made" in values:
        return finished(name, values["made"])
    return Finished(name, None, Failure(name, values["message"], values["is_mistake"]))


def finished(shard: str, made: dict[str, Any]) -> Finished:
    """Of what `run_task` gave back."""
    if STOPS in made:
        return Finished(shard, None, Failure(shard, made[STOPS], is_mistake=False, stops=True))
    return Finished(shard, Receipt.model_validate(made))
