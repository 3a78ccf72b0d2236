"""What a run says while it runs: a live line on a terminal, plain lines elsewhere; both to standard error."""

import sys
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Reporter:
    """One for a leg. `update` is called every step and is cheap; on a terminal it also shows the loss of each pair."""

    def __init__(self, name: str, first: int, last: int, every_steps: int, quiet: bool = False) -> None:
        self.every_steps = every_steps
        self.quiet = quiet
        self.last = last
        self._started, self._first = time.monotonic(), first
        self._name = name
        self._bar: Progress | None = None
        if not quiet and sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._bar = Progress(*columns, TextColumn("{task.fields[values]}"), console=Console(stderr=True))
            self._bar.start()
            self._task = self._bar.add_task(name, total=last, completed=first, values="")

    def update(self, step: int, metrics: dict[str, Any], rates: dict[str, float]) -> None:
        """`step` steps are done."""
        if self.quiet:
            return
        due = step % self.every_steps == 0 or step == self.last
        if self._bar is not None:
            self._bar.update(self._task, completed=step, values=self._summary(metrics, rates) if due else None)
            return
        if due:
            elapsed = time.monotonic() - self._started
            left = elapsed / max(1, step - self._first) * (self.last - step)
            self.say(f"{self._name} step {step}/{self.last} {self._summary(metrics, rates)} left {left / 60:.1f} min")

    def say(self, line: str) -> None:
        if self._bar is not None:
            self._bar.console.print(line, highlight=False)
        elif not self.quiet:
            say(line)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.stop()

    @staticmethod
    def _summary(metrics: dict[str, Any], rates: dict[str, float]) -> str:
        pairs = " ".join(f"{pair} {value:.2f}" for pair, value in metrics["loss_by_pair"].items())
        speed = f"{rates['samples_per_second']:.0f} samples/s {rates['target_tokens_per_second']:.0f} tokens/s"
        if "peak_share" in rates:
            speed += f" {rates['peak_share']:.0%} of peak"
        return f"loss {metrics['loss']:.3f} ({pairs}) rate {metrics['learning_rate']:.1e} {speed}"
