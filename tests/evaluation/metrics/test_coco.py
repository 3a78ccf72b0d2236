"""CIDEr-D, ROUGE-L and BLEU against the COCO tools' own scores, and by hand where the tools gave none."""

import json
import math
import random
from collections import Counter
from pathlib import Path

import pytest

from babelcap.errors import UserError
from babelcap.evaluation.metrics import coco_scores
from babelcap.evaluation.metrics.rouge import common_length


def test_the_tools_own_scores(shared: Path) -> None:
    data = json.loads((shared / "data/metric_parity/coco_fakecap_126.json").read_text())
    hypotheses = {key: texts[0] for key, texts in data["tokenized_res"].items()}
    scores = coco_scores(data["tokenized_gts"], hypotheses, tokenised=True)
    wanted = {name: data["scores"][name] for name in ("CIDEr", "ROUGE_L")}
    wanted |= {f"Bleu_{n}": value for n, value in enumerate(data["scores"]["Bleu"], 1)}
    assert set(scores) == set(wanted)
    for name, value in wanted.items():
        assert scores[name] == pytest.approx(value, abs=1e-6)
        assert scores[name].num_items == 126
    for name in ("CIDEr", "ROUGE_L"):  # these are means over images
        per_item = scores[name].per_item
        assert math.fsum(per_item.values()) / len(per_item) == pytest.approx(wanted[name], abs=1e-9)


def test_cider_by_hand() -> None:
    """Two images without a common word: every n-gram has idf log 2, which cancels out between the vectors."""
    references = {"a": ["red dog"], "b": ["blue cat sits"]}
    score = coco_scores(references, {"a": "red dog", "b": "blue cat"}, tokenised=True)["CIDEr"]
    # a: orders 1 and 2 agree fully, orders 3 and 4 are empty: (1 + 1) / 4 * 10
    assert score.per_item["a"] == pytest.approx(5)
    # b: of 3 words 2: 2 / (sqrt 2 sqrt 3); of 2 bigrams 1: 1 / sqrt 2; one bigram less: exp(-1 / 72)
    wanted = 10 / 4 * (2 / math.sqrt(6) + 1 / math.sqrt(2)) * math.exp(-1 / 72)
    assert score.per_item["b"] == pytest.approx(wanted)
    assert score == pytest.approx((5 + wanted) / 2)


def test_cider_clips_and_counts_a_phrase_of_all_images_for_nothing() -> None:
    references = {"a": ["x a"], "b": ["x b"]}
    scores = coco_scores(references, {"a": "a a a", "b": "x"}, tokenised=True)["CIDEr"].per_item
    # "x" is in both images: weight 0. a: min(3, 1) * 1 / (3 * 1) words; bigrams: (a a) twice against (x a) once
    assert scores["a"] == pytest.approx(10 / 4 * (1 / 3) * math.exp(-1 / 72))
    assert scores["b"] == 0


def test_bleu_by_hand() -> None:
    references = {"a": ["the cat sat", "a cat"], "b": ["one two three four"]}
    scores = coco_scores(references, {"a": "the the cat", "b": "one two"}, tokenised=True)
    brevity = math.exp(1 - 7 / 5)  # lengths 3 + 2, closest references 3 + 4
    assert scores["Bleu_1"] == pytest.approx(4 / 5 * brevity, rel=1e-8)
    assert scores["Bleu_2"] == pytest.approx(math.sqrt(4 / 5 * 2 / 3) * brevity, rel=1e-8)
    assert scores["Bleu_1"].per_item["b"] == pytest.approx(math.exp(1 - 2), rel=1e-8)


def test_rouge_by_hand() -> None:
    references = {"a": ["the black cat sat", "cat"], "b": ["dog"]}
    score = coco_scores(references, {"a": "the cat ran", "b": "bird"}, tokenised=True)["ROUGE_L"]
    precision, recall = 2 / 3, 1.0  # the best precision is against the first, the best recall against the second
    assert score.per_item["a"] == pytest.approx(2.44 * precision * recall / (recall + 1.44 * precision))
    assert score.per_item["b"] == 0
    assert common_length("abcbdab", "bdcaba") == 4


