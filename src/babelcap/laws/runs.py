"""The one reader from finished runs to the points of a law: a study's runs.jsonl, or a table (CSV, TSV, Parquet).

A law is of one kind of runs of one family, of one measure on one split; its T is that measure before training. What
was taken and what was left out is said in one line (`Table.taken`). `laws`, `study` and `report` all read through here.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from babelcap.errors import UserError
from babelcap.laws.columns import listed, read_columns
from babelcap.laws.forms import FORMS
from babelcap.laws.points import check_determined, make_points
from babelcap.measures import EVAL, LOSS, TARGETS, loss_measure
from babelcap.records import RunRecord, find_result, read_run_records

MAIN = "main"
ALL = "all"  # in the place of a kind or a family
NUMBERS = ("P", "Pt", "F", "S", "C")
NAMES = ("run", "kind", "family", "size", "base", "seed", "started_from")
LOSS_COLUMNS = ("y", "loss")  # of a table, where no target is named


@dataclass(frozen=True)
class Choice:
    """Which runs of a study a law is fitted to, and which of their measures."""

    measure: str = LOSS
    split: str | None = None  # of the corpus; None: eval, or the only one there is
    kind: str = MAIN
    family: str | None = None  # None: the one that tells most, see `main_family`
    where: Mapping[str, str] = field(default_factory=dict)  # field of the record -> its value; "field!": any other


@dataclass(frozen=True)
class Table:
    """Points as they were read: columns, the loss, and which points are seeds of one run."""

    columns: dict[str, list[Any]]
    y: list[Any]
    groups: list[str] | None = None  # None: every point is a run of its own
    name: str = ""  # of the loss: a test split, or the table's own column
    taken: str = ""  # what was taken and what was left out, in one line


def parse_map(text: str | None, option: str = "map", example: str = "P=params,S=samples,y=loss") -> dict[str, str]:
    """`P=params,S=samples,y=loss` -> our name to theirs."""
    names: dict[str, str] = {}
    for part in filter(None, (text or "").split(",")):
        ours, equals, theirs = (piece.strip() for piece in part.partition("="))
        if not (ours and equals and theirs):
            raise UserError(f"{option}: found {part!r}; write NAME=VALUE, as in {example}")
        names[ours] = theirs
    return names


@dataclass(frozen=True)
class Source:
    """What a file holds: the runs of a study, or the columns of a table."""

    path: Path
    records: tuple[RunRecord, ...] = ()
    columns: dict[str, list[Any]] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)  # our name of a column -> the table's

    def targets(self, wanted: str | None = None, every: bool = False) -> list[str]:
        """The losses that are asked for; where none is: UC (or all test splits), or the one loss of a table."""
        if wanted is not None:
            names = [name.strip() for name in wanted.split(",") if name.strip()]
            if not names:
                raise UserError("target: found none; name at least one, as UC")
            unknown = next((name for name in names if self.columns and name not in self.columns), None)
            if unknown is not None:
                raise UserError(f"target: {self.path} has no column {unknown}; found {listed(self.columns)}")
            return names
        there = set(self.columns) or {
            name for record in self.records for result in record.results for name in result.per_split
        }
        splits = [name for name in TARGETS if name in there and "y" not in self.names]
        if splits or not self.columns:
            return (splits or list(TARGETS)) if every else (splits[:1] or [TARGETS[0]])
        loss = next((name for name in (self.names.get("y"), *LOSS_COLUMNS) if name in self.columns), None)
        if loss is None:
            found = listed(self.columns)
            raise UserError(
                f"{self.path}: no column y nor loss; found {found}; name the loss with --target or --map y="
            )
        return [loss]

    def table(
        self, target: str, choice: Choice | None = None, *, group: str | None = None, with_T: bool = False
    ) -> Table:
        if self.columns:
            return _table_of_columns(self, target, group)
        found = table_of_runs(self.records, target, choice or Choice(), with_T=with_T, path=self.path)
        if group is None:
            return found
        if group not in found.columns:
            raise UserError(f"group: found {group!r}; choose one of {listed(found.columns)}")
        return Table(found.columns, found.y, [str(value) for value in found.columns[group]], target, found.taken)


def read_source(path: str | Path, names: Mapping[str, str] | None = None) -> Source:
    path, names = Path(path), names or {}
    if path.suffix in (".jsonl", ".json"):
        records = read_run_records(path)
        if not records:
            raise UserError(f"{path}: no runs; a study writes one line a finished run")
        return Source(path, tuple(records))
    columns = read_columns(path)
    for ours, theirs in names.items():
        if theirs not in columns:
            raise UserError(f"map: {ours}={theirs}, but {path} has no column {theirs}; found {listed(columns)}")
    return Source(path, (), columns, names)


def _table_of_columns(source: Source, target: str, group: str | None) -> Table:
    columns = source.columns | {ours: source.columns[theirs] for ours, theirs in source.names.items()}
    if target not in columns:
        raise UserError(f"target: {source.path} has no column {target}; found {listed(source.columns)}")
    if group is not None and group not in columns:
        raise UserError(f"group: {source.path} has no column {group}; found {listed(source.columns)}")
    suffixed = f"T_{target}"  # one T a target, where a table holds several targets
    if "T" not in columns and suffixed in columns:
        columns["T"] = columns[suffixed]
    groups = None if group is None else [str(value) for value in columns[group]]
    others = {name: values for name, values in columns.items() if name != target}
    return Table(others, columns[target], groups, target, f"{len(columns[target])} points of {target}")


def table_of_runs(
    records: Sequence[RunRecord], target: str, choice: Choice, *, with_T: bool = False, path: Path | str = "runs"
) -> Table:
    """The points of `target` in these records. `with_T`: of the runs whose measure before training is known."""
    chosen, left = _of_kind(records, choice)
    family = choice.family or main_family(chosen, choice.measure)
    left.update(f"of {record.family}" for record in chosen if family not in (record.family, ALL))
    chosen = [record for record in chosen if family in (record.family, ALL)]
    if not chosen:
        raise UserError(f"{path}: no run is left of {len(records)} ({_left_out(left)}); {_there_are(records)}")
    split = choice.split or _only_split(chosen, choice.measure, path)
    rows = [(record, _value(record, target, choice.measure, split)) for record in chosen]
    if all(after is None for _, (after, _) in rows):
        raise UserError(f"{path}: no run has {target} of {choice.measure} on {split}; {_measures_of(chosen)}")
    left.update(f"without {target}" for _, (after, _) in rows if after is None)
    rows = [(record, pair) for record, pair in rows if pair[0] is not None]
    if with_T and any(before is not None for _, (_, before) in rows):
        left.update("without T" for _, (_, before) in rows if before is None)
        rows = [(record, pair) for record, pair in rows if pair[1] is not None]
    columns: dict[str, list[Any]] = {name: [getattr(record, name) for record, _ in rows] for name in (*NUMBERS, *NAMES)}
    if all(before is not None for _, (_, before) in rows):
        columns["T"] = [before for _, (_, before) in rows]
    groups = _groups([record for record, _ in rows], records)
    num_groups = len(set(groups))
    taken = (
        f"{len(rows)} of {len(records)} runs: {choice.kind if choice.kind != ALL else 'all kinds'}, "
        f"{'family ' + listed([family]) if family != ALL else 'all families'}, {target} of {choice.measure} on {split}"
        + (f", seeds of a run kept together ({num_groups} groups)" if num_groups < len(rows) else "")
        + (f"; left out: {_left_out(left)}" if left else "")
    )
    losses = [after for _, (after, _) in rows]
    return Table(columns, losses, groups if num_groups < len(rows) else None, target, taken)


def main_family(records: Sequence[RunRecord], measure: str = LOSS) -> str:
    """The family with most points in which P, S and T vary on their own; failing T, in which P and S do; else all.

    By the loss after the prefix where the runs have it, so that every law of a study is of the same family.
    """
    families = sorted({record.family for record in records}, reverse=True)
    if len(families) < 2:
        return families[0] if families else ALL
    for known in dict.fromkeys((loss_measure("conditioned"), LOSS, measure)):
        for form in ("pst", "ps"):
            sizes = {family: _num_determined(records, family, known, form) for family in families}
            if any(sizes.values()):
                return max(families, key=lambda family: sizes[family])
    return ALL


def _num_determined(records: Sequence[RunRecord], family: str, measure: str, form: str) -> int:
    """Points of the test split with most of them, where they determine the form; else none."""
    mine = [record for record in records if record.family == family]
    most = 0
    for target in TARGETS:
        try:
            table = table_of_runs(mine, target, Choice(measure, kind=ALL, family=family), with_T=True)
            points = make_points(FORMS[form], table.columns, table.y, table.groups)
            check_determined(FORMS[form], points)
        except UserError:
            continue
        most = max(most, len(points))
    return most


def _of_kind(records: Sequence[RunRecord], choice: Choice) -> tuple[list[RunRecord], Counter[str]]:
    check_fields(choice.where)
    chosen, left = [], Counter[str]()
    for record in records:
        other = differing(record, choice.where)
        if choice.kind not in (record.kind, ALL):
            left[record.kind] += 1
        elif other is not None:
            left[f"of another {other}"] += 1
        else:
            chosen.append(record)
    return chosen, left


def check_fields(where: Mapping[str, str]) -> None:
    for name in where:
        if name.removesuffix("!") not in RunRecord.model_fields:
            raise UserError(f"where: a run has no field {name!r}; choose one of {', '.join((*NAMES, *NUMBERS))}, ...")


def differing(record: RunRecord, where: Mapping[str, str]) -> str | None:
    """The first field that is not as it has to be; "size!" -> X means any size but X."""
    for name, value in where.items():
        field_name = name.removesuffix("!")
        if (str(getattr(record, field_name)) == value) == name.endswith("!"):
            return field_name
    return None


def _value(record: RunRecord, target: str, measure: str, split: str) -> tuple[float | None, float | None]:
    """(after, before) training; None where it was not measured."""
    found = [find_result(results, measure, split) for results in (record.results, record.initial)]
    after, before = (None if result is None else result.at(target) for result in found)
    return _number(after), _number(before)


def _number(value: float | None) -> float | None:
    return None if value is None or value != value else value  # NaN: measured, of nothing


def _only_split(records: Sequence[RunRecord], measure: str, path: Path | str) -> str:
    splits = {result.split for record in records for result in record.results if result.measure == measure}
    if EVAL in splits or not splits:
        return EVAL
    if len(splits) > 1:
        raise UserError(f"split: {path} has {measure} on {listed(sorted(splits))}; choose one with --split")
    return splits.pop()


def _groups(rows: Sequence[RunRecord], records: Sequence[RunRecord]) -> list[str]:
    """The same text for runs that differ in their seed alone."""
    samples = {record.run: record.S for record in records}
    return [
        f"{record.kind} {record.family} {record.size} {record.base} {record.S} {samples.get(record.started_from, '')}"
        for record in rows
    ]


def _left_out(left: Counter[str]) -> str:
    return listed(f"{number} {what}" for what, number in left.most_common())


def _there_are(records: Sequence[RunRecord]) -> str:
    kinds, families = ({getattr(record, name) for record in records} for name in ("kind", "family"))
    return f"kinds: {listed(sorted(kinds))}; families: {listed(sorted(families))}"


def _measures_of(records: Sequence[RunRecord]) -> str:
    results = [result for record in records for result in record.results]
    targets = sorted({name for result in results for name in result.per_split})
    measures = sorted({f"{result.measure} on {result.split}" for result in results})
    return f"found targets {listed(targets)}, measures {listed(measures)} (choose with --target, --measure and --split)"
