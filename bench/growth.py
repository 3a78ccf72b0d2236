"""How time grows with size: the slope of log seconds over log size, over at least four sizes, in processor time.

indexing a tar, sampling the mixture, scoring captions, aligning images with texts, fitting a law. Goal: at most 1.1.

python bench/growth.py [--quick] [--json]
"""

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch

import align
import data
import index_tar
import laws
import metrics
from babelcap.coverage import Coverage
from babelcap.data.feed.mixture import Mixture, MixtureConfig
from babelcap.laws.fit import fit
from measure import row, slope

GOAL = 1.1
REPEATS = 3
Make = Callable[[int], Callable[[], object]]  # for a size, what is measured


def indexing(folder: Path) -> Make:
    def make(size: int) -> Callable[[], object]:
        source = folder / f"{size}.tar"
        index_tar.make_tar(source, size, 32)

        def run() -> None:
            shutil.rmtree(folder / "corpus", ignore_errors=True)
            index_tar.index(source, folder / "corpus")

        return run

    return make


def sampling(size: int) -> Callable[[], object]:
    mixture = Mixture(data.PublishedRows(), MixtureConfig(window_size=10_000), Coverage(), seed=0)
    return lambda: [mixture.resolve(np.arange(first, first + 2**12)) for first in range(0, size, 2**12)]


def scoring(size: int) -> Callable[[], object]:
    references, hypotheses = metrics.captions(size)
    return lambda: metrics.cider_of_tokens(references, hypotheses, {"tok": "given"})


def aligning(size: int) -> Callable[[], object]:
    images, texts = align.draw(256, 2, align.GAP), align.draw(size, 3, -align.GAP)
    chunk = align.TextChunk(np.arange(1, size + 1, dtype=np.uint64), texts)
    return lambda: align.nearest_texts(images, [chunk], align.NUM_CANDIDATES, align.SearchConfig())


def fitting(size: int) -> Callable[[], object]:
    columns, y = laws.points(size)
    return lambda: fit("chinchilla", columns, y, num_bootstrap=20)


@contextmanager
def makers() -> Iterator[dict[str, tuple[Make, tuple[int, ...]]]]:
    with tempfile.TemporaryDirectory() as name:
        yield {
            "indexing": (indexing(Path(name)), (1_000, 2_000, 4_000, 8_000, 16_000)),
            "sampling": (sampling, (2**14, 2**16, 2**18, 2**20)),
            # larger than for the others, so that a run takes long enough to be measured
            "scoring": (scoring, (2_000, 4_000, 8_000, 16_000)),
            "aligning": (aligning, (8_000, 16_000, 32_000, 64_000)),
            "fitting": (fitting, (50, 100, 200, 400, 800)),
        }


def best_seconds(run: Callable[[], object]) -> float:
    found = []
    for _ in range(REPEATS):
        start = time.process_time()
        run()
        found.append(time.process_time() - start)
    return min(found)


def run_benchmark(*, quick: bool) -> dict[str, Any]:
    torch.set_num_threads(1)
    rows = []
    with makers() as found:
        for name, (make, sizes) in found.items():
            used = sizes[:4] if quick else sizes
            make(used[0])()  # imports
            seconds = [best_seconds(make(size)) for size in used]
            rows.append(
                row(
                    f"growth: {name}",
                    f"{used[0]:,} to {used[-1]:,}",
                    slope=round(slope(used, seconds), 3),
                    seconds=round(seconds[-1], 4),
                    goal=GOAL,
                )
            )
    return {"rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="four sizes each")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = run_benchmark(quick=options.quick)
    if options.json:
        print(json.dumps(result))
        return
    for found in result["rows"]:
        print(f"{found['name']:22} {found['baseline']:>22}  slope {found['slope']:.2f} (goal {GOAL})")


if __name__ == "__main__":
    main()