def cider_by_definition(references: dict[str, list[str]], hypotheses: dict[str, str]) -> list[float]:
    """The equation with dictionaries, a word at a time."""

    def grams(text: str, n: int) -> Counter[tuple[str, ...]]:
        words = text.split()
        return Counter(tuple(words[start : start + n]) for start in range(len(words) - n + 1))

    def similarity(hypothesis: str, reference: str, n: int) -> float:
        frequency = Counter(gram for texts in references.values() for gram in {g for t in texts for g in grams(t, n)})
        vectors = [
            {g: tf * (math.log(len(references)) - math.log(max(1, frequency[g]))) for g, tf in grams(text, n).items()}
            for text in (hypothesis, reference)
        ]
        product = sum(min(weight, vectors[1].get(g, 0)) * vectors[1].get(g, 0) for g, weight in vectors[0].items())
        norm = math.prod(math.sqrt(sum(weight**2 for weight in vector.values())) for vector in vectors)
        difference = grams(hypothesis, 2).total() - grams(reference, 2).total()
        return (product / norm if norm else product) * math.exp(-(difference**2) / 72)

    return [
        10 * sum(similarity(hypotheses[key], text, n) / 4 for text in texts for n in range(1, 5)) / len(texts)
        for key, texts in references.items()
    ]


@pytest.mark.parametrize("seed", range(30))
def test_cider_of_each_image_by_its_definition(seed: int) -> None:
    generator = random.Random(seed)

    def caption() -> str:
        return " ".join(
            generator.choice("abcdefgh"[: 1 + seed % 8]) for _ in range(generator.choice([0, 1, 2, 3, 5, 8]))
        )

    references = {str(n): [caption() for _ in range(generator.randint(1, 4))] for n in range(generator.randint(2, 6))}
    hypotheses = {key: caption() for key in references}
    found = coco_scores(references, hypotheses, tokenised=True)["CIDEr"].per_item
    assert list(found.values()) == pytest.approx(cider_by_definition(references, hypotheses), abs=1e-9)


def test_nothing_but_empty_texts() -> None:
    scores = coco_scores({"a": [""], "b": ["", ""]}, {"a": "", "b": ""})
    assert all(score == 0 for score in scores.values())


def test_empty_hypotheses_score_nothing_and_are_counted() -> None:
    references = {"a": ["a red dog runs"], "b": ["a blue cat sits"], "c": ["one two three four"]}
    scores = coco_scores(references, {"a": "a red dog runs", "b": "", "c": " \n"})
    for score in scores.values():
        assert score.per_item["b"] == score.per_item["c"] == 0
        assert score.num_empty == 2
        assert score.num_items == 3
    assert scores["CIDEr"] == pytest.approx(10 / 3)


@pytest.mark.parametrize(
    ("references", "hypotheses", "message"),
    [
        ({"a": ["x"]}, {"a": "x"}, r"found 1 image; .* give at least 2"),
        ({"a": ["x"], "b": ["y"]}, {"a": "x"}, r"for 2 items and hypotheses for 1; 'b' has no hypothesis"),
        ({"a": ["x"]}, {"a": "x", "b": "y"}, r"for 1 items and hypotheses for 2; 'b' has no references"),
        ({"a": ["x"], "b": []}, {"a": "x", "b": "y"}, r"references of 'b': found 0; each of the 2 items"),
        ({"a": ["x"], "b": "y"}, {"a": "x", "b": "y"}, r"references of 'b': expected a list of texts"),
        ({"a": ["x"], "b": ["y"]}, {"a": "x", "b": ["y"]}, r"hypothesis of 'b': expected one text, found a list"),
        ({}, {}, r"found 0 items"),
    ],
)
def test_what_cannot_be_scored(references: dict, hypotheses: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        coco_scores(references, hypotheses)
