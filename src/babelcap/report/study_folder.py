"""A study's folder as the report reads it: runs.jsonl, and gallery.json, study.json and timing.json where they are.

A cell is what differs in the seed alone: kind, size, base and number of samples.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, TypeVar

from pydantic import BaseModel, FiniteFloat, JsonValue, ValidationError

from babelcap.coverage import Coverage
from babelcap.errors import UserError
from babelcap.laws.ahead import Prediction, read_prediction
from babelcap.laws.runs import MAIN
from babelcap.measures import CAPTION_PREFIX, CHANCE, EVAL, TARGETS, UNSEEN, Reading, caption_measure, loss_measure
from babelcap.records import RunRecord, find_result, first_problem, initial_losses, read_run_records
from babelcap.report.gallery_file import GalleryFile, ShownPicture
from babelcap.report.judging import check_judging
from babelcap.report.statistics import Estimate, loss_over_seeds, share_over_seeds
from babelcap.storage import read_text

FINETUNED, TRIAL = "finetuned", "trial"
SEEDS_TARGET = 3  # that a claim rests on
CONTROLS = ("no-translation", "unfit-translation")
KIND_NAMES = {
    MAIN: "translations that fit their image",
    "no-translation": "no translations at all",
    "unfit-translation": "translations of other images",
    FINETUNED: "fine-tuned on full coverage",
}
RUNS, GALLERY, STUDY, TIMING = "runs.jsonl", "gallery.json", "study.json", "timing.json"
PREDICTION, PREDICTIONS = "prediction.json", "predictions"
WORLD = "world"  # where the pictures come from, as study.json names it; or a corpus
File = TypeVar("File", bound=BaseModel)


class StudyFile(BaseModel):
    """study.json."""

    config: dict[str, JsonValue] = {}
    hash: str = ""


class TimedStep(BaseModel):
    kind: str = ""


class Sitting(BaseModel):
    workers: int = 1


class TimingFile(BaseModel):
    """timing.json: how long a study took."""

    steps: list[TimedStep] = []
    core_seconds: dict[str, FiniteFloat] = {}
    wall_seconds: FiniteFloat | None = None
    sessions: list[Sitting] = []


class CellKey(NamedTuple):
    kind: str
    size: str
    base: str
    S: int


@dataclass(frozen=True)
class Cell:
    """The seeds of one run, in order."""

    key: CellKey
    records: tuple[RunRecord, ...]

    @property
    def seeds(self) -> list[int]:
        return [record.seed for record in self.records]

    def only(self, seeds: Iterable[int]) -> "Cell":
        wanted = set(seeds)
        return Cell(self.key, tuple(record for record in self.records if record.seed in wanted))


@dataclass(frozen=True)
class Study:
    records: tuple[RunRecord, ...]
    coverage: Coverage = field(default_factory=Coverage)
    config: dict[str, JsonValue] = field(default_factory=dict)
    config_hash: str = ""
    pictures: tuple[ShownPicture, ...] = ()
    prediction: Prediction | None = None
    timing: TimingFile = field(default_factory=TimingFile)

    @property
    def name(self) -> str:
        return str(self.config.get("name") or next((record.study for record in self.records if record.study), "study"))

    @cached_property
    def given(self) -> Reading:
        """The loss of a caption whose language is settled: after the prefix; earlier studies measured another one."""
        measure = loss_measure("prefix_given")
        there = any(find_result(record.results, measure) for record in self.records)
        return "prefix_given" if there else "conditioned"

    @property
    def readings(self) -> dict[str, Reading]:
        """The loss that a test split is judged by. A translation has no prefix, and a seen caption needs none."""
        others: Reading = "raw" if self.given == "prefix_given" else self.given
        return {target: self.given if target == "UC" else others for target in TARGETS}

    @property
    def caption_languages(self) -> list[str]:
        """Codes, those that training captions in first."""
        unseen = self.unseen_languages
        return [code for code in self.coverage.caption_languages() if code not in unseen] + unseen

    @property
    def unseen_languages(self) -> list[str]:
        return list(self.coverage.caption_languages(seen=False))

    def language_name(self, code: str) -> str:
        return self.coverage.language(code).name.removeprefix("simplified ")

    def cells(self, *kinds: str) -> list[Cell]:
        """By kind, parameters, base and samples; trials, which differ in other things, are in `trials`."""
        found: dict[CellKey, list[RunRecord]] = {}
        for record in self.records:
            if record.kind in kinds or (not kinds and record.kind != TRIAL):
                key = CellKey(record.kind, record.size, record.base, record.S)
                found.setdefault(key, []).append(record)
        order = list(KIND_NAMES)
        cells = [Cell(key, tuple(sorted(group, key=lambda record: record.seed))) for key, group in found.items()]
        return sorted(
            cells,
            key=lambda cell: (
                order.index(cell.key.kind) if cell.key.kind in order else len(order),
                cell.records[0].P,
                cell.key,
            ),
        )

    def headline(self) -> Cell | None:
        """The largest model at its largest budget that was run with enough seeds, or with most, where none has enough.

        What has controls to be held against goes before a larger model without. Of several bases the one with most
        seeds, then the lowest T.
        """
        cells = self.cells(MAIN)
        if not cells:
            return None
        with_captions = [cell for cell in cells if any(has_captions(record) for record in cell.records)] or cells
        controlled = {cell.key[1:] for cell in self.cells(*CONTROLS)}
        return max(
            with_captions,
            key=lambda cell: (
                min(len(cell.records), SEEDS_TARGET),
                cell.key[1:] in controlled,
                cell.records[0].P,
                cell.key.S,
                len(cell.records),
                -_lowest(cell),
                cell.key.base,
            ),
        )

    def beside(self, kind: str, main: Cell) -> tuple[Cell, Cell] | None:
        """A control and the main cell of the same size, base and samples, both with the seeds that both have.

        The control of `main` where there is one, else that of the largest model and budget.
        """
        mains = {cell.key: cell for cell in self.cells(MAIN)}
        pairs = []
        for control in self.cells(kind):
            twin = mains.get(CellKey(MAIN, *control.key[1:]))
            if twin is not None and (seeds := set(control.seeds) & set(twin.seeds)):
                pairs.append((control.only(seeds), twin.only(seeds)))
        if not pairs:
            return None
        return max(pairs, key=lambda pair: (pair[1].key == main.key, pair[0].records[0].P, pair[0].key.S))

    def finetuned(self, main: Cell) -> tuple[Cell, Cell] | None:
        """Fine-tuned runs and the runs they started from, seed by seed: of the largest model that was fine-tuned."""
        by_name = {record.run: record for record in self.records}
        pairs = []
        for cell in self.cells(FINETUNED):
            found = [(tuned, by_name[tuned.started_from]) for tuned in cell.records if tuned.started_from in by_name]
            if found:
                key = CellKey(MAIN, cell.key.size, cell.key.base, found[0][1].S)
                pairs.append((Cell(cell.key, tuple(a for a, _ in found)), Cell(key, tuple(b for _, b in found))))
        if not pairs:
            return None
        return max(pairs, key=lambda pair: (pair[1].key == main.key, pair[0].records[0].P, pair[0].key.S))


def read_study(folder: Path) -> Study:
    if not (folder / RUNS).is_file():
        raise UserError(f"{folder} has no {RUNS}; name a study's folder, as babelcap study run leaves it")
    records = read_run_records(folder / RUNS)
    if not records:
        raise UserError(f"{folder / RUNS}: no runs; a study writes one line a finished run")
    check_judging(records, folder / RUNS)
    settings = _read(folder / STUDY, StudyFile)
    return Study(
        tuple(sorted(records, key=lambda record: record.run)),
        _coverage(settings.config, folder / STUDY),
        settings.config,
        settings.hash,
        tuple(_read(folder / GALLERY, GalleryFile).pictures),
        _prediction(folder),
        _read(folder / TIMING, TimingFile),
    )


def _read(path: Path, kind: type[File]) -> File:
    """A file of the study's folder; as if empty where there is none."""
    if not path.is_file():
        return kind()
    try:
        return kind.model_validate_json(read_text(path))
    except ValidationError as error:
        raise UserError(f"{path}: {first_problem(error)}; it may be damaged, build it again with the study") from None


