"""Tables: beside the published numbers, with what cannot be compared marked, in four formats."""

import csv
import io
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.errors import UserError
from babelcap.evaluation.predictions.folder import SCORES, Prediction, find_predictions
from babelcap.evaluation.predictions.score import ScoreOptions, score_predictions
from babelcap.evaluation.tables.build import build_tables
from babelcap.evaluation.tables.formats import format_tables, latex_text
from babelcap.evaluation.tables.published import compare_with_stated
from babelcap.evaluation.tables.published_results import Key, printed_table4, published_results
from babelcap.evaluation.tables.rows import Table
from planted import make_benchmark, predict_planted, read_file, reseal


def scored(tmp_path: Path, name: str = "trial", options: dict[str, Any] | None = None, **how: Any) -> Prediction:
    tasks = [replace(task, benchmark=name) for task in read_file(make_benchmark(tmp_path / "data"))]
    (prediction,) = predict_planted(tasks, tmp_path / "out", options, **how)
    score_predictions([prediction], ScoreOptions(), lambda line: None)
    return prediction


def tables(tmp_path: Path, with_published: bool = True) -> list[Table]:
    return build_tables(find_predictions([tmp_path / "out"]), with_published=with_published)


def test_table_4_is_reproduced() -> None:
    done = CliRunner().invoke(app, ["eval", "table", "--published", "v1"])
    assert done.exit_code == 0, done.output
    assert "136 of 136 means agree with the printed table 4 to 0.1" in done.stdout
    header, _, *rows = [line for line in done.stdout.splitlines() if line.startswith("|")]
    columns = [cell.strip() for cell in header.strip("|").split("|")]
    shown = {cells[0]: dict(zip(columns, cells, strict=True)) for cells in
             ([cell.strip() for cell in row.strip("|").split("|")] for row in rows)}  # fmt: skip
    compared = 0
    for system, printed in printed_table4().items():
        for column, value in printed.items():
            found = float(re.sub(r" \(\d+\)$", "", shown[f"{system} (published)"][column]))
            assert found == pytest.approx(value, abs=0.1001), (system, column)
            compared += 1
    assert compared == 136 + 14  # those that table 4 alone has are printed as they are


def test_a_row_of_shuffled_pictures_or_how_to_make_it(tmp_path: Path) -> None:
    scored(tmp_path, options={"num_beams": 1})
    (table,) = tables(tmp_path)
    (note,) = table.notes
    assert note.startswith('no row "same system, pictures shuffled" for planted; make it: babelcap eval run planted ')
    assert note.endswith(f"trial.jsonl -o {tmp_path / 'out'} --num-beams 1 --shuffle-images")
    scored(tmp_path, options={"num_beams": 1}, shuffled=True)
    scored(tmp_path, options={"num_beams": 2})
    (table,) = tables(tmp_path)
    names = [table.name_of(row) for row in table.rows if row.language == "de"]
    assert names == ["planted (num beams 1)", "same system, pictures shuffled", "planted (num beams 2)"]
    assert [row.language for row in table.rows] == ["en"] * 3 + ["de"] * 3
    (note,) = table.notes
    assert "planted (num beams 2)" in note
    own, shuffled, other = (row.cells["CIDEr"] for row in table.rows[:3])
    assert own.value == other.value > shuffled.value
    assert own.note is shuffled.note is other.note is None  # the same items, whatever was shown


def test_what_cannot_be_compared_says_why(tmp_path: Path) -> None:
    scored(tmp_path, options={"num_beams": 1})
    other = scored(tmp_path, options={"num_beams": 2})
    path = other.folder / SCORES
    path.write_text(path.read_text().replace("|sigma:6|", "|sigma:5|"))
    reseal(path)
    (table,) = tables(tmp_path)
    assert table.rows[1].cells["CIDEr"].note == "not comparable: sigma 5 against 6"
    assert table.rows[1].cells["chrF"].note is None
    text = format_tables([table], "markdown")
    assert re.search(r"\(1\) not comparable: sigma 5 against 6", text)
    fewer = [replace(task, benchmark="trial") for task in read_file(tmp_path / "data/trial.jsonl", limit=5)]
    predictions = predict_planted(fewer, tmp_path / "out", {"num_beams": 3})
    score_predictions(predictions, ScoreOptions(), lambda line: None)
    (table,) = tables(tmp_path)
    assert re.match(r"not comparable: items [0-9a-f]{8} against [0-9a-f]{8}", table.rows[2].cells["chrF"].note or "")


