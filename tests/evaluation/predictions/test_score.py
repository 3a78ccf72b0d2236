"""Scores of predictions: what the metrics give, by language; what is incomplete has none."""

import json
import random
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.errors import UserError
from babelcap.evaluation.benchmarks.xm3600 import NUM_IMAGES
from babelcap.evaluation.metrics import chrf, coco_scores, sacre_bleu
from babelcap.evaluation.predictions.folder import ANSWERS, ITEM_SCORES, SCORES, Prediction
from babelcap.evaluation.predictions.score import Scored, ScoreOptions, read_scores, score_predictions
from babelcap.evaluation.predictions.tasks import Selection, read_tasks
from planted import Planted, make_benchmark, predict_planted, predict_with, read_file, told, write_items


@pytest.fixture(autouse=True)
def nothing_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BABELCAP_COMET", "BABELCAP_METEOR_JAR"):
        monkeypatch.delenv(name, raising=False)


def score(*predictions: Prediction) -> list[Scored]:
    incomplete: list[str] = []
    found = score_predictions(predictions, ScoreOptions(), incomplete.append)
    assert incomplete == []
    return [scored for _, scored in found]


def values(scored: Scored, language: str) -> dict[str, dict[str, Any]]:
    return {record["name"]: record for record in scored.records if record["language"] == language}


def item_lines(prediction: Prediction) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (prediction.folder / ITEM_SCORES).read_text().splitlines()]


def test_captions_have_the_metrics_scores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tasks = read_file(make_benchmark(tmp_path / "data"))
    answers = {"de/1": "Eine Katze liegt auf dem Sofa.", "de/2": " ", "en/5": "A tree."}
    (prediction,) = predict_with(monkeypatch, lambda options: Planted(options, answers), tasks, tmp_path / "out")
    (scored,) = score(prediction)
    found = values(scored, "de")
    items = [item for item in tasks[0].items if item.language == "de"]
    references = {item.id: item.references for item in items}
    texts = {item.id: answers.get(item.id, told(item)) for item in items}
    for name, expected in coco_scores(references, texts).items():
        assert found[name]["value"] == pytest.approx(expected.value)
        assert (found[name]["low"], found[name]["high"]) == pytest.approx(tuple(expected.interval()))
        assert found[name]["signature"] == expected.signature
    assert found["chrF"]["value"] == pytest.approx(chrf(references, texts).value)
    assert {(record["num_items"], record["num_empty"]) for record in found.values()} - {(7, 0)} == {(7, 1)}
    assert found["fidelity"]["value"] == pytest.approx(6 / 7)  # nothing is in no language
    assert found["fidelity of references"]["value"] == 1
    assert values(scored, "en")["CIDEr"]["num_empty"] == 0
    assert scored.skipped == [
        "METEOR: no jar; give the path of meteor-1.5.jar, or set BABELCAP_METEOR_JAR to it",
        "CLIPScore: no model; give --clip FOLDER of a CLIP saved by transformers",
    ]
    lines = {row["id"]: row["scores"] for row in item_lines(prediction)}
    assert lines["de/2"]["CIDEr"] == lines["de/2"]["chrF"] == lines["de/2"]["fidelity"] == 0
    assert lines["de/0"]["CIDEr"] > lines["de/1"]["CIDEr"]
    assert read_scores(prediction) == json.loads((prediction.folder / SCORES).read_text())["scores"] == scored.records


def test_copies_in_the_wrong_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """German is asked for, and the answers are the English references."""
    path = make_benchmark(tmp_path / "data")
    english = {item.id: item.references[0] for item in read_file(path)[0].items if item.language == "en"}
    answers = {key.replace("en/", "de/"): text for key, text in english.items()}
    tasks = read_file(path, languages=("de",))
    (prediction,) = predict_with(monkeypatch, lambda options: Planted(options, answers), tasks, tmp_path / "out")
    found = values(score(prediction)[0], "de")
    assert found["fidelity"]["value"] == found["gated CIDEr"]["value"] == found["gated chrF"]["value"] == 0
    assert found["fidelity of references"]["value"] == 1
    assert found["chrF"]["value"] > 5


