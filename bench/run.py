"""All benchmarks, one summary: `python bench/run.py [--quick] [--only NAME ...]` writes RESULTS.md and results.json.

Each line is a ratio against a named baseline of the same run, with its spread, the share of a limit (memory bandwidth,
plain product, bare decode) where there is one, and the growth of time with size. Scripts whose variants do not take
turns by themselves are run several times: the ratio is the middle one, the spread the lowest and the highest. What
`--only` names is measured anew, and the rest of the summary stays where it is of the same machine.
`python bench/compare.py BEFORE.json AFTER.json` says what got worse beyond the spread.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from measure import row
from rows import READERS, Rows

FOLDER = Path(__file__).parent
QUICK_OPTIONS = {"train": ["--models", "micro-florence-l"], "loss": ["--size", "micro-florence-l"]}
LEFT_OUT_WHEN_QUICK = ("leakage",)
# Scripts that go round by themselves.
TAKES_TURNS = ("generate", "native", "linear", "captions", "processes", "growth", "start", "train_step")
REPEATS, MAX_SECONDS = 3, 3600.0
PRODUCTS = {"avx2", "fma", "avx512f", "avx512_vnni", "avx512_bf16", "avx_vnni", "amx_int8", "amx_bf16"}
LOAD = "load when it began"
COLUMNS = ("name", "baseline", "ratio", "low", "high", "target", "share of limit", "limit", "slope", "goal")


def run_one(name: str, *, quick: bool) -> Rows:
    options = ["--json", *(["--quick", *QUICK_OPTIONS.get(name, [])] if quick else [])]
    command = [sys.executable, str(FOLDER / f"{name}.py"), *options]
    source = os.pathsep.join(filter(None, (str(FOLDER.parent / "src"), os.environ.get("PYTHONPATH"))))
    done = subprocess.run(
        command,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=MAX_SECONDS,
        env=os.environ | {"PYTHONPATH": source},
    )
    return READERS[name](json.loads(done.stdout[done.stdout.index("{") :]))


def with_spread(runs: list[Rows]) -> Rows:
    """The middle ratio of several runs with the lowest and the highest; the last run's other values."""
    lines: Rows = []
    for found in runs[-1]:
        ratios = [
            other["ratio"] for run in runs for other in run if other["name"] == found["name"] and other.get("ratio")
        ]
        if len(runs) > 1 and ratios:
            found = found | {"ratio": statistics.median_low(ratios), "low": min(ratios), "high": max(ratios)}
        lines.append(found)
    return lines


def measured(name: str, *, quick: bool) -> Rows:
    """A script that fails is a line; the others are still worth having, and the exit code tells."""
    runs: list[Rows] = []
    try:
        for _ in range(1 if quick or name in TAKES_TURNS else REPEATS):
            runs.append(run_one(name, quick=quick))  # noqa: PERF401 (what is there when one fails counts)
    except subprocess.CalledProcessError as error:
        return [*(with_spread(runs) if runs else []), row(f"{name}: failed", f"exit code {error.returncode}")]
    except subprocess.TimeoutExpired:
        return [*(with_spread(runs) if runs else []), row(f"{name}: failed", f"more than {MAX_SECONDS:.0f} s")]
    except (ValueError, KeyError, TypeError, ZeroDivisionError, OSError) as error:
        return [*(with_spread(runs) if runs else []), row(f"{name}: failed", f"its answer: {error!r:.80}")]
    return with_spread(runs)


def as_table(rows: Rows) -> str:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + "---|" * len(COLUMNS)]
    for found in rows:
        cells = ["" if found.get(column) is None else str(found[column]) for column in COLUMNS]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def processor() -> str:
    """As Linux tells it: virtual machines hide the name, but not family, model and what it can multiply."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").split("\n\n")[0].splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    told = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    can = sorted(set(told.get("flags", "").split()) & PRODUCTS)
    kind = f"family {told.get('cpu family', '?')} model {told.get('model', '?')}"
    return f"{told.get('model name', platform.machine())} ({kind}; {' '.join(can)})"


def kept_rows(folder: Path, machine: dict[str, Any], names: Sequence[str]) -> Rows:
    """Of an earlier summary, what is not measured anew, where all that it tells of the machine is the same."""
    try:
        earlier = json.loads((folder / "results.json").read_text())
    except (OSError, ValueError):
        return []
    is_same = all(earlier["machine"].get(name) == value for name, value in machine.items() if name != LOAD)
    return [found for found in earlier["rows"] if is_same and found.get("script") not in (None, *names)]


def machine_facts(quick: bool) -> dict[str, Any]:
    return {
        "processor": processor(),
        "vectors": torch.backends.cpu.get_cpu_capability(),
        "num_threads": torch.get_num_threads(),
        "torch": torch.__version__,
        LOAD: round(os.getloadavg()[0], 1),
        "quick": quick,
    }


def write_summary(folder: Path, machine: dict[str, Any], rows: Rows) -> str:
    order = list(READERS)
    rows = sorted(rows, key=lambda found: order.index(found["script"]))
    (folder / "results.json").write_text(json.dumps({"machine": machine, "rows": rows}, indent=1) + "\n")
    facts = ", ".join(f"{name} {value}" for name, value in machine.items())
    text = (
        "# Benchmarks\n\nWritten by `make bench`. A ratio above 1 is faster, or smaller; low and high are its spread "
        f"over repeats. Where no limit stands, none is natural. {facts}\n\n{as_table(rows)}\n"
    )
    (folder / "RESULTS.md").write_text(text)
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes, one run of each: minutes")
    parser.add_argument(
        "--only",
        nargs="+",
        choices=READERS,
        default=list(READERS),
        help="measure these anew; the rest of a summary of the same machine stays",
    )
    parser.add_argument("--output", type=Path, default=FOLDER, help="folder of RESULTS.md and results.json")
    options = parser.parse_args()
    names = [name for name in options.only if not (options.quick and name in LEFT_OUT_WHEN_QUICK)]
    options.output.mkdir(parents=True, exist_ok=True)
    machine, text = machine_facts(options.quick), ""
    rows = [] if set(options.only) == set(READERS) else kept_rows(options.output, machine, names)
    for name in names:
        start = time.perf_counter()
        rows += [found | {"script": name} for found in measured(name, quick=options.quick)]
        print(f"{name}: {time.perf_counter() - start:.0f} s", file=sys.stderr, flush=True)
        text = write_summary(options.output, machine, rows)  # so far: stopped, what was measured is there
    print(text)
    if any("failed" in found["name"] for found in rows):
        sys.exit(1)


if __name__ == "__main__":
    main()
