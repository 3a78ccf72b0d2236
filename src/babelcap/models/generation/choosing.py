"""Chooses by measuring: for each shape, which product is fastest on this machine, and for a step, how many threads.

A shape is measured once a process; candidates take turns, and the fastest of their runs counts. What does not beat the
plain product clearly is not used. Where a step's weights do not fit the processor's cache, neither does what is
measured: a product that streams from memory is another than one that finds its weights near.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from babelcap.models.generation.products import EXACT, INT8, KINDS, PLAIN, Product, make_product

CACHE_BYTES = 2**25  # a step with more weights streams them; of these, as many are measured, by each candidate its own
NEAR_BYTES = 2**21  # of a weight that is measured where all of them are near
MIN_ROUNDS, MAX_ROUNDS = 3, 7
MAX_SECONDS = 0.05  # for one shape, after the first rounds
MIN_GAIN = 0.05  # less may be chance

Clock = Callable[[], float]


class Shape(NamedTuple):
    num_outputs: int
    num_inputs: int
    has_bias: bool
    num_rows: int


class Timing(NamedTuple):
    seconds: float  # of one product
    packing: float  # seconds, once


class Plan(NamedTuple):
    num_threads: int
    kinds: dict[Shape, str]


@dataclass
class Chooser:
    """Remembers what it measured, by shape, kind of product and number of threads."""

    clock: Clock = time.thread_time  # of the calling thread: on a busy machine others take the wall clock's
    known: dict[tuple[Shape, int, bool, bool], dict[str, Timing]] = field(default_factory=dict)

    def plan(self, shapes: Sequence[Shape], num_steps: int, *, rounded: Sequence[Shape] = ()) -> Plan:
        """The products and the number of threads with which a generation of so many steps takes the least time.

        What is `rounded` is multiplied in int8 whatever it takes: results must not depend on a clock.
        """
        num_bytes = sum(4 * num_weights(shape) for shape in shapes) + sum(map(num_weights, rounded))
        streams, allowed = num_bytes > CACHE_BYTES, torch.get_num_threads()
        plans = {}
        for num_threads in sorted({1, allowed}, reverse=True):
            kinds, total = {}, 0.0
            for shape, count in Counter(shapes).items():
                timings = self.timings(shape, num_threads, streams=streams)
                kinds[shape] = fastest(timings, num_steps)
                total += count * timings[kinds[shape]].seconds
            if allowed > 1:
                for shape, count in Counter(rounded).items():
                    timings = self.timings(shape, num_threads, streams=streams, rounded=True)
                    total += count * timings[INT8].seconds
            plans[num_threads] = (total, Plan(num_threads, kinds))
        total, plan = plans[allowed]
        alone = plans[1]
        return alone[1] if alone[0] < (1 - MIN_GAIN) * total else plan

    def timings(
        self, shape: Shape, num_threads: int, *, streams: bool = False, rounded: bool = False
    ) -> dict[str, Timing]:
        key = (shape, num_threads, streams, rounded)
        if key not in self.known:
            was = torch.get_num_threads()
            torch.set_num_threads(num_threads)
            try:
                kinds = [kind for kind in ((INT8,) if rounded else EXACT) if KINDS[kind].is_known()]
                self.known[key] = self._measure(shape, kinds, streams=streams)
            finally:
                torch.set_num_threads(was)
        return self.known[key]

    @torch.no_grad()
    def _measure(self, shape: Shape, kinds: Sequence[str], *, streams: bool) -> dict[str, Timing]:
        """Some rows of a large weight; several of a small one, where they stream."""
        max_bytes = CACHE_BYTES if streams else NEAR_BYTES
        num_outputs = min(shape.num_outputs, max(1, max_bytes // (4 * shape.num_inputs)))
        num_copies = max(1, max_bytes // (4 * num_outputs * shape.num_inputs)) if streams else 1
        part = shape.num_outputs / num_outputs / num_copies
        weights = [torch.full((num_outputs, shape.num_inputs), 0.5) for _ in range(num_copies)]
        states = torch.full((shape.num_rows, shape.num_inputs), 0.5)
        bias = torch.zeros(num_outputs) if shape.has_bias else None
        products, packing = {}, {}
        for kind in kinds:
            start = self.clock()
            products[kind] = [make_product(kind, weight, bias, shape.num_rows) for weight in weights]
            packing[kind] = self.clock() - start
        best = dict.fromkeys(products, float("inf"))
        for _ in self._rounds():
            for kind in products:
                best[kind] = min(best[kind], self._seconds(products[kind], states))
        return {kind: Timing(part * best[kind], part * packing[kind]) for kind in products}

    def _rounds(self) -> Iterable[int]:
        """The first warms up what is measured in the others; a slow shape has fewer of them."""
        yield 0
        start = self.clock()
        for number in range(1, MAX_ROUNDS):
            yield number
            if number >= MIN_ROUNDS and self.clock() - start > MAX_SECONDS:
                return

    def _seconds(self, products: Iterable[Product], states: Tensor) -> float:
        start = self.clock()
        for product in products:
            product(states)
        return self.clock() - start


def num_weights(shape: Shape) -> int:
    return shape.num_outputs * shape.num_inputs


def fastest(timings: dict[str, Timing], num_steps: int) -> str:
    """Of the exact products, the one with which so many steps take the least time, packing included."""
    plain = num_steps * timings[PLAIN].seconds
    totals = {
        kind: num_steps * timings[kind].seconds + (timings[kind].packing if KINDS[kind].bytes_a_weight else 0)
        for kind in EXACT
        if kind in timings
    }
    best = min(totals, key=lambda kind: totals[kind])
    return best if totals[best] < (1 - MIN_GAIN) * plain else PLAIN


CHOOSER = Chooser()
