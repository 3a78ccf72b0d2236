"""One model, many askers: requests that arrive together run together, in one thread, through the generation core.

While the model works, what arrives waits in a queue of bounded length; when it is free it takes all that waits, up to a
bound, and the core groups it into batches. Nobody is kept waiting to fill a batch.
"""

import threading
import time
from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import dataclass, field

from babelcap.app.limits import Limits, Refused, TooSlow
from babelcap.errors import UserError
from babelcap.models import CaptionPipeline, GenerationRequest, GenerationResult


@dataclass(eq=False)
class Job:
    """Texts that one asker wants; the answer comes when all are there."""

    requests: list[GenerationRequest]
    deadline: float
    answer: "Future[list[GenerationResult]]" = field(default_factory=Future)
    results: dict[int, GenerationResult] = field(default_factory=dict)  # by the request's identity

    def add(self, result: GenerationResult) -> None:
        self.results[id(result.request)] = result
        if len(self.results) == len(self.requests):
            self.answer.set_result([self.results[id(request)] for request in self.requests])


class Engine:
    def __init__(self, pipeline: CaptionPipeline, limits: Limits | None = None) -> None:
        self.pipeline, self.limits = pipeline, limits or Limits()
        self.num_answered = 0  # texts
        self.num_batches = 0  # times that the model was free and took what waited
        self._waiting: deque[Job] = deque()
        self._arrived = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="engine", daemon=True)
        self._thread.start()

    @property
    def size_px(self) -> int:
        return int(self.pipeline.processor.image_size_px)

    @property
    def num_waiting(self) -> int:
        with self._arrived:
            return sum(len(job.requests) for job in self._waiting)

    def submit(self, requests: Sequence[GenerationRequest]) -> "Future[list[GenerationResult]]":
        """The results, in order, when they are there. A mistake that the words alone show is raised at once."""
        for request in requests:
            self.pipeline.prompt_of(request)
        job = Job(list(requests), time.monotonic() + self.limits.timeout_seconds)
        with self._arrived:
            num_waiting = sum(len(other.requests) for other in self._waiting)
            if self._closed:
                raise Refused("the server is shutting down; try again later")
            if num_waiting + len(job.requests) > self.limits.max_waiting and num_waiting:
                raise Refused(f"busy: {num_waiting} texts are waiting already; try again in a moment")
            self._waiting.append(job)
            self._arrived.notify()
        return job.answer

    def run(self, requests: Sequence[GenerationRequest]) -> list[GenerationResult]:
        """The same for a caller that waits."""
        answer = self.submit(requests)
        try:
            return answer.result(self.limits.timeout_seconds)
        except FutureTimeout:
            answer.cancel()
            raise self._too_slow() from None

    def close(self) -> None:
        with self._arrived:
            self._closed = True
            self._arrived.notify()
        self._thread.join(timeout=self.limits.timeout_seconds)

    def _too_slow(self) -> TooSlow:
        return TooSlow(f"no answer within {self.limits.timeout_seconds:g} s, which is the limit; ask for fewer texts")

    def _work(self) -> None:
        while (jobs := self._next_jobs()) is not None:
            if jobs:
                self._run_together(jobs)

    def _next_jobs(self) -> list[Job] | None:
        """What waits, oldest first, up to a bound; None when there is nothing more to come."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._waiting or self._closed)
            if not self._waiting:
                return None
            jobs: list[Job] = []
            num_texts = 0
            while self._waiting and (
                not jobs or num_texts + len(self._waiting[0].requests) <= self.limits.max_gathered
            ):
                job = self._waiting.popleft()
                if not job.answer.set_running_or_notify_cancel():
                    continue  # nobody waits for it any more
                if job.deadline < time.monotonic():
                    job.answer.set_exception(self._too_slow())
                else:
                    jobs.append(job)
                    num_texts += len(job.requests)
            return jobs

    def _run_together(self, jobs: list[Job]) -> None:
        """One asker's mistake must not be another's: where something goes wrong, each runs alone."""
        by_request = {id(request): job for job in jobs for request in job.requests}
        requests = [request for job in jobs for request in job.requests]
        try:
            for result in self.pipeline.generate(
                requests, batch_size=self.limits.batch_size, window=len(requests), in_order=False
            ):
                self.num_answered += 1  # before the asker hears of it: who asks next finds it counted
                by_request[id(result.request)].add(result)
            self.num_batches += 1
        except Exception as error:
            if len(jobs) == 1:
                jobs[0].answer.set_exception(error)
                return
            for job in jobs:
                if not job.answer.done():
                    job.results.clear()
                    self._run_together([job])


def mistakes_as_words(error: BaseException) -> str:
    """What a person is told: their own mistake in its words, ours as such."""
    return str(error) if isinstance(error, UserError) else "something went wrong on the server; its log says what"
