"""From each image's candidates to its texts: at most N an image, a text at most `max_uses` times, no near-copies.

All candidates of a language are gone through once, best score first (then by text hash, then by image key), and a pair
is taken where image and text still have room and the image has nothing like the text yet. Images of the eval split
choose before all others, and what they took is barred from training. The result is the same in whatever shards the
images came.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from babelcap.config import ConfigModel


class SelectConfig(ConfigModel):
    num_texts: int = Field(4, ge=1)  # of each image and language
    min_score: float = Field(0.2, ge=-1, le=1)
    max_uses: int = Field(16, ge=1)  # of one text, over all images
    max_overlap: float = Field(0.7, gt=0, le=1)  # of two texts' words, for one image to take both


@dataclass(frozen=True)
class CandidateTable:
    """One row a candidate. Images are numbered in the order of their keys, so that ties are broken by key."""

    images: NDArray[np.int64]
    hashes: NDArray[np.uint64]
    scores: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.images)


def select_texts(
    table: CandidateTable, is_eval: NDArray[np.bool_], texts: Mapping[int, str], config: SelectConfig
) -> NDArray[np.int64]:
    """The rows that are taken, best first. `is_eval` is of each image; `texts` are the English sides by hash."""
    allowed = np.flatnonzero(table.scores >= config.min_score)
    order = allowed[np.lexsort((table.images[allowed], table.hashes[allowed], -table.scores[allowed]))]
    of_eval = is_eval[table.images[order]]
    barred: set[int] = set()
    taken = _choose(table, order[of_eval], texts, config, barred)
    barred = {int(table.hashes[row]) for row in taken}
    return np.array([*taken, *_choose(table, order[~of_eval], texts, config, barred)], np.int64)


def _choose(
    table: CandidateTable, order: NDArray[np.int64], texts: Mapping[int, str], config: SelectConfig, barred: set[int]
) -> list[int]:
    uses: dict[int, int] = {}
    chosen: dict[int, list[frozenset[str]]] = {}
    taken = []
    for row in order.tolist():
        image, text = int(table.images[row]), int(table.hashes[row])
        if text in barred or uses.get(text, 0) >= config.max_uses:
            continue
        before = chosen.setdefault(image, [])
        if len(before) >= config.num_texts:
            continue
        words = frozenset(texts[text].casefold().split())
        if any(_overlap(words, other) > config.max_overlap for other in before):
            continue
        before.append(words)
        uses[text] = uses.get(text, 0) + 1
        taken.append(row)
    return taken


def _overlap(first: frozenset[str], second: frozenset[str]) -> float:
    """Shared words over all words."""
    union = len(first | second)
    return len(first & second) / union if union else 1.0


def concatenate(tables: Sequence[CandidateTable]) -> CandidateTable:
    return CandidateTable(
        np.concatenate([table.images for table in tables]),
        np.concatenate([table.hashes for table in tables]),
        np.concatenate([table.scores for table in tables]),
    )
