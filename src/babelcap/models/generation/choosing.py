"""Chooses by measuring: for each shape, which product is fastest on this machine, and for a step, how many threads.

A shape is measured once a process, in some milliseconds, on a part of the weights where they are large; candidates take
turns, and the fastest of their runs counts. What does not beat the plain product clearly is not used.
"""

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

import torch
from torch import Tensor

from babelcap.models.generation.products import EXACT, INT8, KINDS, PLAIN, make_product

MAX_MEASURED_BYTES = 2**23  # of a weight; a product's time grows with its rows
MAX_ROUNDS = 7
MAX_SECONDS = 0.01  # for one shape, after the first round
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

    clock: Clock = time.perf_counter
    known: dict[tuple[Shape, int], dict[str, Timing]] = field(default_factory=dict)

    def plan(self, shapes: Iterable[Shape], num_steps: int, *, rounded: Collection[Shape] = ()) -> Plan:
        """The products and the number of threads with which a generation of so many steps takes the least time.

        What is `rounded` is multiplied in int8 whatever it takes: results must not depend on a clock.
        """
        counts, allowed = Counter(shapes), torch.get_num_threads()
        plans = {}
        for num_threads in sorted({1, allowed}, reverse=True):
            kinds, total = {}, 0.0
            for shape, count in counts.items():
                timings = self.timings(shape, num_threads)
                kind = INT8 if shape in rounded and INT8 in timings else fastest(timings, num_steps)
                kinds[shape] = kind
                total += count * timings[kind].seconds
            plans[num_threads] = (total, Plan(num_threads, kinds))
        total, plan = plans[allowed]
        alone = plans[1]
        return alone[1] if alone[0] < (1 - MIN_GAIN) * total else plan

    def timings(self, shape: Shape, num_threads: int) -> dict[str, Timing]:
        key = (shape, num_threads)
        if key not in self.known:
            was = torch.get_num_threads()
            torch.set_num_threads(num_threads)
            try:
                self.known[key] = self._measure(shape)
            finally:
                torch.set_num_threads(was)
        return self.known[key]

    @torch.no_grad()
    def _measure(self, shape: Shape) -> dict[str, Timing]:
        num_outputs = min(shape.num_outputs, max(1, MAX_MEASURED_BYTES // (4 * shape.num_inputs)))
        part = shape.num_outputs / num_outputs
        generator = torch.Generator().manual_seed(0)
        weight = torch.rand(num_outputs, shape.num_inputs, generator=generator)
        states = torch.rand(shape.num_rows, shape.num_inputs, generator=generator)
        bias = torch.zeros(num_outputs) if shape.has_bias else None
        products, packing = {}, {}
        for kind in (*EXACT, INT8):
            if KINDS[kind].is_known():
                start = self.clock()
                products[kind] = make_product(kind, weight, bias, shape.num_rows)
                packing[kind] = self.clock() - start
        best = dict.fromkeys(products, float("inf"))
        for _ in self._rounds():
            for kind, product in products.items():
                best[kind] = min(best[kind], self._seconds(product, states))
        return {kind: Timing(part * best[kind], part * packing[kind]) for kind in products}

    def _rounds(self) -> Iterable[int]:
        """The first warms up what is measured in the others; a slow shape has fewer of them."""
        yield 0
        start = self.clock()
        for number in islice(range(1, MAX_ROUNDS), MAX_ROUNDS):
            yield number
            if self.clock() - start > MAX_SECONDS:
                return

    def _seconds(self, product: Callable[[Tensor], Tensor], states: Tensor) -> float:
        start = self.clock()
        product(states)
        return self.clock() - start


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
