"""Random kill -9 of commands, each started again with the same words: the outcome is that of an undisturbed run.

A moment is drawn soon after the start, and later each time that the run did not come to its end: what is done stays
done, so that the kills walk through all of it, and a step that is longer than most has its turn. A kill hits all
processes of the command, the first alone (its workers have to leave by themselves), or one worker (which has to be
replaced).
"""

import contextlib
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from torture.killing import KILLED, Forge, wait_alive, workers_of

Say = Callable[[str], None]
MAX_STARTS_PER_KILL = 4
SHARE, LARGEST_SHARE, GROWTH = 0.25, 0.9, 1.25  # of an undisturbed run's time, within which a kill comes


class Lost(Exception):
    """Something that was lost, or not as it should be."""


@dataclass(frozen=True)
class Subject:
    """A command, with what it works on and what it leaves. Runs in one folder, so that all paths in files agree."""

    name: str
    arguments: list[str]
    reset: Callable[[], None]  # makes the folder as it was before the first run
    outcome: Callable[[], Mapping[str, bytes]]  # all that is compared, but for what a clock said
    folder: Path
    has_workers: bool = False


class Kills:
    """Kills of one subject, counted by what they hit."""

    def __init__(self, subject: Subject, forge: Forge, draw: random.Random, say: Say) -> None:
        self.subject, self.forge, self.draw, self.say = subject, forge, draw, say
        self.hits: Counter[str] = Counter()
        self.num_compared = 0
        self.seconds = 0.0
        self.whole: Mapping[str, bytes] = {}
        self.share = SHARE

    def undisturbed(self) -> None:
        self.subject.reset()
        start = time.monotonic()
        code = self.forge.run(self.subject.arguments, self.subject.folder)
        self.seconds = time.monotonic() - start
        if code != 0:
            raise Lost(f"{self.subject.name}: the undisturbed run ended with {code}: {self.forge.said()[-1500:]}")
        self.whole = self.subject.outcome()
        self.say(f"{self.subject.name}: undisturbed in {self.seconds:.1f} s, {len(self.whole)} files to compare")

    def once(self) -> str | None:
        """Starts the command and kills it; what was hit, or None where it ended before."""
        pid = self.forge.start(self.subject.arguments, self.subject.folder)
        alive = wait_alive(pid, self.draw.uniform(0, self.share * self.seconds))
        kind = self.draw.choices(("all", "the first", "a worker"), (2, 1, 2 if self.subject.has_workers else 0))[0]
        workers = workers_of(pid) if kind == "a worker" else []
        if kind == "a worker" and not workers:
            kind = "all"
        with contextlib.suppress(ProcessLookupError):
            if not alive:
                pass
            elif kind == "a worker":
                os.kill(self.draw.choice(workers), signal.SIGKILL)
            elif kind == "all":
                os.killpg(pid, signal.SIGKILL)
            else:
                os.kill(pid, signal.SIGKILL)
        status = self.forge.end()
        if kind != "a worker" and status == KILLED:
            return kind
        if status != 0:
            code = os.waitstatus_to_exitcode(status)
            raise Lost(f"{self.subject.name}: ended with {code} ({kind} killed): {self.forge.said()[-1500:]}")
        return kind if kind == "a worker" and alive else None

    def compare(self) -> None:
        found = self.subject.outcome()
        others = sorted(name for name in {*found, *self.whole} if found.get(name) != self.whole.get(name))
        if others:
            for kind, files in (("whole", self.whole), ("killed", found)):  # for whoever looks into it
                (self.subject.folder / f"lost-{kind}").write_bytes(files.get(others[0], b"missing"))
            raise Lost(f"{self.subject.name}: not as undisturbed: {', '.join(others[:5])}")
        self.num_compared += 1

    def run(self, number: int) -> None:
        self.undisturbed()
        self.subject.reset()
        for _ in range(MAX_STARTS_PER_KILL * number):
            hit = self.once()
            if hit is not None:
                self.hits[hit] += 1
                if self.hits.total() % 10 == 0:
                    self.say(f"{self.subject.name}: {self.hits.total()} of {number} kills")
            if hit is None or hit == "a worker":  # it came to its end
                self.compare()
                self.subject.reset()
                self.share = SHARE
            else:
                self.share = min(LARGEST_SHARE, GROWTH * self.share)
            if self.hits.total() >= number:
                break
        code = self.forge.run(self.subject.arguments, self.subject.folder)
        if code != 0:
            raise Lost(f"{self.subject.name}: started again it ended with {code}: {self.forge.said()[-1500:]}")
        self.compare()
