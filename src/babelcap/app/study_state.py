"""A study's folder while it runs and afterwards: which steps are done, how losses fall, and what its report says."""

import json
from collections import Counter
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from matplotlib.figure import Figure

from babelcap.app.figure_pictures import figure_png
from babelcap.errors import UserError
from babelcap.report import read_report
from babelcap.report.build import Report
from babelcap.report.drawings import Drawing, make_drawings
from babelcap.report.figures.style import CROSS_ENTROPY, drawing
from babelcap.report.study_folder import GALLERY, RUNS, STUDY
from babelcap.storage import read_json_lines, read_json_object
from babelcap.study.display import KINDS
from babelcap.study.graph import DONE

METRICS = "metrics.jsonl"
MAX_CURVES = 12
MAX_POINTS = 300


@dataclass(frozen=True)
class KindState:
    name: str
    num_done: int
    num_steps: int


@dataclass(frozen=True)
class StudyState:
    name: str
    kinds: list[KindState]
    has_runs: bool
    stamp: tuple[int, ...]  # changes when what is shown has to change

    @property
    def num_done(self) -> int:
        return sum(kind.num_done for kind in self.kinds)

    @property
    def num_steps(self) -> int:
        return sum(kind.num_steps for kind in self.kinds)


def read_state(folder: Path) -> StudyState:
    """Of a study that runs in another process: files are read as they are found."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder; start it with `babelcap study run`, or name another with --study")
    described = read_json_object(folder / STUDY) if (folder / STUDY).is_file() else {}
    steps = described.get("steps")
    steps = steps if isinstance(steps, dict) else {}
    totals: Counter[str] = Counter()
    done: Counter[str] = Counter()
    for name, place in steps.items():
        kind = str(name).partition(" ")[0]
        totals[kind] += 1
        done[kind] += (folder / str(place) / DONE).is_file()
    if (folder / RUNS).is_file() and not sum(done.values()):
        totals.clear()  # the records of a study without what it computed, as they are published
    kinds = [KindState(label, done[kind], totals[kind]) for kind, label in KINDS.items() if totals[kind]]
    stamps = [_modified(folder / name) for name in (RUNS, GALLERY, STUDY)]
    newest = max((_modified(path) for path in folder.glob(f"runs/*/*/{METRICS}")), default=0)
    return StudyState(folder.name, kinds, (folder / RUNS).is_file(), (*stamps, sum(done.values()), newest))


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def report_of(folder: Path) -> Report:
    return _report(str(folder), _modified(folder / RUNS), _modified(folder / GALLERY))


@lru_cache(maxsize=4)
def _report(folder: str, runs: int, gallery: int) -> Report:
    return read_report(folder)


def drawings_of(folder: Path) -> list[Drawing]:
    return _drawings(str(folder), _modified(folder / RUNS))


@lru_cache(maxsize=4)
def _drawings(folder: str, runs: int) -> list[Drawing]:
    report = report_of(Path(folder))
    return make_drawings(report.study, report.laws)


@lru_cache(maxsize=64)
def drawing_png(folder: str, runs: int, name: str) -> bytes | None:
    found = next((one for one in _drawings(folder, runs) if one.name == name), None)
    return None if found is None or found.figure is None else figure_png(found.figure)


def training_curves(folder: Path) -> Figure | None:
    """The loss of the trainings that were written to last, by step; None where there is nothing yet."""
    paths = sorted(folder.glob(f"runs/*/*/{METRICS}"), key=_modified)[-MAX_CURVES:]
    curves = {f"{path.parts[-3].rpartition('-')[0]} {path.parts[-2]}": _curve(path) for path in paths}
    curves = {name: points for name, points in curves.items() if len(points) > 1}
    if not curves:
        return None
    with drawing(7.2, 3.4) as figure:
        panel = figure.subplots()
        for name, points in sorted(curves.items()):
            panel.plot(*zip(*points, strict=True), linewidth=1.3, label=name)
        panel.set_xlabel("step")
        panel.set_ylabel(f"training {CROSS_ENTROPY}")
        panel.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _curve(path: Path) -> list[tuple[int, float]]:
    """Smoothed by taking the mean of neighbours, so that a line has a bounded number of points."""
    points = []
    try:
        for line in read_json_lines(path):
            value = line.value
            if isinstance(value, dict) and isinstance(value.get("step"), int):
                loss = value.get("loss")
                if isinstance(loss, int | float):
                    points.append((value["step"], float(loss)))
    except (UserError, OSError, json.JSONDecodeError):
        return []  # it is being written, or was replaced between two looks
    size = max(1, len(points) // MAX_POINTS + 1)
    groups = [points[start : start + size] for start in range(0, len(points), size)]
    return [(group[-1][0], sum(loss for _, loss in group) / len(group)) for group in groups]
