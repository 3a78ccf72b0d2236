"""Points from a study's records, a CSV and a Parquet file are the same points."""

from pathlib import Path

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

from babelcap.errors import UserError
from babelcap.laws import Choice, fit, parse_map, read_source
from babelcap.measures import LOSS
from babelcap.records import EvalResult, RunRecord, write_run_records
from laws.simulated import grid, true_law


def run(index: int, P: float, S: float, loss: float, seed: int = 0, measure: str = LOSS, **fields: object) -> RunRecord:
    after, before = (
        EvalResult(measure=measure, split="eval", per_pair={}, per_split={"UC": value}, num_samples={})
        for value in (loss, 5.0 + index % 3)
    )
    values = {
        "run": f"run{index}", "family": "gemma", "size": f"{P:g}", "seed": seed, "num_steps": 1, "batch_size": 1,
        "P": int(P), "Pt": int(P / 2), "F": 100 * P, "S": int(S), "C": S * 100 * P * 1.5, "initial": [before],
        "results": [after],
    }  # fmt: skip
    return RunRecord(**(values | fields))


def write_runs(path: Path, num_seeds: int = 1) -> None:
    columns = grid(num_seeds)
    y = true_law("ps").predict(columns) * np.exp(0.01 * np.random.default_rng(1).standard_normal(16 * num_seeds))
    rows = zip(columns["P"], columns["S"], y, strict=True)
    write_run_records(path, [run(index, P, S, loss, index // 16) for index, (P, S, loss) in enumerate(rows)])


def test_all_kinds_of_file_give_the_same_fit(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs.jsonl")
    table = read_source(tmp_path / "runs.jsonl").table("UC")
    foreign = {"params": table.columns["P"], "samples": table.columns["S"], "loss": table.y}
    pyarrow.parquet.write_table(pyarrow.table(foreign), tmp_path / "points.parquet")
    lines = [",".join(foreign), *(",".join(map(repr, row)) for row in zip(*foreign.values(), strict=True))]
    (tmp_path / "points.csv").write_text("\n".join(lines) + "\n")
    expected = fit("ps", table.columns, table.y).coefficients
    names = parse_map("P=params, S=samples, y=loss")
    for name in ("points.parquet", "points.csv"):
        source = read_source(tmp_path / name, names)
        assert source.targets() == ["loss"]
        found = source.table("loss")
        assert fit("ps", found.columns, found.y).coefficients == pytest.approx(expected)


def test_records_bring_initial_loss_compute_and_seeds(tmp_path: Path) -> None:
    write_runs(tmp_path / "runs.jsonl", num_seeds=2)
    table = read_source(tmp_path / "runs.jsonl").table("UC")
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
    table = read_source(tmp_path / "runs.jsonl").table("UC")
    assert len(table.y) == 1
    assert table.taken == (
        "1 of 2 runs: main, family gemma, UC of cross_entropy/sample_mean/raw on eval; left out: 1 without UC"
    )
    source = read_source(tmp_path / "runs.jsonl")
    assert len(source.table("UC", Choice("other")).y) == 1
    with pytest.raises(UserError, match="found targets UC, measures"):
        source.table("SC")


def test_what_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "points.csv").write_text("a,b\n1,2\n3\n")
    (tmp_path / "head.csv").write_text("a,b\n1,2\n")
    (tmp_path / "points.parquet").write_text("no")
    (tmp_path / "points.xls").write_text("no")
    for name, message in (
        ("points.csv", "row 3 has 1 values for 2"),
        ("head.csv", "no column y nor loss; found a, b"),
        ("points.parquet", "not a readable Parquet file"),
        ("points.xls", "give .jsonl, .csv, .tsv or .parquet"),
        ("none.csv", "no such file"),
    ):
        with pytest.raises(UserError, match=message):
            read_source(tmp_path / name).targets()
    with pytest.raises(UserError, match="no column params"):
        read_source(tmp_path / "head.csv", {"P": "params"})
    with pytest.raises(UserError, match="NAME=VALUE"):
        parse_map("P")
    with pytest.raises(UserError, match="has no column seed"):
        read_source(tmp_path / "head.csv").table("a", group="seed")
    with pytest.raises(UserError, match=r"has no column accuracy; found a, b"):
        read_source(tmp_path / "head.csv").targets("accuracy")


def test_a_law_takes_the_main_runs_of_one_family_and_says_so(tmp_path: Path) -> None:
    """Controls and fine-tuned runs are no seeds of main runs, and another family is another law."""
    grid_points = [(P, S) for P in (1e6, 2e6, 4e6) for S in (1e3, 2e3, 4e3)]
    records = [run(i, P, S, 2.0 + i / 100) for i, (P, S) in enumerate(grid_points)]
    records += [run(20, 1e6, 1e3, 9.0, kind="no-translation"), run(21, 1e6, 1e3, 0.1, kind="finetuned")]
    records += [run(30 + i, 3e6, S, 5.0, family="florence", size="f") for i, S in enumerate((1e3, 2e3))]
    write_run_records(tmp_path / "runs.jsonl", records)
    source = read_source(tmp_path / "runs.jsonl")
    table = source.table("UC", with_T=True)
    assert table.y == [2.0 + i / 100 for i in range(9)]
    assert table.groups is None
    assert table.columns["T"] == [5.0 + i % 3 for i in range(9)]
    assert table.taken.startswith("9 of 13 runs: main, family gemma, UC of")
    assert table.taken.endswith("left out: 2 of florence, 1 no-translation, 1 finetuned")
    assert len(source.table("UC", Choice(family="all")).y) == 11
    assert len(source.table("UC", Choice(family="florence")).y) == 2
    assert source.table("UC", Choice(kind="finetuned")).y == [0.1]
    assert len(source.table("UC", Choice(where={"size": "2e+06", "S": "1000"})).y) == 1
    with pytest.raises(UserError, match=r"where: a run has no field 'colour'; choose one of run, kind"):
        source.table("UC", Choice(where={"colour": "red"}))
    with pytest.raises(
        UserError, match=r"no run is left of 13 \(.*\); kinds: finetuned, main, no-translation; families"
    ):
        source.table("UC", Choice(kind="unfit-translation"))


def test_runs_without_initial_loss_are_left_out_of_laws_that_need_it(tmp_path: Path) -> None:
    records = [run(0, 1e6, 1e3, 2.0), run(1, 1e6, 2e3, 1.9, initial=[])]
    write_run_records(tmp_path / "runs.jsonl", records)
    source = read_source(tmp_path / "runs.jsonl")
    assert len(source.table("UC").y) == 2
    assert "T" not in source.table("UC").columns
    with_T = source.table("UC", with_T=True)
    assert with_T.columns["T"] == [5.0]
    assert with_T.taken.endswith("left out: 1 without T")


def test_the_initial_loss_is_that_of_the_measure_and_the_split(tmp_path: Path) -> None:
    def result(measure: str, split: str, loss: float) -> EvalResult:
        return EvalResult(measure=measure, split=split, per_pair={}, per_split={"UC": loss}, num_samples={})

    initial = [result("a", "val", 7.0), result("a", "test", 8.0), result("b", "val", 9.0)]
    after = [result("a", "val", 1.0), result("a", "test", 2.0), result("b", "val", 3.0)]
    write_run_records(tmp_path / "runs.jsonl", [run(0, 1e6, 1e3, 0.0, initial=initial, results=after)])
    source = read_source(tmp_path / "runs.jsonl")
    found = source.table("UC", Choice("a", "test"), with_T=True)
    assert (found.y, found.columns["T"]) == ([2.0], [8.0])
    only = source.table("UC", Choice("b"), with_T=True)  # on one split alone, whatever its name
    assert (only.y, only.columns["T"]) == ([3.0], [9.0])
    with pytest.raises(UserError, match="has a on test, val; choose one with --split"):
        source.table("UC", Choice("a"))


def test_fine_tuned_runs_of_other_budgets_are_no_seeds_of_each_other(tmp_path: Path) -> None:
    records = [run(i, 1e6, S, 2.0, seed=i % 2) for i, S in enumerate((1e3, 1e3, 2e3, 2e3))]
    records += [run(10 + i, 1e6, 500, 1.0, seed=i % 2, kind="finetuned", started_from=f"run{i}") for i in range(4)]
    write_run_records(tmp_path / "runs.jsonl", records)
    groups = read_source(tmp_path / "runs.jsonl").table("UC", Choice(kind="finetuned")).groups
    assert groups is not None
    assert groups[0] == groups[1] != groups[2] == groups[3]


def test_tables_are_read_with_care(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    path.write_text("P,S,P,y\n1,2,3,4\n")
    with pytest.raises(UserError, match="two columns are called 'P'"):
        read_source(path)
    path.write_bytes(b"P,S,y\n1,2,\xff\n")
    with pytest.raises(UserError, match="is not UTF-8 text"):
        read_source(path)
    path.write_text("P,S,y\n1,2," + "9" * 200_000 + "\n")
    with pytest.raises(UserError, match="line 2: field larger than field limit"):
        read_source(path)
    path.write_text("P,y\n" + "9" * 400 + ",1\n2,2\n3,3\n4,4\n")
    read = read_source(path).table("y")
    with pytest.raises(UserError, match="column P: 1 of 4 values are missing or infinite"):
        fit("power:P", read.columns, read.y)
    table = pyarrow.table([[1.0], [2.0]], names=["P", "P"])
    pyarrow.parquet.write_table(table, tmp_path / "twice.parquet")
    with pytest.raises(UserError, match="two columns are called 'P'"):
        read_source(tmp_path / "twice.parquet")
