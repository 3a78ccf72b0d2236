"""Retrieval through a space of sentences: does a caption, in whatever language, find its photograph among others?

photograph  y = mean of the vectors of what people wrote about it in English
caption     ŷ = ridge(x) = (x - x̄) W + ȳ, with W = (X'X + λ n I)⁻¹ X'Y over centred captions of other photographs
rank        by cos(ŷ - ȳ, y - ȳ); recall at k is the share of captions whose own photograph is among the first k

The map takes away what a language or a manner adds to a vector. No picture is looked at, so it is no CLIPScore: what
people did not mention does not count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from babelcap.errors import UserError
from babelcap.evaluation.metrics.score import VERSION, Items, Score, signature

Vectors = NDArray[np.float64]
RIDGE = 1e-3  # λ; vectors have length one


@dataclass(frozen=True)
class RidgeMap:
    weights: Vectors  # [width of captions, width of photographs]
    caption_mean: Vectors
    photograph_mean: Vectors

    def __call__(self, captions: Vectors) -> Vectors:
        """As far as they are from the mean photograph."""
        return (captions - self.caption_mean) @ self.weights


def fit_ridge(captions: Vectors, photographs: Vectors, strength: float = RIDGE) -> RidgeMap:
    """Rows belong together: a caption, and the photograph that it is of."""
    if len(captions) != len(photographs) or not len(captions):
        raise UserError(f"retrieval: found {len(captions)} captions and {len(photographs)} photographs to fit on")
    captions, photographs = np.asarray(captions, np.float64), np.asarray(photographs, np.float64)
    caption_mean, photograph_mean = captions.mean(axis=0), photographs.mean(axis=0)
    x, y = captions - caption_mean, photographs - photograph_mean
    gram = x.T @ x + strength * len(x) * np.eye(x.shape[1])
    return RidgeMap(np.linalg.solve(gram, x.T @ y), caption_mean, photograph_mean)


def ranks(found: Vectors, wanted: Vectors) -> NDArray[np.int64]:
    """The place of row i of `wanted` among its rows by the cosine with row i of `found`; a tie counts against it."""
    similar = _normalised(found) @ _normalised(wanted).T
    own = np.diagonal(similar)[:, None]
    before = (similar > own).sum(axis=1) + (similar == own).sum(axis=1) - 1
    return np.asarray(before + 1, dtype=np.int64)


def _normalised(rows: Vectors) -> Vectors:
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    result: Vectors = rows / np.where(lengths == 0, 1, lengths)
    return result


def recall_at(
    k: int,
    ids: Sequence[str],
    places: NDArray[np.int64],
    choices: Mapping[str, object],
    groups: Sequence[int] | None = None,
) -> Score:
    """0 to 100. `choices` name the encoder and how many photographs there are to choose from."""
    values = 100.0 * (places <= k)
    text = signature(f"R@{k}", {**choices, "ties": "against", "version": VERSION})
    return Score(f"R@{k}", text, Items(tuple(ids), values.astype(np.float64), groups=groups))