def test_references_score_alike_however_they_are_stored(tmp_path: Path) -> None:
    path = make_benchmark(tmp_path / "data", languages=("en",))
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    random.Random(1).shuffle(rows)
    turned = write_items(tmp_path / "data/turned.jsonl", rows)
    scores = []
    for place in (path, turned):
        (prediction,) = predict_planted(read_file(place), tmp_path / "out")
        scores.append({name: one["value"] for name, one in values(score(prediction)[0], "en").items()})
    assert scores[0] == pytest.approx(scores[1], abs=1e-12)
    by_number = {row["id"]: row for row in rows}
    texts = {key: prediction.answers()[key]["text"] for key in by_number}
    references = {key: row["references"] for key, row in by_number.items()}
    as_lists = chrf(list(references.values()), list(texts.values()))
    assert scores[0]["chrF"] == pytest.approx(as_lists.value)
    with pytest.raises(UserError, match=r"references for 2 items and hypotheses for 7 \(they look transposed"):
        chrf([list(stream) for stream in zip(*references.values(), strict=True)], list(texts.values()))


def translations(folder: Path) -> Path:
    picture = make_benchmark(folder).parent / "pictures"
    rows = [
        {"id": f"zh/{number}", "image": str(picture / f"{number}.png"), "language": "zh", "task": "translation",
         "source": "A dog.", "references": [f"right {number}"], "contrast": f"wrong {number}"}
        for number in range(4)
    ]  # fmt: skip
    return write_items(folder / "pairs.jsonl", rows)


