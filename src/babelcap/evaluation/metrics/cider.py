"""CIDEr-D as the COCO caption tools compute it (not scaled: 1.2 is what papers print as 120).

For n = 1..4, captions are vectors of tf-idf over n-grams; an image scores 10 times the mean over n and over its
references of  sum(min(h, r) * r) / (|h| |r|) * exp(-(length difference)^2 / (2 * 6^2)).  The idf is that of the given
references, and the tools' "length" is the number of bigrams, not of words.
"""

import math
from collections.abc import Mapping, Sequence

import numpy as np

from babelcap.errors import UserError
from babelcap.evaluation.metrics.grams import MAX_N, Captions, Grams, count_captions, match_rows, unique_rows
from babelcap.evaluation.metrics.score import Array

SIGMA = 6.0
CHOICES = {"variant": "D", "n": MAX_N, "sigma": 6, "length": "bigrams", "idf": "given-references", "scale": 1}


def cider_values(references: Mapping[str, Sequence[Sequence[str]]], hypotheses: Mapping[str, Sequence[str]]) -> Array:
    """The score of each image; the corpus score is their mean."""
    if len(references) < 2:
        raise UserError(
            f"CIDEr: found {len(references)} image; its weights come from how rare a phrase is among images, so that "
            "one image alone scores 0 whatever is said; give at least 2"
        )
    captions = count_captions(references, hypotheses)
    similarity = sum(_similarity(captions, grams) for grams in captions.grams) / MAX_N
    bigrams = np.maximum(captions.lengths - 1, 0)
    image = captions.image[captions.num_images :]
    difference = bigrams[image] - bigrams[captions.num_images :]
    scores = similarity * np.exp(-(difference**2) / (2 * SIGMA**2))
    return 10 * np.bincount(image, weights=scores) / np.bincount(image)


def _similarity(captions: Captions, grams: Grams) -> Array:
    """[reference]: the clipped cosine of each with its image's hypothesis."""
    weights = grams.times * _idf(captions, grams)[grams.gram]
    norms = np.sqrt(np.bincount(grams.text, weights=weights**2, minlength=len(captions.image)))
    rows, found = match_rows(captions, grams, weights)
    wanted, reference = weights[rows], grams.text[rows] - captions.num_images
    num_references = len(captions.image) - captions.num_images
    products = np.bincount(reference, weights=np.minimum(found, wanted) * wanted, minlength=num_references)
    norm = norms[captions.image[captions.num_images :]] * norms[captions.num_images :]
    return products / np.where(norm > 0, norm, 1)


def _idf(captions: Captions, grams: Grams) -> Array:
    """[n-gram]: log of the number of images over that of those with the n-gram in a reference, at least 1."""
    of_references = grams.text >= captions.num_images
    keys = captions.image[grams.text[of_references]] * grams.num_grams + grams.gram[of_references]
    frequency = np.bincount(unique_rows(keys)[0] % grams.num_grams, minlength=grams.num_grams)
    return math.log(captions.num_images) - np.log(np.maximum(frequency, 1))
