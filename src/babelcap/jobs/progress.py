"""The progress bar, on standard error where that is a terminal and nothing elsewhere; and times in words."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import rich.progress


class ProgressBar:
    """One task of `total` things. `shown` is False where there is no terminal, and all calls then do nothing."""

    def __init__(self, description: str, total: int | None, *, done: int = 0, keep: bool = False) -> None:
        """`keep` leaves the finished bar on the terminal."""
        self._bar: rich.progress.Progress | None = None
        if not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        remarks = TextColumn("{task.fields[remark]}", markup=False)
        self._bar = Progress(*columns, remarks, console=Console(stderr=True), transient=not keep)
        self._task = self._bar.add_task(description, total=total, completed=done, remark="")
        self._bar.start()

    @property
    def shown(self) -> bool:
        return self._bar is not None

    def advance(self, number: int) -> None:
        if self._bar is not None:
            self._bar.update(self._task, advance=number)

    def set(self, done: int, remark: str | None = None) -> None:
        """So many are done; the words behind the bar stay as they are where none are given."""
        if self._bar is not None:
            self._bar.update(self._task, completed=done)
            if remark is not None:
                self._bar.update(self._task, remark=remark)

    def say(self, line: str) -> None:
        """A line above the bar."""
        if self._bar is not None:
            self._bar.console.print(line, highlight=False, markup=False)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()


@contextmanager
def progress(description: str, total: int | None) -> Iterator[Callable[[int], None]]:
    """Yields a function to call with the number of things that were done since the last call."""
    bar = ProgressBar(description, total)
    try:
        yield bar.advance
    finally:
        bar.close()


def duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s" if minutes else f"{rest} s"
