"""`babelcap caption` of one picture with the micro model, and `babelcap --help`, each in a new process.

A caption waits for torch and for transformers' model classes, whatever we do: importing these alone is its baseline
and its limit; that of `--help` is Python with nothing to do. `--before` measures the source
folder of another checkout in turn.

python bench/start.py [--quick] [--before OTHER/src] [--json]
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from PIL import Image

from measure import row, share_of

SOURCE = Path(__file__).parent.parent / "src"
IMPORTS = "import torch\nfrom transformers import AutoTokenizer, Florence2ForConditionalGeneration"
BASELINE = "import of torch and transformers' Florence-2"
HELP_SECONDS = 0.3  # at most


def seconds_of(arguments: list[str], source: Path) -> float:
    """Of one new process from its start to its end; with BENCH_CLOCK=processor, of its own work."""
    own, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = os.environ | {"PYTHONPATH": str(source)}
    subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environment)
    seconds, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if os.environ.get("BENCH_CLOCK") == "processor":
        seconds = after.ru_utime - own.ru_utime + after.ru_stime - own.ru_stime
    return seconds


def run_benchmark(before: Path | None, repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        picture = Path(folder) / "picture.png"
        Image.new("RGB", (96, 96), (60, 140, 60)).save(picture)
        started = ["-c", "from babelcap.cli import main\nmain()"]
        captioned = [*started, "caption", str(picture), "--model", "micro", "--language", "en"]
        variants = {"imports": (["-c", IMPORTS], SOURCE), "caption": (captioned, SOURCE)}
        variants |= {"help": ([*started, "--help"], SOURCE), "nothing": (["-c", "pass"], SOURCE)}
        if before is not None:
            variants["caption, before"] = (captioned, before)
        for arguments, source in variants.values():
            seconds_of(arguments, source)  # files into memory, modules into bytecode
        seconds: dict[str, list[float]] = {name: [] for name in variants}
        for _ in range(repeats):
            for name, (arguments, source) in variants.items():
                seconds[name].append(seconds_of(arguments, source))
    rows = [ratio_row("start: caption", BASELINE, seconds["imports"], seconds["caption"])]
    rows[0] |= share_of("these imports", rows[0]["ratio"])
    helped = min(seconds["help"])
    limit = share_of("Python with nothing to do", min(seconds["nothing"]) / helped)
    rows.append(row("start: --help", f"{HELP_SECONDS} s", ratio=round(HELP_SECONDS / helped, 3), target=1.0, **limit))
    if before is not None:
        rows.append(ratio_row("start: caption, before", "before", seconds["caption, before"], seconds["caption"]))
    return {"seconds": {name: round(min(found), 2) for name, found in seconds.items()}, "rows": rows}


def ratio_row(name: str, baseline: str, theirs: list[float], ours: list[float]) -> dict[str, Any]:
    pairs = [base / own for base, own in zip(theirs, ours, strict=True)]
    ratio, low, high = (round(found, 3) for found in (min(theirs) / min(ours), min(pairs), max(pairs)))
    return row(name, baseline, ratio=ratio, low=low, high=high)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round instead of five")
    parser.add_argument("--before", type=Path, help="the src folder of another checkout")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = run_benchmark(options.before, 1 if options.quick else 5)
    if options.json:
        print(json.dumps(result))
        return
    print("  ".join(f"{name}: {seconds} s" for name, seconds in result["seconds"].items()))
    for found in result["rows"]:
        spread = f" ({found['low']} to {found['high']})" if "low" in found else ""
        print(f"{found['name']:28}{found['ratio']}{spread} against {found['baseline']}")


if __name__ == "__main__":
    main()
