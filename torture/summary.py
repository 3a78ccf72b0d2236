"""What was tried and what was found: torture/RESULTS.md for people, results.json for programs.

Beside the program and committed, as `bench/RESULTS.md` is: whoever doubts a line reruns `make torture`.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from torture.fuzz import Tried


@dataclass
class Summary:
    """Rows of tables, and what was lost."""

    settings: dict[str, Any]
    kills: list[dict[str, Any]] = field(default_factory=list)
    faults: list[dict[str, Any]] = field(default_factory=list)
    flips: list[dict[str, Any]] = field(default_factory=list)
    fuzz: list[Tried] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    @property
    def num_kills(self) -> int:
        return sum(row["kills"] for row in self.kills)

    @property
    def num_flips(self) -> int:
        return sum(row["flips"] for row in self.flips)

    @property
    def num_cases(self) -> int:
        return sum(row.number for row in self.fuzz)

    def add(self, folder: Path) -> None:
        """What another run of a part has written into its folder."""
        found = json.loads((folder / "results.json").read_text(encoding="utf-8"))
        for name in ("kills", "faults", "flips", "lost"):
            getattr(self, name).extend(found[name])
        self.fuzz.extend(Tried(**row) for row in found["fuzz"])

    def write(self, folder: Path) -> None:
        values = asdict(self) | {"num_kills": self.num_kills, "num_flips": self.num_flips, "num_cases": self.num_cases}
        (folder / "results.json").write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
        (folder / "RESULTS.md").write_text(self.page(), encoding="utf-8")

    def page(self) -> str:
        told = "nothing lost" if not self.lost else f"**{len(self.lost)} lost**"
        facts = ", ".join(f"{name} {value}" for name, value in self.settings.items())
        num_faults = sum(row["number"] for row in self.faults)
        parts = [
            f"# Torture\n\nWritten by `make torture` ({facts}).\n\n"
            f"**{self.num_kills:,} kills, {self.num_flips:,} flipped "
            f"bits, {num_faults:,} faults of the machine, {self.num_cases:,} fuzz cases: {told}.**",
            "\n".join(f"- lost: {line}" for line in self.lost),
            "## Killed with SIGKILL, started again, compared byte by byte but for seconds",
            table(("command", "kills", "hit", "outcomes compared", "files of each"), self.kills),
            "## Faults of the machine",
            table(("fault", "command", "number", "ended"), self.faults),
            "## Flipped bits, one at a time",
            table(("what", "flips", "ended"), self.flips),
            "## Fuzzed readers",
            "Each input is read, or refused in one line, in at most 5 s of processor time and 1,024 MiB more memory.",
            self.fuzz_table(),
        ]
        return "\n\n".join(part for part in parts if part) + "\n"

    def fuzz_table(self) -> str:
        rows: dict[tuple[str, str], dict[str, Any]] = {}
        for found in self.fuzz:
            kind = found.reader.split(" ")[0] + "s: every kind" if found.reader.startswith("config") else found.reader
            row = rows.setdefault((kind, found.way), {"reader": kind, "way": found.way, "tried": 0, "refused": 0})
            row["tried"] += found.number
            row["refused"] += found.num_refused
            row["slowest s"] = max(row.get("slowest s", 0), round(found.slowest_seconds, 2))
            row["peak MiB"] = max(row.get("peak MiB", 0), round(found.peak_mib))
        return table(("reader", "way", "tried", "refused", "slowest s", "peak MiB"), list(rows.values()))


def table(columns: Sequence[str], rows: Sequence[dict[str, Any]]) -> str:
    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = [row.get(column, "") for column in columns]
        lines.append("| " + " | ".join(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells) + " |")
    return "\n".join(lines) if rows else "not tried in this run"
