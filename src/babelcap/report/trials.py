"""Trials: runs with one thing changed, against the runs of the grid that they were changed from.

A trial is named NAME=VALUE in its records; which value the grid's own runs have of it is in report.baselines of the
study's configuration. Fine-tuned trials are compared with the runs that they started from.
"""

from collections.abc import Sequence
from typing import NamedTuple

from babelcap.laws.runs import MAIN
from babelcap.measures import Variant
from babelcap.records import RunRecord
from babelcap.report.study_folder import TRIAL, Cell, CellKey, Study, loss, share
from babelcap.report.tables import Table, Value

NOT_TUNED = "0"  # in the place of a number of pictures: the run before fine-tuning
SHOWN: tuple[tuple[str, Variant], ...] = (
    ("language", "plain"), ("language", "prefix"), ("objects", "plain"), ("objects", "prefix"), ("colours", "prefix"),
)  # fmt: skip
NAMES = {
    "match": "what translations say, true of the picture",
    "caption_shaped": "translations shaped like captions",
    "hidden_words": "hidden words of the source",
    "prefix_given": "seen captions that follow a prefix",
    "caption_languages": "languages captioned in training",
    "tuning_pictures": "pictures to fine-tune on",
    "rate": "learning rate",
}


class Tried(NamedTuple):
    """The seeds of one value of a trial."""

    value: str
    cell: Cell
    is_baseline: bool


class Trial(NamedTuple):
    """One thing tried with one size and budget, its values in order."""

    name: str
    size: str
    samples: int
    tried: tuple[Tried, ...]

    @property
    def title(self) -> str:
        return NAMES.get(self.name, self.name.replace("_", " "))


def find_trials(study: Study) -> list[Trial]:
    groups: dict[tuple[str, str, str, int], dict[str, list[RunRecord]]] = {}
    by_name = {record.run: record for record in study.records}
    for record in study.records:
        if record.kind == TRIAL and "=" in record.trial:
            name, _, value = record.trial.partition("=")
            key = (name, record.size, record.base, record.S)
            groups.setdefault(key, {}).setdefault(value, []).append(record)
    found = []
    for (name, size, base, samples), values in sorted(groups.items()):
        tried = [Tried(value, _cell(records), False) for value, records in values.items()]
        started = {record.started_from for records in values.values() for record in records if record.started_from}
        if started:
            before = [by_name[run] for run in started if run in by_name]
            tried += [Tried(NOT_TUNED, _cell(before), True)] if before else []
        else:
            tried += _baseline(study, name, CellKey(MAIN, size, base, samples))
        found.append(Trial(name, size, samples, tuple(sorted(tried, key=_order))))
    return found


def _order(tried: Tried) -> tuple[float, str]:
    try:
        return float(tried.value), tried.value
    except ValueError:
        return float("inf"), tried.value


def _cell(records: Sequence[RunRecord]) -> Cell:
    ordered = tuple(sorted(records, key=lambda record: record.seed))
    first = ordered[0]
    return Cell(CellKey(first.kind, first.size, first.base, first.S), ordered)


def _baseline(study: Study, name: str, key: CellKey) -> list[Tried]:
    settings = study.config.get("report")
    named = settings.get("baselines") if isinstance(settings, dict) else None
    value = named.get(name) if isinstance(named, dict) else None
    cell = next((cell for cell in study.cells(MAIN) if cell.key == key), None)
    return [] if cell is None or not isinstance(value, str) else [Tried(value, cell, True)]


def trials_table(study: Study) -> Table:
    """In the languages of UC, which no trial captions in."""
    rows: list[tuple[Value, ...]] = []
    for trial in find_trials(study):
        for value, cell, is_baseline in trial.tried:
            shares = [share(cell, name, variant, "UC") for name, variant in SHOWN]
            losses = [loss(cell, study.readings[target], target) for target in ("UC", "ST", "SC")]
            note = "as in the grid" if is_baseline else ""
            rows.append((
                trial.title, value, trial.size, trial.samples, len(cell.records), *shares, *losses, note,
            ))  # fmt: skip
    columns = (
        "tried", "value", "size", "S", "seeds", "right language, prompt alone", "right language, prefix",
        "objects, prompt alone", "objects, prefix", "colours, prefix", "UC", "ST", "SC", "note",
    )  # fmt: skip
    return Table("trials", columns, tuple(rows))
