"""Points from a study's records, a CSV and a Parquet file are the same points."""

from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from babelcap.errors import UserError
from babelcap.laws import fit, parse_map, read_table
from babelcap.records import EvalResult, RunRecord, write_run_records
from laws.simulated import grid, true_law

MEASURE = "cross_entropy/sample_mean/raw"


def run(index: int, P: float, S: float, loss: float, seed: int = 0, measure: str = MEASURE) -> RunRecord:
    result = EvalResult(measure=measure, split="eval", per_pair={}, per_split={"UC": loss}, num_samples={})
    return RunRecord(
        run=f"run{index}", family="gemma", size=f"{P:g}", seed=seed, num_steps=1, batch_size=1, P=int(P), Pt=int(P / 2),
        F=100 * P, S=int(S), C=S * 100 * P * 1.5, T={"UC": 5.0 + index % 3}, results=[result],
    )  # fmt: skip


def write_runs(path: Path, num_seeds: int = 1) -> None:
    columns = grid(num_seeds)
    y = true_law("ps").predict(columns) * np.exp(0.01 * np.random.default_rng(1).standard_normal(16 * num_seeds))
    rows = zip(columns["P"], columns["S"], y, strict=True)
    write_run_records(path, [run(index, P, S, loss, index // 16) for index, (P, S, loss) in enumerate(rows)])


def test_all_kinds_of_file_give_the_same_fit(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs.jsonl")
    table = read_table(tmp_path / "runs.jsonl", "UC")
    foreign = {"params": table.columns["P"], "samples": table.columns["S"], "loss": table.y}
    pyarrow.parquet.write_table(pyarrow.table(foreign), tmp_path / "points.parquet")
    lines = [",".join(foreign), *(",".join(map(repr, row)) for row in zip(*foreign.values(), strict=True))]
    (tmp_path / "points.csv").write_text("\n".join(lines) + "\n")
    expected = fit("ps", table.columns, table.y).coefficients
    names = parse_map("P=params, S=samples, y=loss")
    for name in ("points.parquet", "points.csv"):
        found = read_table(tmp_path / name, names=names)
        assert fit("ps", found.columns, found.y).coefficients == pytest.approx(expected)


def test_records_bring_initial_loss_compute_and_seeds(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs.jsonl", num_seeds=2)
    table = read_table(tmp_path / "runs.jsonl", "UC")
    assert table.groups is not None
    assert len(set(table.groups)) == 16
    fitted = fit("pst", table.columns, table.y, groups=table.groups)
    assert fitted.to_record().num_groups == 16
    compute = fit("compute", table.columns, table.y)
    assert compute.points.columns["C"][0] == pytest.approx(150 * 428.8e6 * 512e3)


def test_compute_follows_from_its_parts() -> None:
    columns = grid() | {"F": grid()["P"] * 100, "Pt": grid()["P"] / 2}
    y = true_law("ps").predict(columns)
    assert fit("compute", columns, y).points.columns["C"] == pytest.approx(columns["S"] * columns["F"] * 1.5)


def test_runs_without_the_measure_are_counted(tmp_path: Path) -> None:
    records = [run(0, 1e9, 1e6, 2.0), run(1, 1e9, 2e6, 1.9, measure="other")]
    write_run_records(tmp_path / "runs.jsonl", records)
    table = read_table(tmp_path / "runs.jsonl", "UC")
    assert len(table.y) == 1
    assert table.notes == ["1 of 2 runs have no UC of this measure and are left out"]
    assert len(read_table(tmp_path / "runs.jsonl", "UC", measure="other").y) == 1
    with pytest.raises(UserError, match="found targets UC, measures"):
        read_table(tmp_path / "runs.jsonl", "SC")


def test_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("a,b\n1,2\n3\n")
    (tmp_path / "head.csv").write_text("a,b\n1,2\n")
    (tmp_path / "points.parquet").write_text("no")
    (tmp_path / "points.xls").write_text("no")
    for name, message in (
        ("points.csv", "row 3 has 1 values for 2"),
        ("head.csv", "no column y nor UC; found a, b"),
        ("points.parquet", "not a Parquet file"),
        ("points.xls", "give .jsonl, .csv or .parquet"),
        ("none.csv", "no such file"),
    ):
        with pytest.raises(UserError, match=message):
            read_table(tmp_path / name)
    with pytest.raises(UserError, match="no column params"):
        read_table(tmp_path / "head.csv", names={"P": "params"})
    with pytest.raises(UserError, match="OURS=THEIRS"):
        parse_map("P")
    with pytest.raises(UserError, match="has no column seed"):
        read_table(tmp_path / "head.csv", "a", group="seed")
