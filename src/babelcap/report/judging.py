"""Whether the captions of all runs were judged by one rule: what was judged by two is not compared."""

from collections.abc import Iterable
from pathlib import Path

from babelcap.errors import UserError
from babelcap.measures import CHANCE, THINGS_ONE_TO_ONE, caption_measure
from babelcap.records import RunRecord

COLOURS = caption_measure("colours", "")  # of every variant; photographs have none


def check_judging(records: Iterable[RunRecord], path: Path) -> None:
    """Refuses records of which some match things one to one and some, from before, do not."""
    runs: dict[bool, set[str]] = {False: set(), True: set()}
    for record in records:
        for result in record.results:
            if result.measure.startswith(COLOURS) and not result.measure.endswith(CHANCE):
                runs[result.signature.items() >= THINGS_ONE_TO_ONE.items()].add(record.run)
    if runs[False] and runs[True]:
        raise UserError(
            f"{path}: captions of {len(runs[False])} runs, as {min(runs[False])}, were judged by an earlier rule than "
            f"those of {len(runs[True])} others; caption them anew, or report them apart"
        )