def test_published_numbers_stand_beside(tmp_path: Path) -> None:
    scored(tmp_path, "multi30k-captions")
    table4, table = tables(tmp_path)
    rows = {(row.system, row.language): row for row in table.rows}
    cell = rows["F-1.0B ft (published)", "de"].cells["CIDEr"]
    assert cell.value == published_results()[Key("F-1.0B ft", "multi30k-captions", "de", "CIDEr")] == 82.6
    assert cell.note == "not comparable: items 1000 against 7"
    assert rows["PaliGemma-3B (published)", "en"].cells["Bleu_4"].value == 33.2
    assert table4.columns == ["multi30k-captions en CIDEr", "multi30k-captions de CIDEr"]
    assert "MOF (published)" not in {row.system for row in table4.rows}
    own = table4.rows[0]
    assert own.system == "planted"
    assert own.cells["multi30k-captions de CIDEr"].value == rows["planted", "de"].cells["CIDEr"].value
    assert own.cells["multi30k-captions de CIDEr"].note == "not comparable: items 1000 against 7"
    assert [len(found) for found in (tables(tmp_path, with_published=False),)] == [1]


@pytest.mark.parametrize(
    ("signature", "benchmark", "language", "metric", "verdict"),
    [
        ("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0", "commute", "fr", "BLEU", "comparable"),
        ("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp", "commute", "zh", "BLEU", "not comparable: tok zh against 13a"),
        ("CIDEr|convention:ptb-raw|lang:de|references:caption|tok:x", "xm3600", "de", "CIDEr",
         "not comparable: convention stanza against ptb-raw"),
        ("CIDEr|convention:stanza|lang:de|references:caption|tok:x", "xm3600", "de", "CIDEr", "comparable"),
        ("CIDEr|tok:given|case:given", "coco", "en", "CIDEr",
         "not comparable: tok ptb-coco-without-java-2 against given"),
    ],
)  # fmt: skip
def test_published_signatures(signature: str, benchmark: str, language: str, metric: str, verdict: str) -> None:
    assert compare_with_stated(signature, benchmark, language, metric) == verdict


def test_formats(tmp_path: Path) -> None:
    prediction = scored(tmp_path)
    path = prediction.folder / "prediction.json"
    values = json.loads(path.read_text())
    values["given"]["system"] = "<b>my_model & 50 %|x"
    path.write_text(json.dumps(values))
    reseal(path)
    found = tables(tmp_path)
    rows = list(csv.DictReader(io.StringIO(format_tables(found, "csv"))))
    scores = json.loads((prediction.folder / SCORES).read_text())["scores"]
    assert len(rows) == len(scores)
    first = next(row for row in rows if row["metric"] == "Bleu_2" and row["language"] == "de")
    record = next(one for one in scores if one["name"] == "Bleu_2" and one["language"] == "de")
    assert float(first["value"]) == pytest.approx(100 * record["value"], rel=1e-5)
    assert (first["num_items"], first["signature"], first["pictures"]) == ("7", record["signature"], "own")
    latex = format_tables(found, "latex")
    assert r"my\_model \& 50 \%" in latex
    assert latex.count(r"\begin{tabular}") == 1
    page = format_tables(found, "html")
    assert "my_model &amp; 50 %" in page
    assert "<b>my" not in page
    assert r"%\|x" in format_tables(found, "markdown")
    assert latex_text("a\\b_c") == r"a\textbackslash{}b\_c"


def test_what_is_not_scored_is_left_out(tmp_path: Path) -> None:
    scored(tmp_path)
    (other,) = predict_planted(read_file(tmp_path / "data/trial.jsonl"), tmp_path / "out", {"num_beams": 2})
    output = tmp_path / "tables.md"
    done = CliRunner().invoke(app, ["eval", "table", str(tmp_path / "out"), "-o", str(output)])
    assert done.exit_code == 0
    assert f"left out: {other.folder} is not scored" in done.stderr
    assert "num beams 2" not in output.read_text()
    with pytest.raises(UserError, match="is not scored"):
        build_tables([other], with_published=False)
