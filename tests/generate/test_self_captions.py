"""A captioner's own captions: which are kept, worked out by hand, and what becomes of them in a corpus."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.coverage import CAPTION
from babelcap.data.importers import assemble
from babelcap.data.store.store import Corpus
from babelcap.errors import UserError
from babelcap.generate import self_captions
from babelcap.generate.self_captions import (
    Candidate,
    Judge,
    Judged,
    SelfCaptionSettings,
    add_self_captions,
    choose,
)

PLANTED = {"dog": [1.0, 0.0], "hound": [1.0, 0.0], "cat": [0.0, 1.0], "both": [0.6, 0.8], "chien": [0.8, 0.6]}


class PlantedEncoder:
    """A text has the vector that it is planted with, and any other one that its bytes tell."""

    def __init__(self, *_: object) -> None: ...

    def texts(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([PLANTED.get(text) or self._of_bytes(text) for text in texts], dtype=np.float32)

    def _of_bytes(self, text: str) -> list[float]:
        angle = sum(text.encode()) % 628 / 100
        return [float(np.cos(angle)), float(np.sin(angle))]


def test_fit_and_place_by_hand() -> None:
    judge = Judge(PlantedEncoder(), [["dog", "hound"], ["cat"], ["both"], ["dog", "cat"]])
    assert judge.images == pytest.approx(np.array([[1, 0], [0, 1], [0.6, 0.8], [0.5**0.5, 0.5**0.5]]))
    # chien: .8 with the first, .6 with the second, .96 with the third, 1.4 * sqrt(.5) = .98995 with the fourth
    mean = (0.8 + 0.6 + 0.96 + 1.4 * 0.5**0.5) / 4
    first, second, third = judge(
        [Candidate(0, "fr", "chien"), Candidate(1, "fr", "chien"), Candidate(3, "fr", "chien")]
    )
    assert first == pytest.approx((0.8 - mean, 2 / 3), abs=1e-6)
    assert second == pytest.approx((0.6 - mean, 1.0), abs=1e-6)
    assert third == pytest.approx((1.4 * 0.5**0.5 - mean, 0.0), abs=1e-6)
    assert judge([]) == []


def test_an_image_that_fits_as_well_counts_against_a_text() -> None:
    judge = Judge(PlantedEncoder(), [["dog"], ["hound"], ["cat"]])
    assert judge([Candidate(0, "fr", "dog")])[0].place == pytest.approx(0.5)


def test_the_best_fitting_candidate_in_the_language_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_captions, "is_language", lambda text, code: text.startswith(code))
    candidates = [
        Candidate(0, "fr", "fr good"), Candidate(0, "fr", "fr better"), Candidate(0, "fr", "de best"),
        Candidate(0, "es", "es of many"), Candidate(0, "es", "en"),
        Candidate(1, "fr", "en"), Candidate(1, "fr", " "),
    ]  # fmt: skip
    judged = [Judged(0.2, 0.0), Judged(0.3, 0.02), Judged(0.9, 0.0), Judged(0.9, 0.03), *[Judged(0.9, 0.0)] * 3]
    skipped: Counter[str] = Counter()
    assert choose(candidates, judged, 0.02, skipped) == {(0, "fr"): ("fr better", Judged(0.3, 0.02))}
    assert skipped == {"self-captions in es that fit other images as well": 1, "self-captions not in fr": 1}


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(self_captions, "SentenceEncoder", PlantedEncoder)
    monkeypatch.setattr(self_captions, "is_language", lambda text, code: True)
    self_captions._teacher.cache_clear()


def settings(**others: Any) -> SelfCaptionSettings:
    return SelfCaptionSettings(**{"languages": ("es", "zh"), "max_new_tokens": 6, "max_place": 1.0, **others})


@pytest.mark.usefixtures("planted")
def test_a_corpus_gets_captions_beside_those_it_has(
    tiny_corpus: Path, tiny_models: dict[str, Path], tmp_path: Path
) -> None:
    made = add_self_captions(tiny_corpus, tiny_models["bart"], tmp_path / "more", settings())
    before = {row.key: row for row in Corpus.open(tiny_corpus).rows()}
    assert made.coverage.seen == (*Corpus.open(tiny_corpus).coverage.seen, "caption-es", "caption-zh")
    for row in made.rows():
        known = before[row.key]
        assert row.annotations[: len(known.annotations)] == known.annotations
        new = row.annotations[len(known.annotations) :]
        assert row._replace(annotations=()) == known._replace(annotations=())
        assert {(one.task, one.language) for one in new} <= {(CAPTION, "es"), (CAPTION, "zh")}
        assert row.split == "train" or not new
        for one in new:
            assert one.origin.startswith("self-caption:bart@")
            assert one.score is not None
            assert one.target
    assert made.counts("train")[made.coverage.pair("caption-es")] > 40
    again = add_self_captions(tiny_corpus, tiny_models["bart"], tmp_path / "more", settings())
    assert again.content_hash == made.content_hash


@pytest.mark.usefixtures("planted")
def test_a_stopped_command_goes_on_with_the_tars_that_are_left(
    tiny_corpus: Path, tiny_models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = add_self_captions(tiny_corpus, tiny_models["bart"], tmp_path / "whole", settings())
    asked: list[str] = []
    write = assemble.write_shard

    def dies(folder: Path, rows: Any, scan: Any, **more: Any) -> Any:
        asked.append(scan.path.name)
        if len(asked) == 2:
            raise KeyboardInterrupt
        return write(folder, rows, scan, **more)

    monkeypatch.setattr(assemble, "write_shard", dies)
    with pytest.raises(KeyboardInterrupt):
        add_self_captions(tiny_corpus, tiny_models["bart"], tmp_path / "more", settings())
    made = add_self_captions(tiny_corpus, tiny_models["bart"], tmp_path / "more", settings())
    assert len(asked) == 4  # the first of three tars once, the second twice
    assert made.content_hash == whole.content_hash


@pytest.mark.usefixtures("planted")
def test_of_some_tars_first_and_of_the_others_later(
    tiny_corpus: Path, tiny_models: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = add_self_captions(tiny_corpus, tiny_models["bart"], tmp_path / "more", settings(), num_tars=1)
    captioned = {
        row.tar for row in made.rows() if any(one.origin.startswith("self-caption") for one in row.annotations)
    }
    assert captioned == {made.manifest.shards[0].tar}
    asked: list[str] = []
    write = assemble.write_shard
    monkeypatch.setattr(assemble, "write_shard", lambda *a, **k: asked.append(a[2].path.name) or write(*a, **k))
    all_of_them = add_self_captions(tiny_corpus, tiny_models["bart"], tmp_path / "more", settings())
    whole = add_self_captions(tiny_corpus, tiny_models["bart"], tmp_path / "whole", settings())
    assert asked[:2] == [shard.tar for shard in made.manifest.shards[1:]]
    assert all_of_them.content_hash == whole.content_hash != made.content_hash


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"languages": ("de",)}, "caption-de has captions already"),
        ({"languages": ("xx",)}, "unknown language 'xx'"),
        ({"split": "none"}, "no split 'none'"),
    ],
)
def test_what_cannot_be_asked_for(
    tiny_corpus: Path, tiny_models: dict[str, Path], tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        add_self_captions(tiny_corpus, tiny_models["bart"], tmp_path / "more", settings(**change))
    assert not (tmp_path / "more").exists()


@pytest.mark.parametrize(("change", "message"), [({"languages": ()}, "no language"), ({"max_place": 0.0}, "max-place")])
def test_settings_are_checked(change: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        settings(**change)


@pytest.mark.usefixtures("planted")
def test_the_command(tiny_corpus: Path, tiny_models: dict[str, Path], tmp_path: Path) -> None:
    output = tmp_path / "more"
    options = [
        "-m",
        str(tiny_models["bart"]),
        "-l",
        "fr, ru",
        "-o",
        str(output),
        "--max-place",
        "1",
        "--candidates",
        "2",
    ]
    done = CliRunner().invoke(app, ["data", "self-caption", str(tiny_corpus), *options, "--max-new-tokens", "4"])
    assert done.exit_code == 0, done.output
    assert "caption-fr" in done.output
    assert Corpus.open(output).counts("train")[Corpus.open(output).coverage.pair("caption-ru")]
