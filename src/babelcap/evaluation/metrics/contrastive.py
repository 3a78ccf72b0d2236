"""Contrastive accuracy (CoMMuTE): the share of items whose right answer has the lower mean loss over its tokens.

Every token of the answer counts, from the first on. A tie is no decision: it counts as wrong and is reported. Items are
in pairs with one source and two pictures, drawn together; a pair is consistent when both are right.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from babelcap.errors import UserError
from babelcap.evaluation.metrics.score import VERSION, Array, Items, Score, signature


@dataclass(frozen=True)
class ContrastiveAccuracy:
    """Shares from 0 to 1; ids of the items whose two losses are equal."""

    items: Score
    pairs: Score | None
    ties: tuple[str, ...]

    @property
    def num_right(self) -> int:
        return round(self.items.value * self.items.num_items)


def contrastive_accuracy(
    right: Mapping[str, Sequence[float]], wrong: Mapping[str, Sequence[float]], pairs: Sequence[int] | None = None
) -> ContrastiveAccuracy:
    """Token losses of the right and of the wrong answer by item, and the pair each item belongs to, in that order."""
    if list(right) != list(wrong):
        raise UserError(
            f"contrastive accuracy: found losses of {len(right)} right and {len(wrong)} wrong answers, "
            f"{len(set(right) & set(wrong))} items in both; give the same items in the same order"
        )
    if pairs is not None and len(pairs) != len(right):
        raise UserError(f"contrastive accuracy: found {len(right)} items and the pairs of {len(pairs)}")
    ids = tuple(right)
    found, other = _means(right), _means(wrong)
    values = (found < other).astype(np.float64)
    ties = tuple(key for key, same in zip(ids, found == other, strict=True) if same)
    choices = {"loss": "mean-over-answer-tokens", "ties": "wrong", "version": VERSION}
    text = signature("accuracy", choices | {"resampled": "items" if pairs is None else "pairs"})
    accuracy = Score("accuracy", text, Items(ids, values, groups=pairs))
    return ContrastiveAccuracy(accuracy, None if pairs is None else _consistent(values, pairs, choices), ties)


def _means(losses: Mapping[str, Sequence[float]]) -> Array:
    empty = next((key for key, values in losses.items() if not len(values)), None)
    if empty is not None:
        raise UserError(f"contrastive accuracy: '{empty}' has 0 token losses; an answer has at least 1 token")
    means = np.array([float(np.mean(values)) for values in losses.values()])
    if not np.isfinite(means).all():
        raise UserError(f"contrastive accuracy: {int((~np.isfinite(means)).sum())} losses are not finite numbers")
    return means


def _consistent(values: Array, pairs: Sequence[int], choices: Mapping[str, object]) -> Score:
    names, numbers, sizes = np.unique(np.asarray(pairs), return_inverse=True, return_counts=True)
    both = np.bincount(numbers, weights=values) == sizes
    ids = tuple(str(name) for name in names)
    return Score("pair accuracy", signature("pair-accuracy", choices), Items(ids, both.astype(np.float64)))


def answer_span(prompt: Sequence[int], with_nothing: Sequence[int], with_answer: Sequence[int]) -> slice:
    """Where the answer's tokens are, by difference of ids.

    `prompt` is what the answer follows, `with_nothing` the same with an empty answer and what the template puts behind
    it, `with_answer` the whole. What the template adds is not counted, and the answer's first token is.
    """
    start = 0
    while start < min(len(prompt), len(with_answer)) and prompt[start] == with_answer[start]:
        start += 1
    behind = list(with_nothing[len(prompt) :])
    end = len(with_answer) - len(behind)
    if end <= start or list(with_answer[end:]) != behind:
        raise UserError(f"no answer found in {len(with_answer)} tokens after a prompt of {len(prompt)}")
    return slice(start, end)