def _prediction(folder: Path) -> Prediction | None:
    """Made before the last runs: the first, where there are several."""
    found = [path for path in (folder / PREDICTION, *sorted((folder / PREDICTIONS).glob("*.json"))) if path.is_file()]
    return min(map(read_prediction, found), key=lambda prediction: prediction.time, default=None)


def _coverage(config: dict[str, JsonValue], path: Path) -> Coverage:
    source = config.get("source", WORLD)
    pictures = config.get(source) if isinstance(source, str) else None
    found = pictures.get("coverage") if isinstance(pictures, dict) else None
    if found is None:
        return Coverage()
    try:
        return Coverage.model_validate(found)
    except ValidationError as error:
        raise UserError(f"{path}: config.{source}.coverage: {first_problem(error)}") from None


def has_captions(record: RunRecord) -> bool:
    return any(result.measure.startswith(CAPTION_PREFIX) for result in record.results)


def value(record: RunRecord, measure: str, at: str, split: str = EVAL) -> float | None:
    """Of a measure after training: at a test split, `unseen` or a pair. None where it was not measured; NaN where it
    was measured of nothing, such as the share of colours that are right where none was named.
    """
    found = find_result(record.results, measure, split)
    return None if found is None else found.at(at)


def values(cell: Cell, measure: str, at: str, split: str = EVAL) -> list[float]:
    """One for each seed; empty unless all seeds have it."""
    found = [value(record, measure, at, split) for record in cell.records]
    numbers = [number for number in found if number is not None]
    return numbers if len(numbers) == len(found) else []


