"""Tables of points and the records of runs, damaged, and a law fitted to what is left of them."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from babelcap.laws import Choice, fit, form_of, read_source
from babelcap.measures import loss_measure
from babelcap.records import read_run_records
from torture.readers.target import RESULTS, Target

ODD_VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 2**63, 10**400, -(10**400), 1e308, -1e308, 5e-324, "NaN", "Infinity", "", "x", "\ud800", "<b>",
    [], [[]], [1, 2], {}, {"a": 1}, [[[[[]]]]],
)  # fmt: skip
ODD_BYTES = (
    b"\x00",
    b"\xff\xfe",
    b"\n",
    b'"',
    b"{",
    b"]",
    b"[" * 5000,
    b"9" * 5000,
    b"\xed\xa0\x80",
    b"nan",
    b",",
    b"-",
)


def damaged_bytes(good: bytes, rng: random.Random) -> bytes:
    way, place = rng.randrange(6), rng.randrange(len(good) + 1)
    if way == 0:
        place = min(place, len(good) - 1)
        return good[:place] + bytes([good[place] ^ (1 << rng.randrange(8))]) + good[place + 1 :]
    if way == 1:
        return good[:place]
    if way == 2:
        return good[:place] + rng.choice(ODD_BYTES) + good[place:]
    if way == 3:
        return good[:place] + rng.choice(ODD_BYTES) + good[place + rng.randrange(1, 9) :]
    if way == 4:  # a piece twice
        return good[:place] + good[max(0, place - rng.randrange(1, 200)) :]
    return good[:place] + rng.randbytes(rng.randrange(1, 40)) + good[place + rng.randrange(40) :]


def damaged_value(value: Any, rng: random.Random) -> Any:
    """The same JSON with one value somewhere of another type, gone, or there under another name."""
    if isinstance(value, dict) and value and rng.random() < 0.93:
        key = rng.choice(sorted(value))
        if rng.random() < 0.1:
            return {name: part for name, part in value.items() if name != key} | (
                {key + rng.choice(("", "x")): rng.choice(ODD_VALUES)} if rng.random() < 0.5 else {}
            )
        return value | {key: damaged_value(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.93:
        place = rng.randrange(len(value))
        return [*value[:place], damaged_value(value[place], rng), *value[place + 1 :]]
    return rng.choice(ODD_VALUES)


def damage_bytes(path: Path, rng: random.Random) -> None:
    path.write_bytes(damaged_bytes(path.read_bytes(), rng))


def damage_json(path: Path, rng: random.Random) -> None:
    if path.suffix == ".jsonl":
        lines = path.read_text(encoding="utf-8").splitlines()
        place = rng.randrange(len(lines))
        lines[place] = json.dumps(damaged_value(json.loads(lines[place]), rng))
        path.write_text("\n".join(lines), encoding="utf-8")
    else:
        path.write_text(json.dumps(damaged_value(json.loads(path.read_text(encoding="utf-8")), rng)), encoding="utf-8")


def damage_cell(path: Path, rng: random.Random) -> None:
    """A cell of a CSV with an odd value."""
    rows = [line.split(",") for line in path.read_text(encoding="utf-8").splitlines()]
    row = rng.choice(rows)
    odd = (
        "",
        "nan",
        "inf",
        "-1",
        "0",
        "1e308",
        "1e-308",
        "1e400",
        "x",
        '"',
        '""',
        "9" * 200_000,
        "\x00",
        "1,2",
        "P",
        "1_0",
    )
    row[rng.randrange(len(row))] = rng.choice(odd)
    path.write_text("\n".join(",".join(row) for row in rows), encoding="utf-8")


def make_good(folder: Path) -> Path:
    """Good files, as small as still has everything: runs of one size fewer, one picture of the gallery."""
    records = []
    for record in read_run_records(RESULTS / "runs.jsonl"):
        if record.base == "balanced" or record.kind != "main":
            kept = [r for r in record.results if "shortlist" not in r.measure and "token_mean" not in r.measure]
            records.append(record.model_copy(update={"results": kept}))
    # As others may write them, without checksums: damage then reaches the laws.
    (folder / "runs.jsonl").write_text("".join(f"{record.model_dump_json()}\n" for record in records), encoding="utf-8")
    for name in ("study.json", "timing.json", "laws.json"):
        shutil.copy(RESULTS / name, folder / name)
    gallery = json.loads((RESULTS / "gallery.json").read_text(encoding="utf-8"))
    caption = gallery["pictures"][0]["captions"][0]
    caption |= {"right": False, "marks": [[4, 9, "object"], [0, 3, "count"]]}
    (folder / "gallery.json").write_text(json.dumps({"pictures": gallery["pictures"][:1]}), encoding="utf-8")
    table = read_source(folder / "runs.jsonl").table("UC", with_T=True)
    columns = {name: table.columns[name] for name in ("P", "S", "T", "F", "Pt", "size")} | {"loss": table.y}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "points.parquet")
    rows = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
    (folder / "points.csv").write_text("\n".join([",".join(columns), *rows]), encoding="utf-8")
    return folder


def read_and_fit(path: Path, rng: random.Random) -> None:
    source = read_source(path)
    target = rng.choice(source.targets(every=True))
    form = rng.choice(("ps", "pst", "compute", "power:P"))
    choice = Choice(rng.choice((loss_measure(), loss_measure("conditioned"))), family=rng.choice((None, "all")))
    table = source.table(target, choice, with_T="T" in form_of(form).columns)
    fitted = fit(form, table.columns, table.y, groups=table.groups, frontier_only=rng.random() < 0.3)
    fitted.to_record().model_dump_json()
    fitted.prediction_interval(dict.fromkeys(form_of(form).columns, 1000000.0))


def _points(folder: Path, name: str) -> Target:
    path, draw = make_good(folder) / name, random.Random(name)
    return Target([path], lambda out: read_and_fit(path, draw))


def points_csv(folder: Path) -> Target:
    return _points(folder, "points.csv")


def points_parquet(folder: Path) -> Target:
    return _points(folder, "points.parquet")


def points_runs(folder: Path) -> Target:
    return _points(folder, "runs.jsonl")
