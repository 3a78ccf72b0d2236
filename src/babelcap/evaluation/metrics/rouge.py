"""ROUGE-L as the COCO caption tools compute it (0 to 1).

The longest common subsequence over the hypothesis' length is precision, over the reference's it is recall; the best of
both over the references, each for itself, gives  (1 + b^2) P R / (R + b^2 P)  with b = 1.2.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from babelcap.evaluation.metrics.score import Array

BETA = 1.2
CHOICES = {"beta": BETA, "references": "best-precision-and-recall-apart", "scale": 1}


def rouge_values(references: Mapping[str, Sequence[Sequence[str]]], hypotheses: Mapping[str, Sequence[str]]) -> Array:
    return np.array([_rouge(hypotheses[key], texts) for key, texts in references.items()])


def _rouge(tokens: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    if not any(tokens):
        return 0.0
    lengths = [(common_length(tokens, text), max(1, len(text))) for text in references]
    precision = max(common for common, _ in lengths) / len(tokens)
    recall = max(common / length for common, length in lengths)
    if precision == 0 or recall == 0:
        return 0.0
    return (1 + BETA**2) * precision * recall / (recall + BETA**2 * precision)


def common_length(first: Sequence[str], second: Sequence[str]) -> int:
    """The length of the longest common subsequence, with a row of the table as the bits of one number.

    Bit i is 0 where the subsequence grows by the i-th word of the second text.
    """
    places: dict[str, int] = {}
    for index, word in enumerate(second):
        places[word] = places.get(word, 0) | 1 << index
    row = full = (1 << len(second)) - 1
    for word in first:
        grown = row & places.get(word, 0)
        row = (row + grown | row - grown) & full
    return len(second) - row.bit_count()
