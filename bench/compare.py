"""What got worse between two runs: `python bench/compare.py BEFORE.json AFTER.json`; then exit code 1.

A ratio is worse when it is below the lowest of the other run, or, where a run has no spread, by more than a tenth. A
slope is worse when it is larger by more than a twentieth.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

ALLOWED = 0.1
ALLOWED_SLOPE = 0.05


def read_rows(path: Path) -> dict[str, dict[str, Any]]:
    return {found["name"]: found for found in json.loads(path.read_text())["rows"]}


def worse(before: dict[str, Any], after: dict[str, Any]) -> str | None:
    """One line, or None."""
    old, new = before.get("ratio"), after.get("ratio")
    if old is not None and new is not None:
        lowest = min(before.get("low") or old * (1 - ALLOWED), old)
        if new < lowest and (after.get("high") or new) < old:
            return f"{before['name']}: ratio {old} -> {new} (lowest before {lowest:.3f})"
    if before.get("slope") is not None and (after.get("slope") or 0) > before["slope"] + ALLOWED_SLOPE:
        return f"{before['name']}: slope {before['slope']} -> {after['slope']}"
    return None


def compare(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> list[str]:
    found = [f"{name}: no longer measured" for name in before if name not in after]
    lines = [worse(before[name], after[name]) for name in before if name in after]
    return found + [line for line in lines if line is not None]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    options = parser.parse_args()
    lines = compare(read_rows(options.before), read_rows(options.after))
    print("\n".join(lines) or "nothing got worse beyond the spread")
    sys.exit(1 if lines else 0)


if __name__ == "__main__":
    main()
