"""Contrastive accuracy by hand, and a scorer that does not see the picture on the real CoMMuTE."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from babelcap.errors import UserError
from babelcap.evaluation.benchmarks.commute import pair_numbers, read_commute
from babelcap.evaluation.metrics import contrastive_accuracy
from babelcap.evaluation.metrics.contrastive import answer_span


def test_by_hand() -> None:
    right = {"a": [1.0, 1.0], "b": [3.0], "c": [0.5, 1.5, 1.0], "d": [2.0]}
    wrong = {"a": [1.0, 2.0], "b": [1.0, 9.0], "c": [1.0], "d": [1.0]}
    found = contrastive_accuracy(right, wrong, [0, 0, 1, 1])
    assert found.items == 0.5  # a and b; c is a tie, and b is judged by means, not by sums or by first tokens
    assert found.items.per_item == {"a": 1, "b": 1, "c": 0, "d": 0}
    assert found.num_right == 2
    assert found.pairs == 0.5
    assert found.ties == ("c",)
    assert contrastive_accuracy(right, wrong).pairs is None


def test_the_first_token_counts() -> None:
    """A model that only has a preference for one first token decides."""
    right = {str(n): [0.1, 2.0, 2.0] for n in range(4)}
    wrong = {str(n): [4.0, 2.0, 2.0] for n in range(4)}
    assert contrastive_accuracy(right, wrong).items == 1


def blind_losses(texts: dict[str, tuple[str, str]]) -> dict[str, list[float]]:
    """Any function of source and answer, whatever the picture."""
    return {
        key: [int(hashlib.sha256(f"{text} {place}".encode()).hexdigest()[:8], 16) / 2**32 for place in range(5)]
        for key, text in texts.items()
    }


@pytest.mark.parametrize(
    ("language", "num_right", "num_items", "num_ties"),
    [("de", 150, 300, 0), ("fr", None, 308, 0), ("ru", 159, 324, 6), ("zh", 162, 324, 0)],
)
def test_blind_to_the_picture(
    shared: Path, language: str, num_right: int | None, num_items: int, num_ties: int
) -> None:
    items = read_commute(shared / "data", [language])
    right = blind_losses({item.id: (item.source or "", item.references[0]) for item in items})
    wrong = blind_losses({item.id: (item.source or "", item.contrast or "") for item in items})
    found = contrastive_accuracy(right, wrong, pair_numbers(len(items)))
    print(f"blind scorer, {language}: {found.num_right}/{found.items.num_items}, {len(found.ties)} ties")
    assert found.items.num_items == num_items
    assert len(found.ties) == num_ties
    if num_right is not None:  # in French, 2 of the 154 pairs are not mirrored
        assert found.num_right == num_right
        assert found.pairs == 0
    else:
        assert 152 <= found.num_right <= 156
    # Pairs are drawn together: where each has one right, the interval has no width.
    low, high = found.items.interval()
    assert (high - low < 0.04) if num_ties or num_right is None else (low == high == 0.5)


def test_pairs_drawn_together_are_wider_where_they_agree() -> None:
    values = np.repeat(np.random.default_rng(0).integers(2, size=100), 2)
    right = {str(n): [1.0 - value] for n, value in enumerate(values)}
    wrong = {str(n): [0.5] for n in range(200)}
    together = contrastive_accuracy(right, wrong, pair_numbers(200)).items.interval()
    apart = contrastive_accuracy(right, wrong).items.interval()
    assert together.high - together.low > 1.25 * (apart.high - apart.low)


def test_mistakes_are_one_line() -> None:
    with pytest.raises(UserError, match="losses of 1 right and 2 wrong answers, 1 items in both"):
        contrastive_accuracy({"a": [1]}, {"a": [1], "b": [2]})
    with pytest.raises(UserError, match="found 1 items and the pairs of 2"):
        contrastive_accuracy({"a": [1]}, {"a": [1]}, [0, 0])
    with pytest.raises(UserError, match="'a' has 0 token losses"):
        contrastive_accuracy({"a": []}, {"a": [1]})
    with pytest.raises(UserError, match="1 losses are not finite"):
        contrastive_accuracy({"a": [float("nan")]}, {"a": [1]})


def test_answer_span() -> None:
    prompt, behind = [1, 2, 3], [9, 10]
    assert answer_span(prompt, prompt + behind, [1, 2, 3, 7, 8, 9, 10]) == slice(3, 5)
    assert answer_span(prompt, prompt, [1, 2, 3, 7]) == slice(3, 4)
    # An answer that begins or ends like what stands behind it keeps all of its tokens.
    assert answer_span(prompt, prompt + behind, [1, 2, 3, 9, 8, 10, 9, 10]) == slice(3, 6)
    with pytest.raises(UserError, match="no answer found"):
        answer_span(prompt, prompt + behind, prompt + behind)
