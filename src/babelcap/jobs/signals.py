"""Signals that ask a run to save and leave: SIGTERM and SIGUSR1 of a scheduler, whose exit code then says "start me
again", and Ctrl-C of a user, who may press it again to leave at once.
"""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

REQUEUE_EXIT_CODE = 75  # EX_TEMPFAIL of sysexits.h: try again later
INTERRUPT_EXIT_CODE = 130  # as shells have it: 128 and the number of SIGINT
STOP_SIGNALS = (signal.SIGTERM, signal.SIGUSR1)


class StopRequest:
    """Remembers the first stop signal; the loop looks at it between steps."""

    def __init__(self) -> None:
        self.name: str | None = None
        self._process = os.getpid()
        self._waits = False

    def __bool__(self) -> bool:
        return self.name is not None

    def receive(self, number: int, frame: FrameType | None = None) -> None:
        self.name = self.name or signal.Signals(number).name

    def interrupt(self, number: int, frame: FrameType | None = None) -> None:
        """Ctrl-C: waits for the step and its checkpoint where steps are taken, and nowhere else; nor when repeated."""
        if os.getpid() != self._process:
            return  # a forked worker: the terminal tells it too, but its parent is the one to decide
        if not self._waits or self.name is not None:
            raise KeyboardInterrupt
        self.receive(number)
        os.write(2, b"\nCtrl-C: saving after this step; press it again to leave at once\n")

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Within the block a first Ctrl-C is a request; outside it ends what is done at once, as it always does."""
        self._waits = True
        try:
            yield
        finally:
            self._waits = False


@contextmanager
def stop_requests() -> Iterator[StopRequest]:
    """Within the block stop signals only set the request; afterwards they do what they did before.

    One that waits because it was blocked (`slurm.run_stoppable`) is let in. A process that was asked to stop is not
    ended by being asked again on its way out: Slurm asks several times. Who ignores Ctrl-C goes on ignoring it.
    """
    request = StopRequest()
    before = {number: signal.signal(number, request.receive) for number in STOP_SIGNALS}
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        before[signal.SIGINT] = signal.signal(signal.SIGINT, request.interrupt)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if request and handler == signal.SIG_DFL else handler)
