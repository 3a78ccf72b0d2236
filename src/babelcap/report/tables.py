"""The report's tables, computed from records: shown in the page with few digits, written as CSV with all of them."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from babelcap.laws import PUBLISHED, published
from babelcap.laws.runs import MAIN
from babelcap.laws.validate import HeldOut
from babelcap.measures import CHANCE, EVAL, HOLDOUT, READINGS, TARGETS, UNSEEN
from babelcap.report.statistics import Estimate
from babelcap.report.study_folder import FINETUNED, KIND_NAMES, Cell, Study, initial_loss, loss, share
from babelcap.report.study_laws import FORMS, StudyLaw, StudyLaws, exponent
from babelcap.report.verdicts import Claim

Value = str | int | float | Estimate | None
CAPTION_MEASURES = (
    "language", "objects", "colours", "relations", "directions", "counts", "sizes", "objects_with_colour",
    "hallucinated", "well_formed",
)  # fmt: skip
CAPTION_COLUMNS = ("right language", *(name.replace("_", " ") for name in CAPTION_MEASURES[1:]))
SHOWN_VARIANTS = ("plain", "shortlist", "prefix", "prefix+shortlist", CHANCE)


@dataclass(frozen=True)
class Table:
    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[Value, ...], ...]

    def to_csv(self) -> str:
        """An estimate takes three columns: the value, and the ends of its interval."""
        spread = [any(isinstance(row[place], Estimate) for row in self.rows) for place in range(len(self.columns))]
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        head: list[str] = []
        for name, is_spread in zip(self.columns, spread, strict=True):
            head += [name, f"{name} low", f"{name} high"] if is_spread else [name]
        writer.writerow(head)
        for row in self.rows:
            writer.writerow(
                [part for cell, is_spread in zip(row, spread, strict=True) for part in _parts(cell, is_spread)]
            )
        return stream.getvalue()


def _parts(cell: Value, is_spread: bool) -> list[Any]:
    if not is_spread:
        return [cell]
    return [cell.value, cell.low, cell.high] if isinstance(cell, Estimate) else [cell, None, None]


def claims_table(claims: Sequence[Claim]) -> Table:
    rows: list[tuple[Value, ...]] = []
    for claim in claims:
        for condition in claim.conditions:
            held = "not measured" if condition.holds is None else "yes" if condition.holds else "no"
            role = "deciding" if condition.is_deciding else "target"
            method = "" if condition.measured is None else condition.measured.method
            rows.append(
                (claim.title, claim.verdict, condition.what, condition.measured, condition.needs, held, role, method)
            )
    columns = ("claim", "verdict", "condition", "measured", "needs", "holds", "role", "interval")
    return Table("claims", columns, tuple(rows))


def shown_cells(study: Study) -> list[Cell]:
    """The headline, its controls and its fine-tuned runs."""
    main = study.headline()
    if main is None:
        return []
    found = [main]
    for kind in KIND_NAMES:
        pair = None if kind == MAIN else study.finetuned(main) if kind == FINETUNED else study.beside(kind, main)
        if pair is not None:
            found.append(pair[0])
    return found


def captions_table(study: Study) -> Table:
    """Means over the unseen languages."""
    rows: list[tuple[Value, ...]] = []
    for cell in shown_cells(study):
        for split in (EVAL, HOLDOUT):
            for variant in SHOWN_VARIANTS:
                if variant == CHANCE and cell.key.kind != MAIN:
                    continue  # the same for all
                found = [_measure(cell, name, variant, UNSEEN, split) for name in CAPTION_MEASURES]
                if any(part is not None for part in found):
                    kind = KIND_NAMES[cell.key.kind] if variant != CHANCE else "true captions of other pictures"
                    rows.append((kind, cell.key.size, split, variant, *found))
    columns = ("runs", "size", "pictures", "decoding", *CAPTION_COLUMNS)
    return _without_empty(Table("captions", columns, tuple(rows)))


def _without_empty(table: Table) -> Table:
    """Without the columns that no row has a value of, such as measures that came later than the study."""
    kept = [place for place in range(len(table.columns)) if any(row[place] is not None for row in table.rows)]
    if not kept:
        return table
    rows = tuple(tuple(row[place] for place in kept) for row in table.rows)
    return Table(table.name, tuple(table.columns[place] for place in kept), rows)


def _measure(cell: Cell, name: str, variant: str, at: str, split: str = EVAL) -> Value:
    found = share(cell, name, variant, at, split)
    return found.value if found is not None and variant == CHANCE else found


def languages_table(study: Study) -> Table:
    rows: list[tuple[Value, ...]] = []
    unseen = set(study.unseen_languages)
    for cell in shown_cells(study):
        for code in study.caption_languages:
            for variant in SHOWN_VARIANTS[:-1]:
                found = [_measure(cell, name, variant, f"caption-{code}") for name in CAPTION_MEASURES[:5]]
                if any(part is not None for part in found):
                    seen = "no" if code in unseen and cell.key.kind != FINETUNED else "yes"
                    rows.append((KIND_NAMES[cell.key.kind], code, seen, variant, *found))
    columns = ("runs", "language", "captioned in training", "decoding", *CAPTION_COLUMNS[:5])
    return _without_empty(Table("languages", columns, tuple(rows)))


def runs_table(study: Study) -> Table:
    rows: list[tuple[Value, ...]] = []
    for cell in study.cells():
        first = cell.records[0]
        losses = [loss(cell, study.readings[target], target) for target in TARGETS]
        raw = loss(cell, "raw", "UC")
        shares = [
            share(cell, *names) for names in (("language", "plain"), ("language", "prefix"), ("objects", "prefix"))
        ]
        seconds = sum(record.seconds for record in cell.records) / len(cell.records)
        rows.append((
            cell.key.kind, cell.key.size, cell.key.base, first.P, first.Pt, cell.key.S, len(cell.records),
            first.C, initial_loss(cell), *losses, raw, *shares, seconds,
        ))  # fmt: skip
    columns = (
        "kind", "size", "base", "P", "Pt", "S", "seeds", "C", "T (UC)", "UC", "ST", "SC", "UC raw",
        "language, plain", "language, prefix", "objects, prefix", "seconds a run",
    )  # fmt: skip
    return Table("runs", columns, tuple(rows))


def laws_table(laws: StudyLaws) -> Table:
    rows = [_law_row(law) for law in laws.laws]
    for name, forms in PUBLISHED.items():
        for form, splits in forms.items():
            for target in splits:
                law = published(name, target, form)
                rows.append((
                    f"published, {name}", "raw", target, form, None,
                    *(_published_exponent(law, column) for column in ("P", "S", "T", "C")), None, None, None, "",
                ))  # fmt: skip
    columns = (
        "family", "loss", "target", "form", "runs", "exponent of P", "exponent of S", "exponent of T", "exponent of C",
        "R²", "error, largest budget left out", "error, one size left out", "note",
    )  # fmt: skip
    return Table("laws", columns, tuple(rows))


def _law_row(law: StudyLaw) -> tuple[Value, ...]:
    start = (law.family, law.reading, law.target, law.form)
    if law.fitted is None:
        return (*start, None, None, None, None, None, None, None, None, law.refused)
    return (
        *start,
        len(law.fitted.points),
        *(exponent(law, column) for column in ("P", "S", "T", "C")),
        law.fitted.r2,
        _relative(law.largest_budget),
        _relative(law.one_model),
        "; ".join(law.fitted.warnings),
    )


def _relative(held: HeldOut | None) -> float | None:
    return None if held is None else held.relative


def _published_exponent(law: Any, column: str) -> Estimate | None:
    for name, coefficient, _ in law.form.terms[0].powers:
        if name == column:
            low, high = law.intervals[coefficient]
            return Estimate(law.coefficients[coefficient], low, high, method="as printed")
    return None


def timing_table(study: Study) -> Table:
    """Seconds of one core, by kind of step."""
    timing = study.timing
    rows: list[tuple[Value, ...]] = [
        (kind, sum(step.kind == kind for step in timing.steps), total) for kind, total in timing.core_seconds.items()
    ]
    return Table("timing", ("step", "how many", "seconds of one core"), tuple(rows))


def laws_shown(table: Table, laws: StudyLaws) -> Table:
    """For the page: the judged family, and what was published."""
    kept = [row for row in table.rows if row[0] == laws.family or str(row[0]).startswith("published")]
    order = {name: place for place, name in enumerate(FORMS)}
    kept.sort(
        key=lambda row: (
            str(row[0]).startswith("published"),
            [str(name) for name in READINGS].index(str(row[1])),
            order[str(row[3])],
        )
    )
    return Table(table.name, table.columns, tuple(kept))
