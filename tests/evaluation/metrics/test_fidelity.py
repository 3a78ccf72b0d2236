"""Language fidelity, and scores that a wrong language cannot reach."""

import gzip
from pathlib import Path

import pytest

from babelcap.errors import UserError
from babelcap.evaluation.metrics import chrf, coco_scores, gated, is_language, language_fidelity

NUM = 120


def captions(shared: Path, language: str) -> dict[str, str]:
    path = shared / "data/multi30k/data/task1/raw" / f"test_2016_flickr.{language}.gz"
    lines = gzip.decompress(path.read_bytes()).decode("utf-8").splitlines()[:NUM]
    return {str(number): line for number, line in enumerate(lines)}


def cider(references: dict[str, list[str]], hypotheses: dict[str, str]) -> float:
    return coco_scores(references, hypotheses)["CIDEr"]


@pytest.mark.parametrize(("asked", "given"), [("de", "en"), ("fr", "en"), ("en", "de")])
def test_wrong_language_copies_of_the_references(shared: Path, asked: str, given: str) -> None:
    """English sentences where German was asked for: chrF gives points for shared letters, the gate does not."""
    references = {key: [text] for key, text in captions(shared, asked).items()}
    wrong, right = captions(shared, given), captions(shared, asked)
    found = language_fidelity(wrong, asked, references)
    assert found.outputs == 0
    assert found.references is not None
    assert found.references > 0.99
    assert gated(cider, references, wrong, asked) == 0
    assert gated(chrf, references, wrong, asked) == 0
    assert chrf(references, wrong) > 10
    assert gated(chrf, references, right, asked) > 99
    assert language_fidelity(right, asked).outputs > 0.99


def test_the_language_is_told_by_what_was_said() -> None:
    """Behind a German prefix that the system was given stands English."""
    references = {"a": ["Das Bild zeigt einen roten Ball."], "b": ["Das Bild zeigt ein Haus."]}
    outputs = {"a": "Das Bild zeigt einen roten Ball.", "b": "Das Bild zeigt the house in the garden."}
    said = {key: text.removeprefix("Das Bild zeigt") for key, text in outputs.items()}
    found = gated(chrf, references, outputs, "de", said)
    assert found.per_item == {"a": pytest.approx(100), "b": 0}


def test_english_where_chinese_was_asked_for(shared: Path) -> None:
    lines = (shared / "data/flores/flores-dev.zh").read_text(encoding="utf-8").splitlines()[:NUM]
    wrong = (shared / "data/flores/flores-dev.en").read_text(encoding="utf-8").splitlines()[:NUM]
    references = {str(number): [line] for number, line in enumerate(lines)}
    hypotheses = {str(number): line for number, line in enumerate(wrong)}
    found = language_fidelity(hypotheses, "zh", references)
    assert (found.outputs, found.references) == (0, 1)
    assert gated(chrf, references, hypotheses, "zh") == 0
    assert chrf(references, hypotheses) > 0


def test_half_of_the_outputs_in_the_wrong_language(shared: Path) -> None:
    english, german = captions(shared, "en"), captions(shared, "de")
    references = {key: [text] for key, text in german.items()}
    half = {key: (german if int(key) % 2 else english)[key] for key in german}
    score = gated(cider, references, half, "de")
    per_item = score.per_item
    assert all(per_item[key] == 0 for key in per_item if int(key) % 2 == 0)
    assert score == pytest.approx(sum(per_item.values()) / NUM)
    assert score.num_empty == 0
    assert score.signature.endswith("|gate:lid.176-lite+scripts-1-de")
    assert language_fidelity(half, "de").outputs == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize(
    ("text", "language", "wanted"),
    [
        ("一只猫", "zh", True),  # lid.176 says Japanese
        ("貓在桌子上", "zh", True),
        ("犬が走っています", "zh", False),
        ("犬が走っています", "ja", True),
        ("Собака", "ru", True),
        ("Собака", "de", False),
        ("Der Hund", "de", True),
        ("Der Hund", "zh", False),
        ("고양이", "ko", True),
        ("", "en", False),
        ("123 !?", "en", False),
        ("他在Manchester United Stadium看球", "zh", False),
        ("他在Manchester看了一场球", "zh", True),
        ("A dog on a sofa", "zh", False),
    ],
)
def test_short_texts(text: str, language: str, wanted: bool) -> None:
    assert is_language(text, language) is wanted


def test_a_language_that_cannot_be_told_is_one_line() -> None:
    with pytest.raises(UserError, match="'mi' is not among the languages"):
        language_fidelity({"a": "he ngeru"}, "mi")
