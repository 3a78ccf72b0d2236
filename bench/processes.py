"""Captions a second from pictures to texts, shared among processes, against the same call in this process alone.

Drawn pictures x six languages with the captioner that comes with babelcap, in turn. The limit is one process's rate
with one thread, times the number of processes. Texts must be the same.

python bench/processes.py [--images 200] [--quick] [--json]
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import torch

import babelcap
from before import LANGUAGES, MODEL, draw_pictures
from measure import alternate, row, share_of


def run_benchmark(num_images: int, repeats: int) -> dict[str, Any]:
    captioner = babelcap.load(MODEL)
    num_threads = torch.get_num_threads()
    with tempfile.TemporaryDirectory() as folder:
        draw_pictures(Path(folder), num_images)
        pictures = sorted(Path(folder).glob("*.png"))

        def texts(num_processes: int, threads: int) -> list[str]:
            torch.set_num_threads(threads)
            try:
                found = captioner.caption(pictures, LANGUAGES, num_processes=num_processes)
            finally:
                torch.set_num_threads(num_threads)
            return [result.text for result in found]

        variants = {
            "one process": lambda: texts(1, num_threads),
            "one thread": lambda: texts(1, 1),
            "processes": lambda: texts(num_threads, num_threads),
        }
        captioner.caption(pictures[:4], LANGUAGES, num_processes=1)
        timings = alternate(variants, repeats)
    number = num_images * len(LANGUAGES)
    if len({tuple(found) for found in timings.results.values()}) > 1:
        raise AssertionError("processes write other texts than one process does")
    share = timings.best("one thread") / timings.best("processes") / num_threads
    found = row(
        f"captions: {num_threads} processes",
        f"one process with {num_threads} threads",
        captions_per_second=round(number / timings.best("processes"), 1),
        **timings.ratio("processes", "one process"),
    ) | share_of(f"{num_threads} times one thread", share)
    return {"num_captions": number, "rows": [found]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=200)
    parser.add_argument("--quick", action="store_true", help="60 images, one repeat")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    num_images, repeats = (60, 1) if options.quick else (options.images, 3)
    result = run_benchmark(num_images, repeats)
    if options.json:
        print(json.dumps(result))
        return
    (found,) = result["rows"]
    rate, spread = found["captions_per_second"], f"{found['low']} to {found['high']}"
    print(f"{result['num_captions']} captions, {rate} a second, {found['ratio']} times one process's ({spread})")
    print(f"{found['share of limit']} of {found['limit']}")


if __name__ == "__main__":
    main()
