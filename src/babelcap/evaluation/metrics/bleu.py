"""BLEU-1 to BLEU-4 as the COCO caption tools compute them (0 to 1; other constants and lengths than sacreBLEU).

bleu_n = (product of (correct_k + 1e-15) / (guessed_k + 1e-9), k <= n)^(1/n) * exp(1 - reference / length), if shorter;
the reference length is that of each image's closest reference, the shorter one of two that are as close.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from babelcap.evaluation.metrics.grams import MAX_N, Captions, Grams, count_captions, match_rows
from babelcap.evaluation.metrics.score import Array, Combine

TINY, SMALL = 1e-15, 1e-9
CHOICES = {"smooth": "tiny1e-15-small1e-9", "reflen": "closest", "scale": 1}


def bleu_statistics(
    references: Mapping[str, Sequence[Sequence[str]]], hypotheses: Mapping[str, Sequence[str]]
) -> Array:
    """[image, (4 correct, 4 guessed, length, reference length)]."""
    captions = count_captions(references, hypotheses)
    num_images = captions.num_images
    length = captions.lengths[:num_images]
    correct = [_correct(captions, grams) for grams in captions.grams]
    guessed = [np.maximum(length - n, 0) for n in range(MAX_N)]
    image, lengths = captions.image[num_images:], captions.lengths[num_images:]
    order = np.lexsort((lengths, np.abs(lengths - length[image]), image))  # the closest of each image first
    _, first = np.unique(image[order], return_index=True)
    return np.stack([*correct, *guessed, length, lengths[order][first]], axis=1).astype(np.float64)


def _correct(captions: Captions, grams: Grams) -> Array:
    """[image]: n-grams of the hypothesis, each at most as often as in the reference that has it most often."""
    rows, found = match_rows(captions, grams, grams.times)
    keys = captions.image[grams.text[rows]] * grams.num_grams + grams.gram[rows]
    common = np.minimum(found, grams.times[rows])
    order = np.lexsort((-common, keys))
    unique, first = np.unique(keys[order], return_index=True)
    sums = np.bincount(unique // grams.num_grams, weights=common[order][first], minlength=captions.num_images)
    return sums.astype(np.float64)


def combine_bleu(n: int) -> Combine:
    def combine(sums: Array) -> Array:
        correct, guessed = sums[:, :n], sums[:, MAX_N : MAX_N + n]
        precision = np.prod((correct + TINY) / (guessed + SMALL), axis=1) ** (1 / n)
        ratio = (sums[:, -2] + TINY) / (sums[:, -1] + SMALL)
        return np.asarray(precision * np.exp(np.minimum(0.0, 1 - 1 / ratio)))

    return combine
