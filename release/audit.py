"""Known faults of the pinned versions: python release/audit.py [CONSTRAINTS].

pip-audit says "no known vulnerabilities" of what it could not look up, so its answer is counted: a pin that was
skipped, or a service that cannot be reached, is a failure here and not a pass.
"""

import json
import subprocess
import sys
from pathlib import Path

PINS = Path(__file__).parent.parent / "constraints.txt"


def verdict(answer: str, pins: list[str]) -> tuple[int, list[str]]:
    """Exit code and lines of what pip-audit answered as JSON: 0 all is well, 1 faults, 2 not all were looked up."""
    try:
        found = json.loads(answer)["dependencies"]
    except (ValueError, KeyError, TypeError):
        return 2, ["NOT AUDITED: pip-audit gave no answer; is its service within reach?"]
    faults = [
        f"{package['name']} {package['version']}: {fault['id']}, mended in {fault.get('fix_versions')}"
        for package in found
        for fault in package.get("vulns", [])
    ]
    num_asked = sum("vulns" in package for package in found)
    if num_asked < len(pins):
        lines = [f"{package['name']}: {package['skip_reason']}" for package in found if "skip_reason" in package]
        return 2, [*faults, *lines, f"NOT AUDITED: {len(pins) - num_asked} of {len(pins)} pins were not looked up"]
    return (1 if faults else 0), [*faults, f"{num_asked} pins looked up, {len(faults)} known faults"]


def main() -> int:
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else PINS
    pins = [line for line in path.read_text(encoding="utf-8").splitlines() if "==" in line]
    command = [Path(sys.executable).parent / "pip-audit", "--strict", "--no-deps", "--disable-pip"]
    options = ["--progress-spinner", "off", "--format", "json", "--requirement", path]
    done = subprocess.run([*command, *options], stdout=subprocess.PIPE, text=True, check=False)
    code, lines = verdict(done.stdout, pins)
    print(*lines, sep="\n")
    return code or done.returncode


if __name__ == "__main__":
    sys.exit(main())
