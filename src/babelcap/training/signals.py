"""SIGTERM and SIGUSR1 ask a run to save and leave; its exit code then tells the scheduler to start it again."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

REQUEUE_EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: try again later
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class StopRequest:
    """Remembers the first stop signal; the loop looks at it between steps."""

    def __init__(self) -> None:
        self.name: str | None = None

    def __bool__(self) -> bool:
        return self.name is not None

    def receive(self, number: int, frame: FrameType | None = None) -> None:
        self.name = self.name or signal.Signals(number).name


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Within the block stop signals only set the request; afterwards they do what they did before.

    Signals that were blocked before, as in the process that a Slurm task starts, are let in within the block only.
    """
    request = StopRequest()
    before = {number: signal.signal(number, request.receive) for number in STOP_SIGNALS}
    mask = signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    try:
        yield request
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        for number, handler in before.items():
            signal.signal(number, handler)
