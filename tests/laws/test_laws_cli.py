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
    assert found["target"] == "UC"


def test_what_is_not_identified_is_not_printed_as_a_number(table: Path) -> None:
    output = call("fit", table, "--form", "pst+eps", *MAP).output
    line = next(line for line in output.splitlines() if "eps " in line and "│" in line)
    assert "not identified" in line


def test_figures_are_written(table: Path, tmp_path: Path) -> None:
    done = call("fit", table, "--form", "ps", *MAP, "--figures", tmp_path / "figures", "--json", "--bootstrap", 50)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["form"] == "ps"
    names = {path.name for path in (tmp_path / "figures").iterdir()}
    assert {"loss.png", "loss.svg", "residuals_UC.png", "bootstrap_UC.svg", "iso_loss_UC.png"} <= names


def test_compare(table: Path) -> None:
    found = json.loads(call("compare", table, "--forms", "ps,pst,compute", *MAP, "--json").stdout)
    assert [row["form"] for row in found["forms"]] == ["pst", "ps"]
    assert "needs the column C" in found["refused"]["compute"]
    assert "pst" in call("compare", table, "--forms", "ps,pst", *MAP).output


def test_predict_published_and_own(table: Path) -> None:
    output = call("predict", "paper-v1", "--at", "P=11.2218e9,S=10.24e6").output
    assert [line.split()[:2] for line in output.splitlines()[:3]] == [["UC", "2.58"], ["ST", "1.551"], ["SC", "0.6949"]]
    arguments = ["predict", table, "--form", "pst", "--target", "UC", *MAP, "--at", "P=1e12,S=1e7,T=4"]
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
