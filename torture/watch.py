"""A watch over a reader: each input is read or refused in one line, within bounds of processor time and memory."""

import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from babelcap.errors import BadSample, UserError

MAX_SECONDS = 5.0  # of processor time, for one input
MAX_MIB = 1024  # of memory, for one input, above what the process had before
MAX_LINE = 2000  # characters of what the user is told


class Watch:
    """Runs a reader on one bad input after the other and measures each."""

    def __init__(self, reader: str) -> None:
        self.reader = reader
        self.num_read = self.num_refused = 0
        self.slowest_seconds = self.peak_mib = 0.0

    def __call__(self, read: Callable[[], object], case: object = "") -> str:
        """What the user is told, nothing where the input was read; any other exception is the test's failure."""
        said = ""
        before_mib, before_seconds = _start_of_peak(), _processor_seconds()
        with _stopped_after(MAX_SECONDS):
            try:
                read()
                self.num_read += 1
            except (UserError, BadSample) as error:
                self.num_refused += 1
                said = str(error) or "bad sample"
        seconds, mib = _processor_seconds() - before_seconds, _memory_mib("VmHWM") - before_mib
        assert seconds < MAX_SECONDS, f"{self.reader} {case}: {seconds:.1f} s of processor time"
        assert mib < MAX_MIB, f"{self.reader} {case}: {mib:.0f} MiB of memory"
        assert "\n" not in said, f"{self.reader} {case}: more than one line: {said}"
        assert len(said) < MAX_LINE, f"{self.reader} {case}: {said[:300]}"
        self.slowest_seconds, self.peak_mib = max(self.slowest_seconds, seconds), max(self.peak_mib, mib)
        return said


def _processor_seconds() -> float:
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def _memory_mib(name: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) / 1024
    return 0.0


def _start_of_peak() -> float:
    """The memory in use; from here on `VmHWM` is the most that was in use since now."""
    Path("/proc/self/clear_refs").write_text("5")
    return _memory_mib("VmRSS")


@contextmanager
def _stopped_after(seconds: float) -> Iterator[None]:
    def stop(*_: object) -> None:
        raise AssertionError(f"more than {seconds:g} s of processor time")

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)
