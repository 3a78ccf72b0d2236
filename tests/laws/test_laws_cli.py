"""The commands say what the library finds, in words and in JSON; a mistake is one line and exit code 2."""

import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from babelcap.cli import app
from laws.simulated import grid, true_law

MAP = ["--map", "P=params,S=samples,y=loss"]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    generator = np.random.default_rng(1)
    columns = grid() | {"T": generator.uniform(2, 8, 16)}
    y = true_law("pst").predict(columns) * np.exp(0.02 * generator.standard_normal(16))
    rows = np.stack([columns["P"], columns["S"], columns["T"], y], axis=1)
    path = tmp_path / "points.csv"
    path.write_text("params,samples,T,loss\n" + "".join(",".join(map(str, row)) + "\n" for row in rows))
    return path


def call(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["laws", *map(str, arguments)])


def test_fit_in_words_and_json(table: Path, tmp_path: Path) -> None:
    words = call("fit", table, "--form", "pst", *MAP)
    assert words.exit_code == 0, words.output
    assert "b3" in words.output
    assert "left out" in words.output
    found = json.loads(call("fit", table, "--form", "pst", *MAP, "--json").stdout)
    assert found["coefficients"]["b3"] == pytest.approx(0.5, abs=0.05)
    assert found["intervals"]["b1"][0] < -0.2 < found["intervals"]["b1"][1]
    assert found["target"] == "loss"


def test_what_is_not_identified_is_not_printed_as_a_number(table: Path) -> None:
    output = call("fit", table, "--form", "pst+eps", *MAP).output
    line = next(line for line in output.splitlines() if "eps " in line and "│" in line)
    assert "not identified" in line


def test_figures_are_written(table: Path, tmp_path: Path) -> None:
    done = call("fit", table, "--form", "ps", *MAP, "--figures", tmp_path / "figures", "--json", "--bootstrap", 50)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["form"] == "ps"
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"loss.png", "loss.svg", "residuals_loss.png", "bootstrap_loss.svg", "iso_loss_loss.png"} <= names


def test_compare(table: Path) -> None:
    found = json.loads(call("compare", table, "--forms", "ps,pst,compute", *MAP, "--json").stdout)
    assert [row["form"] for row in found["forms"]] == ["pst", "ps"]
    assert "needs the column C" in found["refused"]["compute"]
    assert "pst" in call("compare", table, "--forms", "ps,pst", *MAP).output
    both = json.loads(call("compare", table, "--forms", "ps;power:P,S", *MAP, "--json").stdout)
    assert {row["form"] for row in both["forms"]} == {"ps", "power:P,S"}
    for forms in ("ps,power:P,S", "power:P,S,ps", "power:P,pst+eps"):
        done = call("compare", table, "--forms", forms, *MAP)
        assert done.exit_code == 2
        assert f"found '{forms}'; with a power: form among them put ';' between, as 'ps;power:P,S'" in done.stderr


def test_predict_published_and_own(table: Path) -> None:
    output = call("predict", "paper-v1", "--at", "P=11.2218e9,S=10.24e6").output
    assert [line.split()[:2] for line in output.splitlines()[:3]] == [["UC", "2.58"], ["ST", "1.551"], ["SC", "0.6949"]]
    arguments = ["predict", table, "--form", "pst", *MAP, "--at", "P=1e12,S=1e7,T=4"]
    found = json.loads(call(*arguments, "--json").stdout)[0]
    assert found["interval"][0] < found["prediction"] < found["interval"][1]
    assert "above the largest" in call(*arguments).output


def test_plan(table: Path) -> None:
    arguments = ["plan", table, "--form", "pst", *MAP, "--budget", "1e19", "--loss", "1.0", "--lower-t", "6,4"]
    found = json.loads(call(*arguments, "--json").stdout)
    assert found["worth"]["P"]["factor"] == pytest.approx((4 / 6) ** -2.5, rel=0.2)
    assert found["budget"]["P"] * found["budget"]["S"] * 256 == pytest.approx(1e19)
    assert (found["loss"]["C"] > 1e19) == (found["budget"]["loss"] > 1.0)
    assert "no best size" in call(*arguments).output


def test_published_list() -> None:
    found = json.loads(call("published", "--json").stdout)
    assert len(found) == 6
    assert "paper-v1" in call("published").output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "none.csv"], "no such file"),
        (["predict", "paper-v1"], "say where"),
        (["predict", "paper-v1", "--at", "P=big"], "give a number"),
        (["plan", "paper-v1"], "say for what"),
        (["plan", "paper-v1", "--lower-t", "6"], "two numbers"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str) -> None:
    done = call(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_json_has_no_infinity(tmp_path: Path) -> None:
    """Six points leave AICc of five coefficients undefined: null, which every reader of JSON understands."""
    columns = {name: values[[0, 3, 5, 6, 9, 10, 15]] for name, values in grid().items()}
    y = true_law("ps").predict(columns) * np.exp(0.02 * np.random.default_rng(2).standard_normal(7))
    path = tmp_path / "few.csv"
    rows = zip(columns["P"], columns["S"], y, strict=True)
    path.write_text("P,S,y\n" + "".join(f"{P},{S},{loss}\n" for P, S, loss in rows))
    done = call("fit", path, "--form", "chinchilla", "--json", "--bootstrap", 50)
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout, parse_constant=lambda name: pytest.fail(name))
    assert found["aicc"] is None
    assert found["warnings"]


def test_a_target_that_is_no_column_is_an_error(table: Path) -> None:
    for command in (["fit"], ["compare"], ["predict", "--at", "P=1,S=1"], ["plan", "--budget", "1e19"]):
        done = call(command[0], table, *command[1:], "--map", "P=params,S=samples", "--target", "accuracy")
        assert done.exit_code == 2
        assert done.stderr.strip().endswith("has no column accuracy; found params, samples, T, loss")


def test_a_table_with_one_loss_is_predicted_once(table: Path) -> None:
    done = call("predict", table, *MAP, "--at", "P=1e9,S=1e6")
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.stdout.splitlines() if "a new run" in line] == ["loss"]


def test_a_published_law_is_not_fitted(table: Path) -> None:
    for command in ("fit", "compare"):
        done = call(command, "paper-v1")
        assert done.exit_code == 2
        assert "is a published law, with coefficients and no points to fit" in done.stderr
        assert "paper-v1" not in call(command, "--help").output
    assert "paper-v1" in call("predict", "--help").output


def test_runs_are_chosen_by_kind_family_and_field() -> None:
    runs = Path(__file__).parents[2] / "results" / "small" / "runs.jsonl"
    done = call("fit", runs, "--where", "base=balanced", "--where", "seed=0", "--json")
    assert json.loads(done.stdout)["num_points"] == 21
    assert "70 of another base, 40 of another seed" in json.loads(done.stdout)["extra"]["points"]
    without = json.loads(call("fit", runs, "--where", "size!=micro-gemma-xl", "--json").stdout)
    assert without["num_points"] == 88
    assert "5 of another size" in without["extra"]["points"]
    done = call("fit", runs, "--where", "colour!=red")
    assert (done.exit_code, "no field" in done.stderr) == (2, True)
    both = json.loads(call("fit", runs, "--family", "all", "--json").stdout)
    assert both["num_points"] == 131
    done = call("fit", runs, "--kind", "finetuned")
    assert done.exit_code == 2  # three seeds of one run are no law
    assert len(done.stderr.strip().splitlines()) == 1
