"""`babelcap laws fit` on the shipped records gives the laws of the report, to the last digit."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.measures import TARGETS, loss_measure
from babelcap.report.study_folder import read_study
from babelcap.report.study_laws import StudyLaws, fit_study_laws

SMALL = Path(__file__).parents[2] / "results" / "small"


@pytest.fixture(scope="module")
def laws() -> StudyLaws:
    return fit_study_laws(read_study(SMALL))


@pytest.mark.parametrize("form", ["pst", "ps", "compute"])
@pytest.mark.parametrize("reading", ["prefix_given", "raw"])
def test_laws_of_the_command_are_those_of_the_report(laws: StudyLaws, reading: str, form: str) -> None:
    arguments = ["laws", "fit", str(SMALL / "runs.jsonl"), "--form", form, "--target", ",".join(TARGETS), "--json"]
    arguments += ["--measure", loss_measure(reading)]  # type: ignore[arg-type]
    done = CliRunner().invoke(app, [*arguments, *(["--frontier"] if form == "compute" else [])])
    assert done.exit_code == 0, done.output
    for target, found in zip(TARGETS, json.loads(done.stdout), strict=True):
        law = laws.get(reading, target, form)
        assert law is not None
        assert law.fitted is not None
        assert found["num_points"] == len(law.fitted.points)
        assert found["coefficients"] == law.fitted.coefficients
        assert found["intervals"] == {name: list(ends) for name, ends in law.fitted.intervals.items()}
        assert found["r2"] == law.fitted.r2


def test_the_shipped_laws_are_those_of_the_shipped_records(laws: StudyLaws) -> None:
    """laws.json was written by the study; its numbers come back from the records alone."""
    shipped = {
        (e["family"], e["reading"], e["target"], e["form"]): e for e in json.loads((SMALL / "laws.json").read_text())
    }
    assert len(shipped) == len(laws.laws)
    for law in laws.laws:
        entry = shipped[law.family, law.reading, law.target, law.form]
        assert ("fit" in entry) == (law.fitted is not None)
        if law.fitted is not None:
            assert entry["fit"]["num_points"] == len(law.fitted.points)
            assert entry["fit"]["coefficients"] == pytest.approx(law.fitted.coefficients, rel=1e-6)


def test_a_law_of_the_report_has_the_main_runs_of_one_family(laws: StudyLaws) -> None:
    """Not the 140 that controls, fine-tuned runs and both families would give."""
    law = laws.get("prefix_given", "UC", "pst")
    assert law is not None
    assert law.fitted is not None
    assert (law.family, len(law.fitted.points), round(law.fitted.r2, 2)) == ("gemma", 93, 0.9)
