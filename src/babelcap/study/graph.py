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

from babelcap.errors import UserError
from babelcap.storage import file_sha256, read_json_object, sealed, unsealed, write_json

DONE = "done.json"
RESULTS, CAPTIONS = "results.json", "captions.jsonl"  # of a step that measures
# Where each kind of step lies, and the version of what it does: raising it makes such steps run again.
ROOMS: Mapping[str, tuple[str, int]] = {
    "world": ("world", 1),
    "corpus": ("corpora", 1),
    "benchmarks": ("benchmarks", 1),
    "base": ("bases", 1),
    "prepare": ("models", 1),
    "train": ("runs", 1),
    "finetune": ("runs", 1),
    "loss": ("evaluations", 1),
    "captions": ("evaluations", 2),  # things are matched one to one
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
        return read_done(study / self.folder, self.hash)

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


def write_done(folder: Path, values: Mapping[str, Any]) -> None:
    """Marks a step as done, with checksums of the results that it left."""
    files = {name: file_sha256(folder / name) for name in (RESULTS, CAPTIONS) if (folder / name).is_file()}
    write_json(folder / DONE, sealed({**values, "files": files}))


def read_done(folder: Path, step_hash: str) -> dict[str, Any] | None:
    """What a step left when it was done; None where it is not, or where that or its results are damaged."""
    path = folder / DONE
    try:
        values = unsealed(read_json_object(path), path) if path.is_file() else {}
    except UserError:
        return None
    files = values.get("files", {})
    whole = all((folder / name).is_file() and file_sha256(folder / name) == files[name] for name in files)
    return values if whole and values.get("hash") == step_hash else None


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
