"""Reads points from a study's runs.jsonl, a CSV or a Parquet file, and names foreign columns."""

import csv
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from babelcap.errors import UserError
from babelcap.records import RunRecord, read_run_records

MEASURE = "cross_entropy/sample_mean/raw"


@dataclass(frozen=True)
class Table:
    """Columns as they were read, and which are the loss and the groups."""

    columns: dict[str, list[Any]]
    y: list[Any]
    groups: list[str] | None = None
    notes: list[str] = field(default_factory=list)


def parse_map(text: str | None) -> dict[str, str]:
    """`P=params,S=samples,y=loss` -> our name to theirs."""
    names: dict[str, str] = {}
    for part in filter(None, (text or "").split(",")):
        ours, equals, theirs = (piece.strip() for piece in part.partition("="))
        if not (ours and equals and theirs):
            raise UserError(f"map: found {part!r}; write OURS=THEIRS, as in P=params,S=samples,y=loss")
        names[ours] = theirs
    return names


def read_table(
    path: str | Path,
    target: str = "UC",
    *,
    measure: str | None = None,
    split: str | None = None,
    names: dict[str, str] | None = None,
    group: str | None = None,
) -> Table:
    """The points of `target` in a file. In a CSV or Parquet file the loss is the column y, or one named as the target.

    `group` names the column whose equal values mark seeds of one run.
    """
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; give a study's runs.jsonl, a CSV or a Parquet file")
    if path.suffix in (".jsonl", ".json"):
        return _from_runs(path, target, measure, split, group)
    if path.suffix == ".parquet":
        columns = _read_parquet(path)
    elif path.suffix in (".csv", ".tsv", ".txt"):
        columns = _read_csv(path)
    else:
        raise UserError(f"{path}: found the ending {path.suffix!r}; give .jsonl, .csv or .parquet")
    return _from_columns(path, columns, target, names or {}, group)


def _read_csv(path: Path) -> dict[str, list[Any]]:
    text = path.read_text(encoding="utf-8-sig")
    delimiter = "\t" if path.suffix == ".tsv" else ","
    rows = [row for row in csv.reader(text.splitlines(), delimiter=delimiter) if row]
    if len(rows) < 2:
        raise UserError(f"{path}: no points; a CSV has a line of column names and then a line a point")
    head = [name.strip() for name in rows[0]]
    for number, row in enumerate(rows[1:], 2):
        if len(row) != len(head):
            raise UserError(f"{path}: row {number} has {len(row)} values for {len(head)} columns")
    return {name: [_value(row[index]) for row in rows[1:]] for index, name in enumerate(head)}


def _value(text: str) -> Any:
    text = text.strip()
    try:
        return float(text) if text else float("nan")
    except ValueError:
        return text


def _read_parquet(path: Path) -> dict[str, list[Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        table = pyarrow.parquet.read_table(path)
    except pyarrow.ArrowInvalid as error:
        raise UserError(f"{path} is not a Parquet file ({str(error).splitlines()[0]})") from None
    return {name: table.column(name).to_pylist() for name in table.column_names}


def _from_columns(
    path: Path, columns: dict[str, list[Any]], target: str, names: dict[str, str], group: str | None
) -> Table:
    found = ", ".join(columns)
    for ours, theirs in names.items():
        if theirs not in columns:
            raise UserError(f"map: {ours}={theirs}, but {path} has no column {theirs}; found {found}")
    renamed = {ours: columns[theirs] for ours, theirs in names.items()}
    merged = {name: values for name, values in columns.items() if name not in renamed} | renamed
    chosen = next((name for name in (["y"] if "y" in names else [target, "y", "loss"]) if name in merged), None)
    if chosen is None:
        raise UserError(f"{path}: no column y nor {target}; found {found}; name the loss with --map y=COLUMN")
    if group is not None and group not in merged:
        raise UserError(f"group: {path} has no column {group}; found {found}")
    suffixed = f"T_{target}"  # one T a target, where a table holds several targets
    if "T" not in merged and suffixed in merged:
        merged["T"] = merged[suffixed]
    groups = None if group is None else [str(value) for value in merged[group]]
    return Table({name: values for name, values in merged.items() if name != chosen}, merged[chosen], groups)


def _from_runs(path: Path, target: str, measure: str | None, split: str | None, group: str | None) -> Table:
    records = read_run_records(path)
    if not records:
        raise UserError(f"{path}: no runs; a study writes one line a finished run")
    rows: list[tuple[RunRecord, float]] = []
    without = 0
    for record in records:
        value = _loss_of(record, target, measure or MEASURE, split)
        if value is None:
            without += 1
        else:
            rows.append((record, value))
    if not rows:
        measures = sorted({f"{result.measure} on {result.split}" for record in records for result in record.results})
        targets = sorted({name for record in records for result in record.results for name in result.per_split})
        raise UserError(
            f"{path}: no run has {target} of {measure or MEASURE}; found targets {', '.join(targets) or 'none'}, "
            f"measures {', '.join(measures) or 'none'} (choose with --target and --measure)"
        )
    columns: dict[str, list[Any]] = {
        name: [getattr(record, name) for record, _ in rows]
        for name in ("P", "Pt", "F", "S", "C", "run", "size", "family", "base", "seed")
    }
    if all(target in record.T for record, _ in rows):
        columns["T"] = [record.T[target] for record, _ in rows]
    notes = [f"{without} of {len(records)} runs have no {target} of this measure and are left out"] if without else []
    groups = [str(value) for value in columns[group]] if group in columns else None
    if group is None and len({record.seed for record, _ in rows}) > 1:
        groups = [f"{record.base} {record.size} {record.P} {record.S}" for record, _ in rows]
        if len(set(groups)) == len(groups):
            groups = None  # seeds differ, but no run was repeated
        else:
            notes.append("seeds of one run are kept together")
    elif group is not None and group not in columns:
        raise UserError(f"group: found {group!r}; choose one of {', '.join(columns)}")
    return Table(columns, [value for _, value in rows], groups, notes)


def _loss_of(record: RunRecord, target: str, measure: str, split: str | None) -> float | None:
    for result in record.results:
        if result.measure == measure and target in result.per_split and split in (None, result.split):
            return result.per_split[target]
    return None
