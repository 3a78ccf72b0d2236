"""What all benchmarks share: variants measured in turn, so that a slow minute of the machine slows all of them.

A ratio is of the fastest runs; its spread is the lowest and the highest ratio of runs that were neighbours.
"""

import json
import math
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

Run = Callable[[], Any]
STATE = "weights, gradients and moments"  # a limit of memory
# On a machine that others use too: seconds of this process' own work. Start with OMP_NUM_THREADS=1, or waiting counts.
CLOCK = time.process_time if os.environ.get("BENCH_CLOCK") == "processor" else time.perf_counter


class Timings(NamedTuple):
    """Seconds of each variant, in the order of the rounds, and what each gave last."""

    seconds: dict[str, list[float]]
    results: dict[str, Any]

    def best(self, name: str) -> float:
        return min(self.seconds[name])

    def ratio(self, name: str, baseline: str) -> dict[str, float]:
        """How many times as fast as the baseline."""
        pairs = [base / own for own, base in zip(self.seconds[name], self.seconds[baseline], strict=True)]
        best = self.best(baseline) / self.best(name)
        return {"ratio": round(best, 3), "low": round(min(pairs), 3), "high": round(max(pairs), 3)}


def alternate(variants: Mapping[str, Run], repeats: int) -> Timings:
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    results: dict[str, Any] = {}
    for _ in range(repeats):
        for name, run in variants.items():
            start = CLOCK()
            results[name] = run()
            seconds[name].append(CLOCK() - start)
    return Timings(seconds, results)


def slope(sizes: Sequence[float], seconds: Sequence[float]) -> float:
    """Of log seconds over log size by least squares: 1 where time grows as the work does."""
    across = [math.log(size) for size in sizes]
    up = [math.log(max(second, 1e-9)) for second in seconds]
    mean_x, mean_y = sum(across) / len(across), sum(up) / len(up)
    over = sum((x - mean_x) * (y - mean_y) for x, y in zip(across, up, strict=True))
    return over / sum((x - mean_x) ** 2 for x in across)


def copy_bytes_per_second(num_bytes: int = 2**28) -> float:
    """A plain copy in memory, counting what is read and what is written."""
    import torch

    source = torch.ones(num_bytes // 4)
    target = torch.empty_like(source)
    return 2 * num_bytes / alternate({"copy": lambda: target.copy_(source)}, 7).best("copy")


def product_flops_per_second(dtype: str = "float32", size: int = 1536) -> float:
    """A plain product of square matrices; of whole numbers with `int8`. torch's own of float32 is MKL's, which is no
    limit where oneDNN's is faster: then it is that."""
    import torch

    left, right = (torch.randint(-127, 128, (size, size)).to(getattr(torch, dtype)) for _ in range(2))
    ways = {"torch": lambda: torch._int_mm(left, right) if dtype == "int8" else left @ right}
    if dtype == "float32" and torch.backends.mkldnn.is_available():
        packed = torch.ops.mkldnn._reorder_linear_weight(right, size)
        ways["onednn"] = lambda: torch.ops.mkldnn._linear_pointwise(left, packed, None, "none", [], "")
    found = alternate(ways, 7)
    return 2 * size**3 / min(found.best(way) for way in ways)


def nearest_limit(shares: Mapping[str, float]) -> dict[str, float | str]:
    """Of the limits that a run has, the one that it comes nearest to."""
    limit = max(shares, key=lambda name: shares[name])
    return share_of(limit, shares[limit])


def share_of(limit: str, share: float) -> dict[str, float | str]:
    """1 is the limit itself."""
    return {"share of limit": round(share, 3), "limit": limit}


def row(name: str, baseline: str, **values: float | str | None) -> dict[str, Any]:
    """One line of the summary: `ratio`, `low`, `high`, `share of limit`, `limit`, `slope`, where they are known."""
    return {"name": name, "baseline": baseline, **values}


def write_rows(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    Path(path).write_text(json.dumps(list(rows), indent=1) + "\n")
