"""Chooses by measuring: for each shape, which product is fastest on this machine, and for a step, how many threads.

A shape is measured once a process; candidates take turns, and the fastest of their runs counts. What does not beat the
usual product clearly is not used. Where a step's weights do not fit the processor's cache, neither does what is
measured: a product that streams from memory is another than one that finds its weights near.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from babelcap.models.generation.products import EXACT, INT8, KINDS, PLAIN, ROUNDED, Product, make_product

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
    rounded: dict[Shape, str]  # which of the two ways, that give the same bits


@dataclass
class Chooser:
    """Remembers what it measured, by shape, kind of product and number of threads."""

    clock: Clock = time.thread_time  # of the calling thread: on a busy machine others take the wall clock's
    known: dict[tuple[Shape, int, bool, bool], dict[str, Timing]] = field(default_factory=dict)

    def plan(self, shapes: Sequence[Shape], num_steps: int, *, rounded: Sequence[Shape] = ()) -> Plan:
        """The products and the number of threads with which a generation of so many steps takes the least time.

        What is `rounded` is multiplied in int8 whatever it takes: results must not depend on a clock. Only which of
        its two ways is taken may, which give the same bits.
        """
        num_bytes = sum(4 * num_weights(shape) for shape in shapes) + sum(map(num_weights, rounded))
        streams, allowed = num_bytes > CACHE_BYTES, torch.get_num_threads()
        plans = {}
        for num_threads in sorted({1, allowed}, reverse=True):
            kinds, seconds = self._chosen(shapes, num_threads, num_steps, streams=streams)
            ways, seconds_rounded = self._chosen(rounded, num_threads, num_steps, streams=streams, rounded=True)
            plans[num_threads] = (seconds + seconds_rounded, Plan(num_threads, kinds, ways))
        total, plan = plans[allowed]
        alone = plans[1]
        return alone[1] if alone[0] < (1 - MIN_GAIN) * total else plan

    def _chosen(
        self, shapes: Sequence[Shape], num_threads: int, num_steps: int, *, streams: bool, rounded: bool = False
    ) -> tuple[dict[Shape, str], float]:
        """The kind of each shape, and the seconds of all. Nothing is measured where there is nothing to choose."""
        known = known_kinds(rounded=rounded)
        if len(known) == 1 and torch.get_num_threads() == 1:
            return dict.fromkeys(shapes, known[0]), 0.0
        kinds, total = {}, 0.0
        for shape, count in Counter(shapes).items():
            timings = self.timings(shape, num_threads, streams=streams, rounded=rounded)
            kinds[shape] = fastest(timings, num_steps)
            total += count * timings[kinds[shape]].seconds
        return kinds, total

    def way(self, shape: Shape, num_calls: int) -> str:
        """Of the two that multiply in int8, the faster one for so many calls."""
        if len(known_kinds(rounded=True)) == 1:
            return INT8
        return fastest(self.timings(shape, torch.get_num_threads(), rounded=True), num_calls)

    def timings(
        self, shape: Shape, num_threads: int, *, streams: bool = False, rounded: bool = False
    ) -> dict[str, Timing]:
        key = (shape, num_threads, streams, rounded)
        if key not in self.known:
            was = torch.get_num_threads()
            torch.set_num_threads(num_threads)
            try:
                self.known[key] = self._measure(shape, known_kinds(rounded=rounded), streams=streams)
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


def known_kinds(*, rounded: bool) -> list[str]:
    return [kind for kind in (ROUNDED if rounded else EXACT) if KINDS[kind].is_known()]


def fastest(timings: dict[str, Timing], num_steps: int) -> str:
    """The one with which so many steps take the least time, packing included, or the usual one: plain, oneDNN's."""
    totals = {
        kind: num_steps * timing.seconds + (timing.packing if KINDS[kind].bytes_a_weight else 0)
        for kind, timing in timings.items()
    }
    usual, best = PLAIN if PLAIN in totals else INT8, min(totals, key=lambda kind: totals[kind])
    return best if totals[best] < (1 - MIN_GAIN) * totals[usual] else usual


CHOOSER = Chooser()
