"""Parts of the app's pages: words with probabilities, differences, pictures, laws, and texts of a corpus."""

import math
from pathlib import Path

import pytest
import torch

from app.pictures import bad_pictures, good_pictures, rotated_jpeg
from babelcap.app.browse import BEST, WORST, Filter, find_texts, origins_of
from babelcap.app.differences import marked_differences
from babelcap.app.law_sources import OWN, PAPER, STUDY, find_laws, ordered_targets
from babelcap.app.limits import Limits, TooLarge
from babelcap.app.pictures import from_base64, model_square, read_upload, shown_picture
from babelcap.app.study_state import read_state
from babelcap.app.words import words_of
from babelcap.data.store.store import Corpus
from babelcap.errors import UserError
from babelcap.models import GeneratedText
from babelcap.models.generation.requests import Token

RESULTS = Path(__file__).parents[2] / "results" / "small"
LIMITS = Limits(max_upload_bytes=2**20, max_pixels=4_000_000)


def test_words_are_groups_of_tokens() -> None:
    halves = math.log(0.5)
    tokens = [Token(1, "A", 0.0, True), Token(2, " ap", halves, False), Token(3, "ple", halves, False)]
    tokens += [Token(4, ".", halves, False), Token(5, "", halves, False)]
    attention = torch.arange(20.0).reshape(5, 2, 2)
    words = words_of(GeneratedText("A apple.", "apple.", None, tuple(tokens), attention))
    assert [(word.space, word.text, word.is_given) for word in words] == [("", "A", True), (" ", "apple.", False)]
    assert words[1].probability == pytest.approx(0.125)
    assert words[1].heat.startswith("data:image/png;base64,")
    chinese = [Token(1, "图为", 0.0, True), Token(2, "苹果", halves, False), Token(3, "。", halves, False)]
    found = words_of(GeneratedText("图为苹果。", "苹果。", None, tuple(chinese)))
    assert [word.text for word in found] == ["图为", "苹果。"]


def test_differences_are_marked_in_both() -> None:
    with_picture, without = marked_differences("Der rote Ball.", "Der blaue Ball.")
    assert [(piece.text, piece.is_different) for piece in with_picture] == [
        ("Der ", False), ("rote", True), (" Ball.", False)
    ]  # fmt: skip
    assert "".join(piece.text for piece in without) == "Der blaue Ball."
    chinese, _ = marked_differences("红苹果", "绿苹果")
    assert [(piece.text, piece.is_different) for piece in chinese] == [("红", True), ("苹果", False)]
    same, other = marked_differences("", "")
    assert same == other == []


@pytest.mark.parametrize("name", good_pictures())
def test_unusual_pictures_are_pictures(name: str) -> None:
    content = good_pictures()[name]
    assert model_square(content, LIMITS, 64).size == (64, 64)
    shown = shown_picture(content, LIMITS)
    assert shown.mode == "RGB"
    size, colour = {
        "one-pixel.png": ((1, 1), (0, 128, 0)),
        "cmyk.jpg": ((120, 80), (255, 0, 0)),
        "animated.gif": ((32, 32), (255, 0, 0)),  # its first frame
        "rotated.jpg": ((120, 80), (255, 0, 0)),  # upright
        "transparent.png": ((20, 20), (255, 165, 165)),  # on white
    }[name]
    assert shown.size == size
    found = shown.getpixel((min(5, size[0] - 1), min(5, size[1] - 1)))
    assert all(abs(one - other) < 16 for one, other in zip(found, colour, strict=True)), found


@pytest.mark.parametrize("name", bad_pictures())
def test_bad_pictures_are_refused_in_words(name: str, tmp_path: Path) -> None:
    content, word = bad_pictures()[name]
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(UserError, match=word):
        model_square(read_upload(path, LIMITS), LIMITS, 64)


def test_uploads_are_bounded(tmp_path: Path) -> None:
    (tmp_path / "large.jpg").write_bytes(bytes(2**20 + 1))
    with pytest.raises(TooLarge, match="1 MiB"):
        read_upload(tmp_path / "large.jpg", LIMITS)
    assert from_base64("data:image/png;base64,AAAA") == bytes(3)
    for bad in ("data:image/png,AAAA", "not base64!", "data:"):
        with pytest.raises(UserError, match="base64"):
            from_base64(bad)
    assert rotated_jpeg()


