"""A study's folder as the report reads it: runs.jsonl, and gallery.json, study.json and timing.json where they are.

A cell is what differs in the seed alone: kind, size, base and number of samples.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from babelcap.coverage import Coverage
from babelcap.errors import UserError
from babelcap.records import EvalResult, RunRecord, read_run_records
from babelcap.report.statistics import Estimate, share_over_seeds
from babelcap.storage import read_json

MAIN, FINETUNED = "main", "finetuned"
CONTROLS = ("no-translation", "unfit-translation")
KIND_NAMES = {
    MAIN: "translations that fit their image",
    "no-translation": "no translations at all",
    "unfit-translation": "translations of other images",
    FINETUNED: "fine-tuned on full coverage",
}
RUNS, GALLERY, STUDY, TIMING = "runs.jsonl", "gallery.json", "study.json", "timing.json"
UNSEEN = "unseen"
EVAL, HOLDOUT = "eval", "holdout"


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
    config: dict[str, Any] = field(default_factory=dict)
    config_hash: str = ""
    pictures: tuple[dict[str, Any], ...] = ()
    timing: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return str(self.config.get("name") or next((record.study for record in self.records if record.study), "study"))

    @property
    def caption_languages(self) -> list[str]:
        """Codes, those that training captions in first."""
        unseen = self.unseen_languages
        return [code for code in self.coverage.caption_languages() if code not in unseen] + unseen

    @property
    def unseen_languages(self) -> list[str]:
        return list(self.coverage.caption_languages(seen=False))

    def cells(self, *kinds: str) -> list[Cell]:
        """By kind, parameters, base and samples."""
        found: dict[CellKey, list[RunRecord]] = {}
        for record in self.records:
            if not kinds or kind_of(record) in kinds:
                key = CellKey(kind_of(record), record.size, record.base, record.S)
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
        """The largest model at its largest budget; of several bases the one with most seeds, then the lowest T."""
        cells = self.cells(MAIN)
        if not cells:
            return None
        with_captions = [cell for cell in cells if any(has_captions(record) for record in cell.records)] or cells
        return max(
            with_captions,
            key=lambda cell: (cell.records[0].P, cell.key.S, len(cell.records), -_mean_before(cell), cell.key.base),
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
        sources = {(r.size, r.base, r.seed, r.num_steps): r for r in self.records if kind_of(r) == MAIN}
        pairs = []
        for cell in self.cells(FINETUNED):
            found = []
            for tuned in cell.records:
                steps = source_steps(tuned)
                budgets = [key[3] for key in sources if key[:3] == (tuned.size, tuned.base, tuned.seed)]
                if steps is None and budgets:
                    steps = max(budgets)
                source = sources.get((tuned.size, tuned.base, tuned.seed, steps or 0))
                if source is not None:
                    found.append((tuned, source))
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
    settings = _optional(folder / STUDY)
    config = settings.get("config", {})
    coverage = Coverage()
    if "coverage" in config.get("world", {}):
        try:
            coverage = Coverage.model_validate(config["world"]["coverage"])
        except ValidationError as error:
            raise UserError(f"{folder / STUDY}: config.world.coverage: {error.errors()[0]['msg']}") from None
    return Study(
        tuple(sorted(records, key=lambda record: record.run)),
        coverage,
        config,
        str(settings.get("hash", "")),
        tuple(_optional(folder / GALLERY).get("pictures", [])),
        _optional(folder / TIMING),
    )


def _optional(path: Path) -> dict[str, Any]:
    found = read_json(path) if path.is_file() else {}
    if not isinstance(found, dict):
        raise UserError(f"{path}: found a {type(found).__name__}, expected an object; it may be of another kind")
    return found


def kind_of(record: RunRecord) -> str:
    return str(record.extra.get("kind", MAIN))


def source_steps(tuned: RunRecord) -> int | None:
    """The steps of the run that fine-tuning started from: `...from001200...` in its name, where it is named so."""
    digits = tuned.run.partition(".from")[2].partition(".")[0]
    return int(digits) if digits.isdigit() else None


def has_captions(record: RunRecord) -> bool:
    return any(result.measure.startswith("captions/") for result in record.results)


def find(results: Sequence[EvalResult], measure: str, split: str = EVAL) -> EvalResult | None:
    return next((result for result in results if result.measure == measure and result.split == split), None)


def value(record: RunRecord, measure: str, at: str, split: str = EVAL, before: bool = False) -> float | None:
    """Of a measure after training (or before): at a test split, `unseen` or a pair. None where it was not measured."""
    found = find(record.initial if before else record.results, measure, split)
    if found is None:
        return None
    number = found.per_split.get(at, found.per_pair.get(at))
    return None if number is None or math.isnan(number) else number


def values(cell: Cell, measure: str, at: str, split: str = EVAL) -> list[float]:
    """One for each seed; empty unless all seeds have it."""
    found = [value(record, measure, at, split) for record in cell.records]
    numbers = [number for number in found if number is not None]
    return numbers if len(numbers) == len(found) else []


def num_pictures(cell: Cell, measure: str, split: str = EVAL) -> int:
    """How many pictures a caption measure rests on in one language of one seed: the fewest of all."""
    found = [find(record.results, measure, split) for record in cell.records]
    return min((min(result.num_samples.values(), default=0) for result in found if result is not None), default=0)


def share(cell: Cell, name: str, variant: str, at: str = UNSEEN, split: str = EVAL) -> Estimate | None:
    """A caption measure, as share(cell, "objects", "prefix"), over the seeds of a cell."""
    measure = f"captions/{name}/{variant}"
    return share_over_seeds(values(cell, measure, at, split), num_pictures(cell, measure, split))


def chance(cell: Cell, name: str, split: str = EVAL) -> float | None:
    """What true captions of other pictures reach."""
    found = values(cell, f"captions/{name}/chance", UNSEEN, split)
    return math.fsum(found) / len(found) if found else None


def _mean_before(cell: Cell) -> float:
    found = [record.T["UC"] for record in cell.records if "UC" in record.T]
    return sum(found) / len(found) if found else math.inf
