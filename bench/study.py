"""What a study costs beside its work: processor time of a small study against that of its steps.

The steps measure their own processor time (done.json); the rest is starting workers, importing, waiting, the report.
Run again there is nothing to do; the limit of that is what Python itself says its imports take.

python bench/study.py [--quick] [--json]
"""

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from measure import row, share_of

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "tests"))
from tiny_study import tiny_values  # noqa: E402


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def measure(budgets: list[int]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        study = Path(name) / "study"
        grid = [{"sizes": ["micro-gemma-s"], "budgets": budgets, "seeds": [0]}]
        config = Path(name) / "study.json"
        config.write_text(json.dumps(tiny_values(study, grid=grid, finetune=[])))
        before = processor_seconds()
        command = [sys.executable, "-m", "babelcap", "study", "run", str(config)]
        subprocess.run(command, check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})
        whole = processor_seconds() - before
        before = processor_seconds()
        subprocess.run(command, check=True, capture_output=True)
        again = processor_seconds() - before
        timed = [command[0], "-X", "importtime", *command[1:]]
        told = subprocess.run(timed, check=True, capture_output=True, text=True).stderr
        imports = sum(int(microseconds) for microseconds in re.findall(r"^import time: +(\d+) \|", told, re.M)) / 1e6
        steps = sum(json.loads(path.read_text())["cpu_seconds"] for path in study.rglob("done.json"))
    share = round(steps / whole, 3)
    return {
        "whole_seconds": whole,
        "steps_seconds": steps,
        "nothing_to_do_seconds": again,
        "import_seconds": imports,
        "share": share,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer steps of training")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    found = measure([2, 4] if options.quick else [20, 40, 80])
    found["rows"] = [
        row(
            "study: whole",
            "its steps alone, processor time",
            ratio=found["share"],
            **share_of("the steps alone", found["share"]),
        ),
        row(
            "study: run again, nothing to do",
            "the whole study, processor time",
            ratio=round(found["whole_seconds"] / found["nothing_to_do_seconds"], 2),
            **share_of("its imports", found["import_seconds"] / found["nothing_to_do_seconds"]),
        ),
    ]
    if options.json:
        print(json.dumps(found))
        return
    print(f"processor time: study {found['whole_seconds']:.1f} s, its steps {found['steps_seconds']:.1f} s")
    print(f"run again with nothing to do: {found['nothing_to_do_seconds']:.1f} s")


if __name__ == "__main__":
    main()