def test_translations_and_ambiguity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Items 0, 1 and 3 are decided rightly, by the mean over tokens of different number; 2 is a tie, which is wrong."""
    losses = {
        "right 0": [1.0], "wrong 0": [2.0], "right 1": [0.5, 0.5, 0.5], "wrong 1": [1.0],
        "right 2": [1.0, 3.0], "wrong 2": [2.0], "right 3": [1.0], "wrong 3": [0.5, 2.0],
    }  # fmt: skip
    tasks = read_file(translations(tmp_path))
    answers = {f"zh/{number}": f"右边 {number}" for number in range(4)}
    translation, ambiguity = predict_with(
        monkeypatch, lambda options: Planted(options, answers, losses), tasks, tmp_path / "out"
    )
    scored, decided = score(translation, ambiguity)
    found = values(decided, "zh")
    assert {name: record["value"] for name, record in found.items()} == {
        "accuracy": 0.75, "pair accuracy": 0.5, "ties": 0.25,
    }  # fmt: skip
    assert found["pair accuracy"]["num_items"] == 2
    assert [row["id"] for row in item_lines(ambiguity)] == list(ambiguity.items)
    found = values(scored, "zh")
    references = {key: item.references for key, item in translation.items.items()}
    assert found["BLEU"]["value"] == pytest.approx(sacre_bleu(references, answers, "zh").value)
    assert "tok:zh" in found["BLEU"]["signature"]
    assert found["fidelity"]["value"] == 1
    assert any(line.startswith("COMET: no environment") for line in scored.skipped)
    assert "METEOR: no parameters for 'zh'; it has en, de, es, fr" in scored.skipped


def test_xm3600_by_the_conventions_that_are_here(tmp_path: Path) -> None:
    pictures = make_benchmark(tmp_path / "pictures").parent / "pictures"
    texts = {"en": {"caption": ["Here is a dog.", "A dog."], "caption/tokenized": ["Here is a dog ."]}}
    rows = [{"image/key": str(number), **texts} for number in range(NUM_IMAGES)]
    (tmp_path / "xm3600/images").mkdir(parents=True)
    write_items(tmp_path / "xm3600/captions.jsonl", rows)
    for number in range(3):
        (tmp_path / f"xm3600/images/{number}.jpg").write_bytes((pictures / f"{number}.png").read_bytes())
    missing: list[str] = []
    tasks = read_tasks(["xm3600"], Selection(tmp_path, ("en",), 3), missing.append)
    assert missing == []
    (prediction,) = predict_planted(tasks, tmp_path / "out")
    (scored,) = score(prediction)
    found = values(scored, "en")
    assert {"CIDEr (ptb-raw)", "CIDEr (tokenized)", "CIDEr (spacy)", "gated CIDEr (ptb-raw)"} <= found.keys()
    assert "CIDEr" not in found
    assert "references:caption/tokenized" in found["CIDEr (tokenized)"]["signature"]
    assert any(line.startswith("CIDEr by Stanza") for line in scored.skipped) or "CIDEr (stanza)" in found


def test_chinese_has_no_scores_of_words(tmp_path: Path) -> None:
    """Penn Treebank tokens do not divide it: BLEU would be 0 of good captions."""
    pictures = make_benchmark(tmp_path / "data").parent / "pictures"
    rows = [
        {"id": f"zh/{number}", "image": str(pictures / f"{number}.png"), "language": "zh", "task": "caption"}
        | {"references": ["一只狗在跑。", f"{number}只狗。"]}
        for number in range(3)
    ]
    (prediction,) = predict_planted(read_file(write_items(tmp_path / "zh.jsonl", rows)), tmp_path / "out")
    found = values(score(prediction)[0], "zh")
    assert {"CIDEr", "chrF", "fidelity"} <= found.keys()
    assert not [name for name in found if name.startswith(("Bleu", "ROUGE"))]


def test_a_single_image_has_no_cider_and_all_else(tmp_path: Path) -> None:
    tasks = read_file(make_benchmark(tmp_path / "data"), limit=1)
    (prediction,) = predict_planted(tasks, tmp_path / "out")
    (scored,) = score(prediction)
    assert "chrF" in values(scored, "de")
    assert "CIDEr" not in values(scored, "de")
    assert any("CIDEr" in line for line in scored.skipped)


def test_what_is_incomplete_is_not_scored(tmp_path: Path) -> None:
    tasks = read_file(make_benchmark(tmp_path / "data"))
    (whole,) = predict_planted(tasks, tmp_path / "out", {"num_beams": 2})
    (prediction,) = predict_planted(tasks, tmp_path / "out")
    lines = (prediction.folder / ANSWERS).read_bytes().splitlines(keepends=True)
    (prediction.folder / ANSWERS).write_bytes(b"".join(lines[:9]) + lines[9][:20])
    done = CliRunner().invoke(app, ["eval", "score", str(tmp_path / "out"), "--json"])
    assert done.exit_code == 1
    assert f"{prediction.folder}: 5 of 14 answers are missing; run the same" in done.stderr
    assert [row["folder"] for row in json.loads(done.stdout)] == [str(whole.folder)]
    assert not (prediction.folder / SCORES).exists()
    done = CliRunner().invoke(app, ["eval", "score", str(prediction.folder)])
    assert (done.exit_code, done.stdout) == (2, "")


def test_scores_of_other_answers_are_refused(tmp_path: Path) -> None:
    (prediction,) = predict_planted(read_file(make_benchmark(tmp_path / "data")), tmp_path / "out")
    with pytest.raises(UserError, match="is not scored; run `babelcap eval score"):
        read_scores(prediction)
    score(prediction)
    text = (prediction.folder / ANSWERS).read_text()
    (prediction.folder / ANSWERS).write_text(text.replace("Hund", "Bär"))
    with pytest.raises(UserError, match="is of other answers"):
        read_scores(prediction)


def test_run_does_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = make_benchmark(tmp_path / "data")
    monkeypatch.setattr("babelcap.evaluation.systems.open_system", lambda name, options: Planted(options))
    done = CliRunner().invoke(app, ["eval", "run", "any", str(path), "-o", str(tmp_path / "out"), "--language", "de"])
    assert done.exit_code == 0, done.output
    assert "de   CIDEr" in done.stdout
    assert done.stderr.count("babelcap: skipped: ") == 2
