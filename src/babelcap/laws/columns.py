"""The columns of a table of points: CSV, TSV or Parquet, as anyone may have written them."""

import csv
import io
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from babelcap.errors import UserError
from babelcap.storage import parquet_errors, read_text

MAX_LISTED = 20
MAX_VALUES = 10_000_000  # of a Parquet file, all columns together


def listed(names: Iterable[str]) -> str:
    """Names for an error, in one line of bounded length whatever a file has for names."""
    short = [" ".join(name.split())[:60] or repr(name) for name in names]
    more = f" and {len(short) - MAX_LISTED} more" if len(short) > MAX_LISTED else ""
    return (", ".join(short[:MAX_LISTED]) or "none") + more


def read_columns(path: Path) -> dict[str, list[Any]]:
    """Name -> values, numbers where they are numbers; no name twice."""
    if not path.is_file():
        raise UserError(f"{path}: no such file; give a study's runs.jsonl, a CSV or a Parquet file")
    if path.suffix == ".parquet":
        names, columns = _read_parquet(path)
    elif path.suffix in (".csv", ".tsv", ".txt"):
        names, columns = _read_csv(path)
    else:
        raise UserError(f"{path}: found the ending {path.suffix!r}; give .jsonl, .csv, .tsv or .parquet")
    twice = next((name for name, number in Counter(names).items() if number > 1), None)
    if twice is not None:
        raise UserError(f"{path}: two columns are called {listed([twice])!r}; give each a name of its own")
    if not columns or not columns[0]:
        raise UserError(f"{path}: no points; a table has a line of column names and then a line a point")
    return dict(zip(names, columns, strict=True))


def _read_csv(path: Path) -> tuple[list[str], list[list[Any]]]:
    reader = csv.reader(io.StringIO(read_text(path), newline=""), delimiter="\t" if path.suffix == ".tsv" else ",")
    rows: list[list[str]] = []
    try:
        for row in reader:
            if row and rows and len(row) != len(rows[0]):
                raise UserError(f"{path}: row {reader.line_num} has {len(row)} values for {len(rows[0])} columns")
            if row:
                rows.append(row)
    except csv.Error as error:  # such as a field of more than 131,072 characters
        raise UserError(f"{path}: line {reader.line_num}: {error}; it may be damaged or of another kind") from None
    names = [name.strip() for name in rows[0]] if rows else []
    return names, [[_value(row[place]) for row in rows[1:]] for place in range(len(names))]


def _value(text: str) -> Any:
    text = text.strip()
    try:
        return float(text) if text else float("nan")
    except ValueError:
        return text


def _read_parquet(path: Path) -> tuple[list[str], list[list[Any]]]:
    import pyarrow.parquet

    with parquet_errors(path):
        file = pyarrow.parquet.ParquetFile(path)
        if file.metadata.num_rows * file.metadata.num_columns > MAX_VALUES:  # a column of one value takes no bytes
            raise UserError(
                f"{path} has {file.metadata.num_rows:,} rows; runs of a law are fewer, is it another table?"
            )
        table = file.read()
        table.validate(full=True)
        return list(table.column_names), [column.to_pylist() for column in table.columns]