def test_laws_of_the_paper_of_a_study_and_of_a_table(tmp_path: Path) -> None:
    paper = find_laws(PAPER, "pst", "conditioned", None, "")
    assert ordered_targets(paper) == ["UC", "ST", "SC"]
    assert paper.columns == ("P", "S")  # the form with T was not published
    study = find_laws(STUDY, "pst", "conditioned", RESULTS, "")
    assert "T" in study.columns
    assert "main" in study.taken
    table = tmp_path / "runs.csv"
    rows = [f"{P},{S},{5 * P**-0.1 * S**-0.05}" for P in (1e6, 1e7, 1e8) for S in (1e4, 1e5)]
    table.write_text("params,samples,loss\n" + "\n".join(rows), encoding="utf-8")
    own = find_laws(OWN, "ps", "conditioned", table, "P=params,S=samples")
    assert own.laws["loss"].coefficients["b1"] == pytest.approx(-0.1)
    with pytest.raises(UserError, match="no column"):
        find_laws(OWN, "ps", "conditioned", table, "P=nothing")
    with pytest.raises(UserError, match="no table of runs"):
        find_laws(OWN, "ps", "conditioned", None, "")


def test_texts_of_a_corpus(world: Path) -> None:
    corpus = Corpus.open(world)
    everything = find_texts(corpus, Filter(), num=5)
    assert everything.num_matches == corpus.manifest.num_annotations == everything.num_looked_at
    second = find_texts(corpus, Filter(), num=3, start=2)
    assert second.texts == everything.texts[2:5]
    hole = find_texts(corpus, Filter(split="eval", task="caption", language="fr"), num=100)
    assert hole.num_matches == len(hole.texts) == 4
    assert find_texts(corpus, Filter(split="train", task="caption", language="fr")).num_matches == 0
    word = everything.texts[0].annotation["target"].split()[1]
    with_word = find_texts(corpus, Filter(words=word.upper()), num=500)
    assert with_word.texts
    for text in with_word.texts:
        values = text.annotation
        assert word.lower() in f"{values['source']} {values['target']}".lower()
    assert find_texts(corpus, Filter(origin="nobody")).num_matches == 0
    assert origins_of(corpus)


def test_worst_aligned_first(world: Path) -> None:
    corpus = Corpus.open(world)
    wanted = Filter(split="train", task="translation")
    scores = [
        annotation.score
        for row in corpus.rows("train")
        for annotation in row.annotations
        if annotation.task == "translation" and annotation.score is not None
    ]
    worst = find_texts(corpus, wanted, WORST, num=7)
    assert [text.annotation["score"] for text in worst.texts] == sorted(scores)[:7]
    best = find_texts(corpus, wanted, BEST, num=4, start=3)
    assert [text.annotation["score"] for text in best.texts] == sorted(scores, reverse=True)[3:7]
    bounded = find_texts(corpus, Filter(task="translation", score=(0.0, sorted(scores)[0])), num=500)
    assert {text.annotation["score"] for text in bounded.texts} == {min(scores)}
    captions = find_texts(corpus, Filter(task="caption"), WORST)
    assert captions.texts == []
    assert not captions.has_scores


def test_a_study_while_it_runs(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        read_state(tmp_path / "none")
    (tmp_path / "study.json").write_text('{"steps": {"world w": "world/w", "train a": "runs/a"}}', encoding="utf-8")
    state = read_state(tmp_path)
    assert (state.num_done, state.num_steps, state.has_runs) == (0, 2, False)
    (tmp_path / "world" / "w").mkdir(parents=True)
    (tmp_path / "world" / "w" / "done.json").write_text("{}", encoding="utf-8")
    later = read_state(tmp_path)
    assert later.num_done == 1
    assert later.stamp != state.stamp
    assert read_state(RESULTS).kinds == []  # records without what was computed
