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

    One that waits because it was blocked (`slurm.run_stoppable`) is let in. A process that was asked to stop is not
    ended by being asked again on its way out: Slurm asks several times.
    """
    request = StopRequest()
    before = {number: signal.signal(number, request.receive) for number in STOP_SIGNALS}
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if request and handler == signal.SIG_DFL else handler)
