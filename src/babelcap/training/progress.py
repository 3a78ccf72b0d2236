"""What a run says while it runs: a live line on a terminal, plain lines elsewhere; both to standard error."""

import sys
import time
from typing import Any

from babelcap.jobs.progress import ProgressBar


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Reporter:
    """One for a leg. `update` is called every step and is cheap; on a terminal it also shows the loss of each pair."""

    def __init__(self, name: str, first: int, last: int, every_steps: int, quiet: bool = False) -> None:
        self.every_steps = every_steps
        self.last = last
        self._started, self._first = time.monotonic(), first
        self._name = name
        self._bar = None if quiet else ProgressBar(name, last, done=first, keep=True)

    def update(self, step: int, metrics: dict[str, Any], rates: dict[str, float]) -> None:
        """`step` steps are done."""
        if self._bar is None:
            return
        due = step % self.every_steps == 0 or step == self.last
        if self._bar.shown:
            self._bar.set(step, self._summary(metrics, rates) if due else None)
        elif due:
            elapsed = time.monotonic() - self._started
            left = elapsed / max(1, step - self._first) * (self.last - step)
            self.say(f"{self._name} step {step}/{self.last} {self._summary(metrics, rates)} left {left / 60:.1f} min")

    def say(self, line: str) -> None:
        if self._bar is not None and self._bar.shown:
            self._bar.say(line)
        elif self._bar is not None:
            say(line)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()

    @staticmethod
    def _summary(metrics: dict[str, Any], rates: dict[str, float]) -> str:
        pairs = " ".join(f"{pair} {value:.2f}" for pair, value in metrics["loss_by_pair"].items())
        speed = f"{rates['samples_per_second']:.0f} samples/s {rates['target_tokens_per_second']:.0f} tokens/s"
        if "peak_share" in rates:
            speed += f" {rates['peak_share']:.0%} of peak"
        return f"loss {metrics['loss']:.3f} ({pairs}) rate {metrics['learning_rate']:.1e} {speed}"
