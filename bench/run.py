"""All benchmarks, one summary: `python bench/run.py [--quick] [--only NAME ...]` writes RESULTS.md and results.json.

Each line is a ratio against a named baseline of the same run, with its spread where runs take turns, the share of a
limit (memory bandwidth, plain product, bare decode) where there is one, and the growth of time with size.
`python bench/compare.py BEFORE.json AFTER.json` says what got worse beyond the spread.
"""

import argparse
import json
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from measure import row

FOLDER = Path(__file__).parent
QUICK_OPTIONS = {"train": ["--models", "micro-florence-l"], "loss": ["--size", "micro-florence-l"]}
LEFT_OUT_WHEN_QUICK = ("leakage",)
Found = dict[str, Any]
Rows = list[Found]


def rows_of_data(found: Found) -> Rows:
    share = round(found["bare_cpu_seconds_over_loader_cpu_seconds"], 3)
    line = row("data: loader", "bare decode, processor time", ratio=share, **{"share of limit": share})
    line["limit"] = "bare decode"
    return [line]


def rows_of_index(found: Found) -> Rows:
    return [
        row(
            f"index_tar: {result['size_px']} px",
            "rewriting the tar, processor time",
            ratio=round(1 / result["ratio_to_rewrite"]["index into a corpus"][1], 2),
        )
        for result in found["results"]
    ]


def rows_of_align(found: Found) -> Rows:
    share = round(found["exact_share_of_product"], 3)
    best = max(found["faiss"]["by_probes"], key=lambda line: line["recall"])
    return [
        row("align: exact", "plain product", ratio=share, **{"share of limit": share, "limit": "plain product"}),
        row(f"align: faiss, recall {best['recall']:.3f}", "exact search", ratio=round(best["speed_up"], 2)),
    ]


def rows_of_loss(found: Found) -> Rows:
    ratios = found["ratios"]
    return [
        row("loss: time", "full logits", ratio=round(1 / ratios["seconds"], 3)),
        row("loss: memory", "full logits", ratio=round(1 / ratios["whole_bytes"], 3)),
    ]


def rows_of_train(found: Found) -> Rows:
    lines = []
    for model, sides in found.items():
        base = sides["trainer"]
        for side, result in sides.items():
            if side != "trainer":
                ratio = result["samples_per_second"] / base["samples_per_second"]
                memory = round(base["peak_bytes"] / result["peak_bytes"], 3)
                lines.append(row(f"train: {model}, {side}", "transformers' Trainer", ratio=round(ratio, 3)))
                lines.append(row(f"train: {model}, {side}, memory", "transformers' Trainer", ratio=memory))
    return lines


def rows_of_laws(found: Found) -> Rows:
    return [
        row("laws: bootstrap, robust", "scipy's BFGS in a loop", ratio=round(found["robust_ratio"], 2)),
        row("laws: bootstrap, least squares", "scipy's curve_fit in a loop", ratio=round(found["squares_ratio"], 2)),
    ]


def rows_of_metrics(found: Found) -> Rows:
    theirs = found.get("pycocoevalcap_cider_seconds")
    ratio = None if theirs is None else round(theirs / found["cider_seconds"], 2)
    return [row("metrics: CIDEr", "pycocoevalcap" if theirs else "pycocoevalcap (not installed)", ratio=ratio)]


def rows_of_leakage(found: Found) -> Rows:
    times = {name: value for name, value in found.items() if isinstance(value, float)}
    return [row(f"leakage: {name}", "see the script", value=round(value, 4)) for name, value in times.items()]


def own_rows(found: Found) -> Rows:
    return list(found["rows"])


READERS: Mapping[str, Callable[[Found], Rows]] = {
    "generate": own_rows,
    "captions": own_rows,
    "growth": own_rows,
    "data": rows_of_data,
    "index_tar": rows_of_index,
    "align": rows_of_align,
    "loss": rows_of_loss,
    "train": rows_of_train,
    "laws": rows_of_laws,
    "metrics": rows_of_metrics,
    "leakage": rows_of_leakage,
}


def run_one(name: str, *, quick: bool) -> Rows:
    options = ["--json", *(["--quick", *QUICK_OPTIONS.get(name, [])] if quick else [])]
    done = subprocess.run(
        [sys.executable, str(FOLDER / f"{name}.py"), *options], stdout=subprocess.PIPE, text=True, check=True
    )
    return READERS[name](json.loads(done.stdout[done.stdout.index("{") :]))


def as_table(rows: Rows) -> str:
    columns = ("name", "baseline", "ratio", "low", "high", "target", "share of limit", "limit", "slope")
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for found in rows:
        cells = ["" if found.get(column) is None else str(found[column]) for column in columns]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes and few repeats: minutes")
    parser.add_argument("--only", nargs="+", choices=READERS, default=list(READERS))
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder of RESULTS.md and results.json")
    options = parser.parse_args()
    names = [name for name in options.only if not (options.quick and name in LEFT_OUT_WHEN_QUICK)]
    rows: Rows = []
    for name in names:
        start = time.perf_counter()
        try:
            rows += run_one(name, quick=options.quick)
        except subprocess.CalledProcessError as error:  # the others are still worth having; the exit code tells
            rows.append(row(f"{name}: failed", f"exit code {error.returncode}"))
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr)
    machine = {
        "processor": platform.processor() or platform.machine(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "num_threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "quick": options.quick,
    }
    options.output.mkdir(parents=True, exist_ok=True)
    (options.output / "results.json").write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    facts = ", ".join(f"{name} {value}" for name, value in machine.items())
    text = (
        f"# Benchmarks\n\nWritten by `make bench`. A ratio above 1 is faster, or smaller. {facts}\n\n{as_table(rows)}\n"
    )
    (options.output / "RESULTS.md").write_text(text)
    print(text)
    if any("failed" in found["name"] for found in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
