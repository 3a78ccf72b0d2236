"""Requests of a small model shared among processes that are forked from this one, of one thread each.

A step of a small model is mostly calls, which threads cannot take from each other: two threads write a tenth more
captions a second than one, two processes nearly twice as many. A fork has the model as it is, not loaded or copied,
and is made only where no other Python thread runs, whose locks it would inherit. The parent hands out requests in
parts and keeps their order; the part of a process that dies it decodes itself. `jobs/pool.py` is for work that lives
in files: its workers are spawned, and would each import torch and load the model anew.
"""

import multiprocessing
import os
import pickle
import signal
import sys
import threading
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, NamedTuple, TypeVar

import torch

from babelcap.errors import UserError
from babelcap.models.generation.requests import Found, GenerationRequest, GenerationResult, NumberedRequest, OnBadImage

Part = list[NumberedRequest]
NO_REQUEST = GenerationRequest(language="")
PARTS_EACH = 2  # of what is read at once, for each process: that one has longer texts is evened out
T = TypeVar("T")
Decode = Callable[[Part], T]


class Answer(NamedTuple, Generic[T]):
    """How a part was decoded: what came of it, or what went wrong with it as a whole."""

    value: T | None = None
    error: Exception | None = None

    def get(self) -> T:
        if self.error is not None:
            raise self.error
        assert self.value is not None
        return self.value


def obstacle_to_sharing(requests: Sequence[NumberedRequest]) -> str | None:
    """Why these are not shared, if so. What is drawn depends on who is drawn beside it."""
    if any(request.settings.is_sampled for _, request in requests):
        return "sampled texts depend on those that are drawn beside them"
    return obstacle_to_fork()


def obstacle_to_fork() -> str | None:
    """Why a process made of this one would not work, if so: a thread or a graphics card holds something of a fork."""
    if sys.platform != "linux":
        return "processes are forked on Linux alone"
    if multiprocessing.current_process().daemon:
        return "this process is a worker, which may not start others"
    if threading.active_count() > 1:
        return "other Python threads run in it, whose locks a fork would inherit"
    if torch.cuda.is_initialized():
        return "it uses a graphics card, which a fork cannot"
    return None


def share_results(
    numbered: Iterator[NumberedRequest],
    generate: Callable[[Iterator[NumberedRequest], OnBadImage], Iterator[Found]],
    num_processes: int,
    part_size: int,
    on_bad_image: OnBadImage | None,
) -> Iterator[Found]:
    """Requests stay here; results come without them, and errors of images in the place of results."""

    def decode(part: Part) -> dict[int, GenerationResult | UserError]:
        numbers = {id(request): number for number, request in part}
        bad: list[tuple[GenerationRequest, UserError]] = []
        written = chain.from_iterable(some.items() for some in generate(iter(part), lambda *told: bad.append(told)))
        found: dict[int, GenerationResult | UserError] = {
            number: replace(result, request=NO_REQUEST) for number, result in written if result is not None
        }
        return found | {numbers[id(request)]: error for request, error in bad}

    for part, answer in share(numbered, decode, num_processes, part_size):
        requests = dict(part)
        found: Found = {}
        for number, result in answer.get().items():
            if isinstance(result, UserError):
                if on_bad_image is None:
                    raise result
                on_bad_image(requests[number], result)
                found[number] = None
            else:
                found[number] = replace(result, request=requests[number])
        yield found


