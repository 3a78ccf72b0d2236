"""One function over many shards, in as many processes as asked for, with a progress bar; results in the given order."""

import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

from babelcap.jobs.progress import progress

Item = TypeVar("Item")
Result = TypeVar("Result")


def map_shards(
    function: Callable[[Item], Result], items: Sequence[Item], num_workers: int, description: str
) -> list[Result]:
    """The first failure stops the rest. New processes are spawned, since Arrow's threads do not survive a fork."""
    with progress(description, len(items)) as advance:
        if num_workers <= 1 or len(items) <= 1:
            results = []
            for item in items:
                results.append(function(item))
                advance(1)
            return results
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(min(num_workers, len(items)), mp_context=context) as executor:
            futures = {executor.submit(function, item): place for place, item in enumerate(items)}
            done: dict[int, Result] = {}
            try:
                for future in as_completed(futures):
                    done[futures[future]] = future.result()
                    advance(1)
            except BaseException:
                executor.shutdown(wait=False, cancel_futures=True)
                raise
            return [done[place] for place in range(len(items))]
