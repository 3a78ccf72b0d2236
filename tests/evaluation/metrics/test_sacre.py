"""sacreBLEU and chrF: the vectorised formulas against the package in four languages; references in one orientation."""

import gzip
from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF

from babelcap.errors import UserError
from babelcap.evaluation.metrics import chrf, compare, sacre_bleu

NUM = 60


def sentences(shared: Path, language: str) -> list[str]:
    path = shared / "data" / "flores" / f"flores-dev.{language}"
    return path.read_text(encoding="utf-8").splitlines()[:NUM]


def worsened(texts: list[str]) -> list[str]:
    """Every kind of output: right, cut, mixed up, of one word, empty."""
    made = []
    for number, text in enumerate(texts):
        words = text.split(" ") if " " in text else list(text)
        joint = " " if " " in text else ""
        kinds = [words, words[: len(words) // 2], words[::-1], words[:1], [], words[3:] + words[:3]]
        made.append(joint.join(kinds[number % len(kinds)]))
    return made


@pytest.mark.parametrize("language", ["de", "fr", "ru", "zh"])
def test_equal_to_the_package(shared: Path, language: str) -> None:
    references = sentences(shared, language)
    hypotheses = worsened(references)
    bleu = BLEU(tokenize="zh" if language == "zh" else "13a")
    ours = sacre_bleu([[text] for text in references], hypotheses, language)
    assert ours == pytest.approx(bleu.corpus_score(hypotheses, [references]).score, abs=1e-9)
    assert ours.signature == str(bleu.get_signature())
    assert ours.num_empty == sum(not text for text in hypotheses)
    alone = BLEU(tokenize="zh" if language == "zh" else "13a", effective_order=True)
    for number in range(12):
        wanted = alone.sentence_score(hypotheses[number], [references[number]]).score
        assert ours.per_item[str(number)] == pytest.approx(wanted, abs=1e-9)
    characters = CHRF()
    ours = chrf([[text] for text in references], hypotheses)
    assert ours == pytest.approx(characters.corpus_score(hypotheses, [references]).score, abs=1e-9)
    assert ours.signature == str(characters.get_signature())


def test_a_replicate_is_the_score_of_its_items(shared: Path) -> None:
    references = sentences(shared, "de")[:30]
    hypotheses = worsened(references)
    score = sacre_bleu([[text] for text in references], hypotheses)
    drawn = np.random.default_rng(0).integers(30, size=30)
    wanted = BLEU().corpus_score([hypotheses[n] for n in drawn], [[references[n] for n in drawn]]).score
    assert score.combine(score.grouped_rows()[drawn].sum(axis=0, keepdims=True))[0] == pytest.approx(wanted, abs=1e-9)
    low, high = score.interval()
    assert low < score < high


def test_references_score_alike_however_they_are_stored(shared: Path) -> None:
    folder = shared / "data/multi30k/data/task2/raw"
    streams = [
        gzip.decompress((folder / f"test_2016.{n}.de.gz").read_bytes()).decode("utf-8").splitlines()[:NUM]
        for n in range(1, 6)
    ]
    hypotheses = streams[0]
    items = [list(texts) for texts in zip(*streams[1:], strict=True)]
    for metric, wanted in (
        (sacre_bleu, BLEU().corpus_score(hypotheses, streams[1:]).score),
        (chrf, CHRF().corpus_score(hypotheses, streams[1:]).score),
    ):
        ids = [str(n) for n in range(NUM)]
        stored = [items, tuple(map(tuple, items)), np.array(items, dtype=object)]
        for references in stored:
            assert metric(references, hypotheses) == pytest.approx(wanted, abs=1e-9)
        by_id = dict(reversed(list(zip(ids, items, strict=True))))
        named = metric(by_id, dict(zip(ids, hypotheses, strict=True)))
        assert named == pytest.approx(wanted, abs=1e-9)
        with pytest.raises(UserError, match=rf"for 4 items and hypotheses for {NUM} \(they look transposed"):
            metric(streams[1:], hypotheses)
        with pytest.raises(UserError, match=rf"for {NUM - 1} items and hypotheses for {NUM}"):
            metric(items[1:], hypotheses)


def test_items_may_have_different_numbers_of_references() -> None:
    score = sacre_bleu([["a b c d e"], ["x y z v w", "a b c d e"]], ["a b c d e", "a b c d e"])
    assert score == pytest.approx(100)
    assert "nrefs:var" in score.signature
    one = sacre_bleu([["a b c d e"], ["a b c d e"]], ["a b c d e", "a b c d e"])
    assert compare(score.signature, one.signature) == "not comparable: nrefs var against 1"


def test_mixed_kinds_and_unknown_tokenisers_are_one_line() -> None:
    with pytest.raises(UserError, match="both by id or both as lists"):
        sacre_bleu({"a": ["x"]}, ["x"])
    with pytest.raises(UserError, match="tokeniser 'nonsense' cannot be used"):
        sacre_bleu([["x"]], ["x"], tokenise="nonsense")
