"""Intervals and paired tests against what is known of them, and signatures that say what differs."""

import json
import pickle

import numpy as np
import pytest

from babelcap.errors import UserError
from babelcap.evaluation.metrics import Score, coco_scores, compare, paired_test
from babelcap.evaluation.metrics.bleu import combine_bleu
from babelcap.evaluation.metrics.score import Items, signature


def mean_score(values: np.ndarray, groups: list[int] | None = None) -> Score:
    ids = tuple(str(number) for number in range(len(values)))
    return Score("accuracy", "accuracy|version:1", Items(ids, values, groups=groups))


def test_the_interval_of_a_mean_is_that_of_theory() -> None:
    values = np.random.default_rng(1).normal(3, 2, 4000)
    score = mean_score(values)
    low, high = score.interval(num_replicates=4000)
    reach = 1.96 * values.std() / np.sqrt(4000)
    assert score.value == pytest.approx(values.mean())
    assert (low, high) == pytest.approx((values.mean() - reach, values.mean() + reach), abs=0.1 * reach)
    assert score.interval(seed=3) == score.interval(seed=3)


def test_a_score_is_a_number_and_stays_one() -> None:
    score = mean_score(np.array([1.0, 2.0]))
    assert score + 1 == 2.5
    assert json.dumps({"score": score}) == '{"score": 1.5}'
    again = pickle.loads(pickle.dumps(score))
    assert (again.value, again.signature, again.per_item) == (1.5, score.signature, {"0": 1, "1": 2})
    assert score.record() == {
        "name": "accuracy",
        "value": 1.5,
        "signature": "accuracy|version:1",
        "num_items": 2,
        "num_empty": 0,
    }


def test_items_of_one_group_are_drawn_together() -> None:
    """Each value four times: as groups, the interval is that of the fourth part."""
    values = np.random.default_rng(1).normal(0, 1, 500)
    alone = mean_score(values).interval()
    grouped = mean_score(np.repeat(values, 4), np.repeat(np.arange(500), 4).tolist()).interval()
    apart = mean_score(np.repeat(values, 4)).interval()
    assert grouped == pytest.approx(alone, abs=0.01)
    assert apart.high - apart.low < 0.6 * (grouped.high - grouped.low)


def test_bleu_of_a_replicate_is_bleu_of_its_items() -> None:
    """The vectorised bootstrap gives what scoring the drawn texts anew gives."""
    references = {str(n): [f"a b c d {n} e f"] for n in range(6)}
    hypotheses = {str(n): " ".join("abcdef"[: n + 1]) for n in range(6)}
    score = coco_scores(references, hypotheses, tokenised=True)["Bleu_2"]
    drawn = [0, 2, 2, 5, 3, 5]
    named = {f"{place}-{n}": str(n) for place, n in enumerate(drawn)}
    again = coco_scores(
        {new: references[old] for new, old in named.items()},
        {new: hypotheses[old] for new, old in named.items()},
        tokenised=True,
    )["Bleu_2"]
    rows = score.grouped_rows()[drawn].sum(axis=0, keepdims=True)
    assert combine_bleu(2)(rows)[0] == pytest.approx(again.value, rel=1e-12)


def test_paired_test_finds_a_small_steady_difference() -> None:
    noise = np.random.default_rng(2).normal(0, 1, 300)
    better, worse = mean_score(noise + 0.05), mean_score(noise)
    found = paired_test(better, worse)
    assert found.difference == pytest.approx(0.05)
    assert found.p_value < 0.01
    assert found.low == pytest.approx(0.05)
    assert found.high == pytest.approx(0.05)


def test_paired_test_of_a_system_with_itself() -> None:
    score = mean_score(np.arange(20.0))
    found = paired_test(score, score)
    assert (found.difference, found.low, found.high, found.p_value) == (0, 0, 0, 1)


def test_p_values_are_uniform_where_nothing_differs() -> None:
    generator = np.random.default_rng(4)
    drawn = [
        paired_test(mean_score(a), mean_score(b), num_replicates=200).p_value
        for a, b in generator.normal(size=(200, 2, 40))
    ]
    assert 0.4 < np.mean(drawn) < 0.6
    assert np.mean(np.array(drawn) < 0.1) < 0.18


def test_paired_tests_need_the_same_items_and_signature() -> None:
    with pytest.raises(UserError, match="found 3 and 2 items, 2 of them in both"):
        paired_test(mean_score(np.zeros(3)), mean_score(np.zeros(2)))
    other = Score("accuracy", "accuracy|version:2", Items(("0", "1"), np.zeros(2)))
    with pytest.raises(UserError, match="not comparable: version 1 against 2"):
        paired_test(mean_score(np.zeros(2)), other)


def test_signatures_say_what_differs() -> None:
    first = signature("CIDEr", {"tok": "ptb", "case": "lower"})
    assert first == "CIDEr|tok:ptb|case:lower"
    assert compare(first, first) == "comparable"
    assert compare(first, signature("CIDEr", {"tok": "stanza", "n": 4})) == (
        "not comparable: tok ptb against stanza, case lower against unstated, n unstated against 4"
    )
    assert compare("nrefs:1|tok:13a", "nrefs:5|tok:13a") == "not comparable: nrefs 1 against 5"
    assert compare(first, signature("ROUGE_L", {"tok": "ptb", "case": "lower"})) == (
        "not comparable: metric CIDEr against ROUGE_L"
    )
    with pytest.raises(ValueError, match="cannot be part"):
        signature("CIDEr", {"tok": "a|b"})
