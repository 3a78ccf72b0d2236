"""A study as a graph: a step is named by a hash of what it computes (settings and the hashes of its inputs).

    <study>/<room>/<slug>-<hash>/done.json     the step is done; without it, it is not

So a changed setting gives new names to the steps it affects and to what stands on them, and to no others.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from babelcap.storage import read_json_object

DONE = "done.json"
# Where each kind of step lies, and the version of what it does: raising it makes such steps run again.
ROOMS: Mapping[str, tuple[str, int]] = {
    "world": ("world", 1),
    "corpus": ("corpora", 1),
    "base": ("bases", 1),
    "prepare": ("models", 1),
    "train": ("runs", 1),
    "finetune": ("runs", 1),
    "loss": ("evaluations", 1),
    "captions": ("evaluations", 1),
}


@dataclass(frozen=True)
class Step:
    """`settings` are hashed; `resources` say how it is computed and are not. `units` is its work, for estimates."""

    kind: str
    slug: str  # readable, unique within the study together with the hash
    settings: dict[str, Any]
    inputs: dict[str, "Step"] = field(default_factory=dict)  # role -> step
    resources: dict[str, Any] = field(default_factory=dict)
    units: float = 1.0
    size: str = ""  # of the model, for estimates
    path: str = ""  # of the step's folder, where something else named it by what it computes
    at: str = ""  # where what it gives lies, if it was there before: a user's corpus or model

    @cached_property
    def hash(self) -> str:
        parts = {
            "kind": self.kind,
            "version": ROOMS[self.kind][1],
            "settings": self.settings,
            "inputs": {role: step.hash for role, step in self.inputs.items()},
        }
        canonical = json.dumps(parts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    @property
    def name(self) -> str:
        return f"{self.kind} {self.slug}"

    @property
    def folder(self) -> Path:
        """Relative to the study's folder."""
        return Path(self.path) if self.path else Path(ROOMS[self.kind][0]) / f"{self.slug}-{self.hash[:8]}"

    def place(self, study: Path) -> Path:
        """Where steps that need this one find what it gives."""
        return Path(self.at) if self.at else study / self.folder

    def done(self, study: Path) -> dict[str, Any] | None:
        """What the finished step left, or None."""
        marker = study / self.folder / DONE
        if not marker.is_file():
            return None
        values = read_json_object(marker)
        return values if values.get("hash") == self.hash else None

    def job(self, study: Path) -> dict[str, Any]:
        """All that a worker process needs, as plain values."""
        return {
            "kind": self.kind,
            "name": self.name,
            "hash": self.hash,
            "at": self.at,
            "study": str(study),
            "folder": str(study / self.folder),
            "settings": self.settings,
            "resources": self.resources,
            "inputs": {role: str(step.place(study)) for role, step in self.inputs.items()},
            "units": self.units,
            "size": self.size,
        }


def all_steps(ends: Iterable[Step]) -> list[Step]:
    """Every step that these stand on, and these, once each, inputs before what needs them."""
    found: dict[str, Step] = {}

    def visit(step: Step) -> None:
        if step.hash not in found:
            for needed in step.inputs.values():
                visit(needed)
            found[step.hash] = step

    for step in ends:
        visit(step)
    return list(found.values())


def ahead(steps: Iterable[Step], seconds: Mapping[str, float]) -> dict[str, float]:
    """Hash -> seconds of the longest chain that starts with the step: what should start first."""
    steps = list(steps)
    longest = {step.hash: seconds[step.hash] for step in steps}
    for step in reversed(steps):  # inputs come before, so users were seen already
        for needed in step.inputs.values():
            own = seconds[needed.hash]
            longest[needed.hash] = max(longest.get(needed.hash, own), own + longest[step.hash])
    return longest
