"""How long steps take: by the rates of the steps that this study has run already, else by defaults for one core.

timing.json    steps: name, kind, size, units, seconds, cpu_seconds    sessions: when, how long, how many workers
"""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from babelcap.errors import UserError
from babelcap.records import first_problem
from babelcap.storage import read_json_object, write_json
from babelcap.study.graph import Step, ahead

TIMING = "timing.json"
# Units a second on one core, and seconds that every step of the kind takes: images, samples, captions.
DEFAULTS: Mapping[str, tuple[float, float]] = {
    "world": (200.0, 2.0),
    "corpus": (20_000.0, 1.0),
    "benchmarks": (100.0, 1.0),
    "base tower": (270.0, 30.0),
    "base florence": (300.0, 30.0),
    "base gemma": (520.0, 10.0),
    "base shipped": (1.0, 2.0),
    "prepare": (3.0, 0.0),
    "train": (235.0, 4.0),
    "finetune": (235.0, 4.0),
    "loss": (680.0, 0.5),
    "captions": (390.0, 1.0),
}
# Of single sizes: the last letters say how large.
FACTORS = {"xs": 1.5, "s": 1.28, "m": 1.0, "l": 0.53, "xl": 0.2}
WORKER_START_SECONDS = 6.0
Measured = Annotated[float, Field(ge=0, le=1e15)]  # of units or seconds, so that sums stay finite


class _Session(BaseModel):
    seconds: Measured


class _Step(_Session):
    kind: str
    size: str
    units: Measured


class _Timing(BaseModel):
    """What has to be true of the file, so that it can be read and added to."""

    steps: list[_Step] = []
    sessions: list[_Session] = []


class Estimate(NamedTuple):
    seconds: float
    measured: bool  # by this study's own steps, not by the defaults


def estimate_steps(steps: Iterable[Step], timing: Mapping[str, Any]) -> dict[str, Estimate]:
    """Hash -> seconds of one core."""
    rates = measured_rates(timing)
    return {step.hash: _estimate(step, rates) for step in steps}


def _estimate(step: Step, rates: Mapping[tuple[str, str], float]) -> Estimate:
    rate = rates.get((step.kind, step.size))
    if rate is not None:
        return Estimate(step.units / rate, True)
    default, fixed = DEFAULTS[_work(step)]
    return Estimate(fixed + step.units / (default * FACTORS.get(step.size.rpartition("-")[2], 1.0)), False)


def _work(step: Step) -> str:
    """Base models differ in what they learn: their size begins with it."""
    return f"{step.kind} {step.size.partition('-')[0]}" if step.kind == "base" else step.kind


def measured_rates(timing: Mapping[str, Any]) -> dict[tuple[str, str], float]:
    """(kind, size) -> units a second."""
    units: dict[tuple[str, str], float] = defaultdict(float)
    seconds: dict[tuple[str, str], float] = defaultdict(float)
    for entry in timing.get("steps", []):
        units[entry["kind"], entry["size"]] += entry["units"]
        seconds[entry["kind"], entry["size"]] += entry["seconds"]
    return {key: number / seconds[key] for key, number in units.items() if number > 0 and seconds[key] > 0}


def wall_seconds(steps: list[Step], estimates: Mapping[str, Estimate], num_workers: int) -> float:
    """When the last of these steps ends, if the longest chains start first. Steps that are not listed are done."""
    seconds = {step.hash: estimates[step.hash].seconds for step in steps}
    if not steps:
        return 0.0
    priority = _ahead_of(steps, seconds)
    waiting = {step.hash: {need.hash for need in step.inputs.values()} & set(seconds) for step in steps}
    by_hash = {step.hash: step for step in steps}
    running: list[tuple[float, str]] = []
    now = WORKER_START_SECONDS
    while waiting or running:
        ready = sorted((name for name, needs in waiting.items() if not needs), key=lambda name: -priority[name])
        for name in ready[: num_workers - len(running)]:
            heapq.heappush(running, (now + seconds[name], by_hash[name].hash))
            del waiting[name]
        now, ended = heapq.heappop(running)
        for needs in waiting.values():
            needs.discard(ended)
    return now


def _ahead_of(steps: list[Step], seconds: Mapping[str, float]) -> dict[str, float]:
    """`ahead`, where the inputs that are done take no time."""
    done = {need.hash: 0.0 for step in steps for need in step.inputs.values() if need.hash not in seconds}
    return ahead(steps, {**done, **seconds})


def read_timing(study: Path) -> dict[str, Any]:
    """Nothing where there is none; one clear line where it cannot be added to."""
    path = study / TIMING
    found = read_json_object(path) if path.is_file() else {}
    try:
        _Timing.model_validate(found)
    except ValidationError as error:
        raise UserError(f"{path}: {first_problem(error)}; remove it, times are then measured anew") from None
    return found


def write_timing(study: Path, finished: Iterable[Mapping[str, Any]], session: Mapping[str, Any] | None) -> None:
    """The steps of the plan that are done; a session is added to those before it."""
    fields = ("name", "kind", "size", "units", "seconds", "cpu_seconds")
    steps: list[dict[str, Any]] = [{name: entry.get(name) for name in fields} for entry in finished]
    totals: dict[str, float] = defaultdict(float)
    for step in steps:
        totals[step["kind"]] += step["seconds"]
    sessions = read_timing(study).get("sessions", []) + ([dict(session)] if session else [])
    values = {
        "steps": sorted(steps, key=lambda step: str(step["name"])),
        "core_seconds": {kind: round(number, 1) for kind, number in totals.items()},
        "wall_seconds": round(sum(entry["seconds"] for entry in sessions), 1),
        "sessions": sessions,
    }
    write_json(study / TIMING, values)