def share(
    requests: Iterator[NumberedRequest], decode: Decode[T], num_processes: int, part_size: int
) -> Iterator[tuple[Part, Answer[T]]]:
    """Parts and what `decode`, called in one of the processes, gave for them, as they are ready."""
    helpers: list[_Helper] = []
    waiting: deque[Part] = deque()
    try:
        for _ in range(num_processes):
            helpers.append(_Helper(decode, [helper.connection for helper in helpers]))
        while True:
            if len(waiting) < num_processes:
                waiting.extend(_parts(requests, num_processes, part_size))
            for helper in helpers:
                while helper.part is None and helper.is_alive and waiting:
                    part = waiting.popleft()
                    if not helper.start(part):
                        yield part, _answer(decode, part)
            at_work = {helper.connection: helper for helper in helpers if helper.part is not None}
            if not at_work:  # all is done, or none of them is alive
                if not waiting:
                    return
                part = waiting.popleft()
                yield part, _answer(decode, part)
                continue
            for connection in wait(list(at_work)):
                helper = at_work[connection]  # type: ignore[index]
                part, answer = helper.finish()
                yield part, _answer(decode, part) if answer is None else answer
    finally:
        for helper in helpers:
            helper.end()


def _parts(requests: Iterator[NumberedRequest], num_processes: int, part_size: int) -> Iterator[Part]:
    """The next requests, in parts of nearly the same size that do not divide those of one image."""
    some = list(islice(requests, part_size * num_processes * PARTS_EACH))
    size = min(part_size, -(-len(some) // (num_processes * PARTS_EACH)))
    part: Part = []
    for number, request in some:
        is_another = not part or request.image is None or request.image is not part[-1][1].image
        if len(part) >= size and is_another:
            yield part
            part = []
        part.append((number, request))
    if part:
        yield part


class _Helper:
    """One process, and the part that it has."""

    def __init__(self, decode: Decode[Any], others: Sequence[Connection]) -> None:
        """`others` are those of helpers that are there already: held open in a fork, they would never end."""
        context = multiprocessing.get_context("fork")
        self.connection, theirs = context.Pipe()
        self.part: Part | None = None
        self.is_alive = True
        self.process: BaseProcess = context.Process(
            target=_help, args=(theirs, [*others, self.connection], decode, os.getpid()), daemon=True
        )
        with warnings.catch_warnings():  # Python 3.12 warns of threads, and torch's own are among those it counts
            warnings.simplefilter("ignore", DeprecationWarning)
            self.process.start()
        theirs.close()

    def start(self, part: Part) -> bool:
        """Whether the part could be handed over: an image may be an open file, which cannot."""
        try:
            given = pickle.dumps(part)
        except (pickle.PicklingError, TypeError, AttributeError):
            return False
        self.part = part
        with suppress(BrokenPipeError, ConnectionResetError):  # that it died is seen when its answer is looked for
            self.connection.send_bytes(given)
        return True

    def finish(self) -> tuple[Part, Answer[Any] | None]:
        """Its part and the answer; None where the process died."""
        assert self.part is not None
        part, self.part = self.part, None
        try:
            answer: Answer[Any] = pickle.loads(self.connection.recv_bytes())
        except (EOFError, ConnectionResetError):
            self.is_alive = False
            return part, None
        return part, answer

    def end(self) -> None:
        self.connection.close()
        if self.part is not None:
            self.process.kill()
        self.process.join()


def _help(connection: Connection, parents: Sequence[Connection], decode: Decode[Any], parent: int) -> None:
    """Answers until the connection closes, which the parent's death does too."""
    for one in parents:
        one.close()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent hears Ctrl-C too, and ends its helpers
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)  # those of the parent's pool are not here
    with suppress(EOFError, BrokenPipeError, ConnectionResetError):
        while os.getppid() == parent:
            connection.send_bytes(_as_bytes(_answer(decode, pickle.loads(connection.recv_bytes()))))


def _answer(decode: Decode[T], part: Part) -> Answer[T]:
    try:
        return Answer(decode(part))
    except Exception as error:
        return Answer(error=error)


def _as_bytes(answer: Answer[Any]) -> bytes:
    """Plainly pickled: torch's way of sending tensors would need this process to outlive them."""
    try:
        return pickle.dumps(answer)
    except Exception:
        return pickle.dumps(Answer(error=RuntimeError(f"{type(answer.error).__name__}: {answer.error}")))
