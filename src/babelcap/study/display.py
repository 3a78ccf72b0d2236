"""What a study shows of itself while it runs: a live table on a terminal, a line for each step elsewhere."""

import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any

from babelcap.jobs.progress import duration
from babelcap.study.estimate import Estimate
from babelcap.study.graph import Step

KINDS = {
    "world": "worlds",
    "corpus": "corpora",
    "benchmarks": "benchmarks",
    "base": "base models",
    "prepare": "captioners",
    "train": "trainings",
    "finetune": "fine-tunings",
    "loss": "losses",
    "captions": "captionings",
}


class Display:
    """Without a terminal: one line on standard error for each step that ends."""

    def __init__(self, steps: Sequence[Step], done: set[str], estimates: Mapping[str, Estimate], num_workers: int):
        self.steps, self.estimates, self.num_workers = list(steps), estimates, num_workers
        self.done = set(done)
        self.running: dict[str, tuple[Step, float]] = {}
        self.started_at = time.monotonic()

    def __enter__(self) -> "Display":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass

    def started(self, step: Step) -> None:
        self.running[step.hash] = (step, time.monotonic())

    def finished(self, step: Step, seconds: float) -> None:
        self.running.pop(step.hash, None)
        self.done.add(step.hash)
        self.say(f"[{len(self.done)}/{len(self.steps)}] {step.name}: {duration(seconds)}")

    def failed(self, step: Step, message: str) -> None:
        self.running.pop(step.hash, None)
        self.say(f"{step.name}: {message}")

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def refresh(self) -> None:
        pass

    def remaining_seconds(self) -> float:
        """Of all cores: what is left, divided evenly."""
        now = time.monotonic()
        left = sum(self.estimates[step.hash].seconds for step in self.steps if step.hash not in self.done)
        spent = sum(min(now - since, self.estimates[step.hash].seconds) for step, since in self.running.values())
        return max(0.0, left - spent) / self.num_workers


class LiveDisplay(Display):
    """On a terminal: a table of the kinds of step and of what runs now."""

    def __enter__(self) -> "LiveDisplay":
        from rich.console import Console
        from rich.live import Live

        self.live = Live(self._table(), console=Console(stderr=True), refresh_per_second=2, transient=True)
        self.live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.live.__exit__(kind, error, trace)

    def say(self, line: str) -> None:
        self.live.console.print(line, highlight=False, markup=False)

    def finished(self, step: Step, seconds: float) -> None:
        self.running.pop(step.hash, None)
        self.done.add(step.hash)
        self.refresh()

    def refresh(self) -> None:
        self.live.update(self._table())

    def _table(self) -> Any:
        from rich.table import Table

        now = time.monotonic()
        title = f"{duration(now - self.started_at)} so far, about {duration(self.remaining_seconds())} to go"
        table = Table("", "done", "of", "running now", title=title, title_justify="left")
        totals = Counter(step.kind for step in self.steps)
        done = Counter(step.kind for step in self.steps if step.hash in self.done)
        for kind, label in KINDS.items():
            if totals[kind]:
                active = [
                    f"{step.slug} ({duration(now - since)})"
                    for step, since in self.running.values()
                    if step.kind == kind
                ]
                table.add_row(label, str(done[kind]), str(totals[kind]), "\n".join(active))
        return table


def make_display(steps: Sequence[Step], done: set[str], estimates: Mapping[str, Estimate], num_workers: int) -> Display:
    kind = LiveDisplay if sys.stderr.isatty() else Display
    return kind(steps, done, estimates, num_workers)
