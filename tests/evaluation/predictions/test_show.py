"""The page of predictions: side by side, worst first, escaped, with each picture once."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.evaluation.predictions import show
from babelcap.evaluation.predictions.folder import ANSWERS, find_predictions
from babelcap.evaluation.predictions.score import ScoreOptions, score_predictions
from planted import Planted, make_benchmark, predict_planted, predict_with, read_file

NASTY = "</script><script>alert('x')</script> & <img src=x onerror=alert(1)>"


def page_of(folder: Path, limit: int = 100) -> str:
    path = show.write_page(find_predictions([folder]), folder / "page", limit=limit, image_size_px=64)
    assert path.name == "page.html"
    return path.read_text(encoding="utf-8")


def test_systems_side_by_side_worst_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks, output = read_file(make_benchmark(tmp_path / "data")), tmp_path / "out"
    answers = {"de/3": "Nichts davon.", "de/5": "", "en/2": "Das ist ein deutscher Satz über einen Hund."}
    predictions = predict_planted(tasks, output, shuffled=True)
    predictions += predict_with(monkeypatch, lambda options: Planted(options, answers), tasks, output)
    score_predictions(predictions, ScoreOptions(), lambda line: None)
    page = page_of(output)
    articles = re.findall(r"<article .*?</article>", page, re.DOTALL)
    assert len(articles) == 14
    scores = [float(re.search(r'data-score="([^"]*)"', text)[1]) for text in articles]  # type: ignore[index]
    assert scores == sorted(scores)
    first = next(text for text in articles if "de/3<br>" in text)
    assert re.findall(r'class="who">([^<]*)<', first) == ["planted", "planted, pictures shuffled"]
    assert "Nichts davon." in first
    assert "Hier steht ein Boot auf der Wiese." in first  # a reference
    assert '<span class="verdict">empty</span>' in next(text for text in articles if "de/5<br>" in text)
    assert '<span class="verdict">not en</span>' in next(text for text in articles if "en/2<br>" in text)
    assert page.count("data:image/jpeg;base64,") == 7
    assert "14 of 14 items, answered by 2 systems" in page
    assert len(re.findall("<article", page_of(output, limit=4))) == 4
    assert "4 of 14 items, those with the lowest scores" in page_of(output, limit=4)


def test_nothing_leaves_its_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = read_file(make_benchmark(tmp_path / "data"))
    (prediction,) = predict_with(
        monkeypatch, lambda options: Planted(options, {"en/0": NASTY}), tasks, tmp_path / "out"
    )
    page = page_of(tmp_path / "out")
    assert NASTY not in page
    assert "alert(&#39;x&#39;)" in page
    assert page.count("<script") == 2  # the pictures and the page's own
    assert not re.search(r"(src|href)=[\"']?http", page)
    assert (prediction.folder / ANSWERS).is_file()


def test_incomplete_and_unscored_predictions_can_be_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (prediction,) = predict_planted(read_file(make_benchmark(tmp_path / "data")), tmp_path / "out")
    lines = (prediction.folder / ANSWERS).read_bytes().splitlines(keepends=True)
    (prediction.folder / ANSWERS).write_bytes(b"".join(lines[:5]))
    (tmp_path / "data/pictures/1.png").unlink()
    page = page_of(tmp_path / "out")
    assert page.count("<article") == 5
    assert page.count('<div class="none">no picture</div>') == 1
    monkeypatch.setattr(show, "MAX_PICTURE_BYTES", -1)
    assert page_of(tmp_path / "out").count('<div class="none">no picture</div>') == 5
    (prediction.folder / ANSWERS).write_bytes(b"")
    done = CliRunner().invoke(app, ["eval", "show", str(tmp_path / "out"), "-o", str(tmp_path / "page.html")])
    assert done.exit_code == 2
    assert "there is no answer yet" in done.stderr


def test_ambiguity_shows_the_margin(tmp_path: Path) -> None:
    right = show._answer("losses", {"right": [1.0, 2.0], "wrong": [2.5]}, {}, None)  # type: ignore[arg-type]
    assert (right["verdict"], right["shown"], right["score"]) == ("right", "+1.000", 1.0)
    tie = show._answer("losses", {"right": [2.0], "wrong": [1.0, 3.0]}, {}, None)  # type: ignore[arg-type]
    assert (tie["verdict"], tie["shown"]) == ("tie", "+0.000")