def num_pictures(cell: Cell, measure: str, split: str = EVAL) -> int:
    """How many pictures a caption measure rests on in one language of one seed: the fewest of all."""
    found = [find_result(record.results, measure, split) for record in cell.records]
    return min((min(result.num_samples.values(), default=0) for result in found if result is not None), default=0)


def share(cell: Cell, name: str, variant: str, at: str = UNSEEN, split: str = EVAL) -> Estimate | None:
    """A caption measure, as share(cell, "objects", "prefix"), over the seeds of a cell."""
    measure = caption_measure(name, variant)
    return share_over_seeds(values(cell, measure, at, split), num_pictures(cell, measure, split))


def loss(cell: Cell, reading: Reading, at: str) -> Estimate | None:
    """A loss over the seeds of a cell; the samples it was measured on are the same for all of them."""
    measure = loss_measure(reading)
    results = [find_result(record.results, measure) for record in cell.records]
    errors = [found.sampling_errors[at] for found in results if found is not None and at in found.sampling_errors]
    return loss_over_seeds(values(cell, measure, at), max(errors, default=None))


def chance(cell: Cell, name: str, split: str = EVAL) -> float | None:
    """What true captions of other pictures reach; of relations, what a blind guess between opposites does."""
    found = [number for number in values(cell, caption_measure(name, CHANCE), UNSEEN, split) if not math.isnan(number)]
    return math.fsum(found) / len(found) if found else None


def initial_loss(cell: Cell) -> float | None:
    """The paper's T of unseen captioning, mean over seeds."""
    losses = [initial_losses(record.initial) for record in cell.records]
    found = [by_split["UC"] for by_split in losses if "UC" in by_split]
    return sum(found) / len(found) if found else None


def _lowest(cell: Cell) -> float:
    found = initial_loss(cell)
    return math.inf if found is None or math.isnan(found) else found
