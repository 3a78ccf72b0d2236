"""One function over many shards, in as many processes as asked for, with a progress bar; results in the given order.

A worker that dies is replaced and its shard done again; a shard that takes three workers with it is named.
"""

import pickle
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from babelcap.errors import UserError
from babelcap.jobs.pool import Pool
from babelcap.jobs.progress import progress

Item = TypeVar("Item")
Result = TypeVar("Result")
MAX_DEATHS = 3  # of workers over one shard
AHEAD = 4  # shards for each worker that may be done before the one whose turn it is: what memory is bounded by
WAIT_SECONDS = 1.0


class _Job(NamedTuple):
    place: int
    function: Callable[[Any], Any]  # of a module, as it travels by name
    item: Any


class _Failure(NamedTuple):
    error: Exception


def map_shards(
    function: Callable[[Item], Result], items: Sequence[Item], num_workers: int, description: str
) -> list[Result]:
    """The first failure stops the rest, and is raised here as it was there."""
    return list(stream_shards(function, items, num_workers, description))


def stream_shards(
    function: Callable[[Item], Result],
    items: Sequence[Item],
    num_workers: int,
    description: str,
    sizes: Sequence[int] | None = None,
) -> Iterator[Result]:
    """Each result as soon as all before it were given. `sizes` are the items' steps of the progress bar, else 1."""
    sizes = [1] * len(items) if sizes is None else sizes
    with progress(description, sum(sizes)) as advance:
        parallel = num_workers > 1 and len(items) > 1
        results = _in_processes(function, items, num_workers) if parallel else map(function, items)
        for size, result in zip(sizes, results, strict=True):
            yield result
            advance(size)


def _in_processes(function: Callable[[Item], Result], items: Sequence[Item], num_workers: int) -> Iterator[Result]:
    done: dict[int, Result] = {}
    deaths = [0] * len(items)
    waiting, turn = list(range(len(items) - 1, -1, -1)), 0  # the next one last
    with (
        tempfile.TemporaryDirectory(prefix="babelcap-workers-") as logs,
        Pool(min(num_workers, len(items)), "babelcap.jobs.shards:run_job", Path(logs)) as pool,
    ):
        while turn < len(items):
            while waiting and pool.num_idle and waiting[-1] < turn + AHEAD * num_workers:
                place = waiting.pop()
                pool.start(_Job(place, function, items[place]))
            for outcome in pool.wait(WAIT_SECONDS):
                place = outcome.job.place
                if outcome.died is not None:
                    deaths[place] += 1
                    if deaths[place] == MAX_DEATHS:
                        raise UserError(
                            f"shard {place + 1} of {len(items)} ({_name(items[place])}) took {MAX_DEATHS} worker "
                            f"processes with it: the last one {outcome.died}; try fewer workers"
                        )
                    waiting.append(place)
                elif isinstance(outcome.value, _Failure):
                    raise outcome.value.error
                elif outcome.error is not None:
                    raise RuntimeError(f"{outcome.error}\n{outcome.trace}")
                else:
                    done[place] = outcome.value
            while turn in done:
                yield done.pop(turn)
                turn += 1


def run_job(job: _Job) -> Any:
    """In a worker. A failure travels as it is, so that the command line words it as one that happened here."""
    try:
        return job.function(job.item)
    except Exception as error:
        trace = traceback.format_exc()
        try:
            error = pickle.loads(pickle.dumps(error))
        except Exception:
            error = RuntimeError(f"{type(error).__name__}: {error}")
        if not isinstance(error, UserError | OSError):
            error.add_note(f"in a worker process:\n{trace}")
        return _Failure(error)


def _name(item: Any) -> str:
    """The first path that an item holds says best which one it is."""
    parts = list(item) if isinstance(item, tuple) else [item]
    names = [str(part) for part in parts if isinstance(part, str | Path)]
    return names[0] if names else f"{type(item).__name__}"
