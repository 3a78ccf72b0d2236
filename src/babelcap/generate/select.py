"""From each image's candidates to its texts: at most N an image, a text at most `max_uses` times, no near-copies.

All candidates of a language are gone through once, best score first (then by text hash, then by image key), and a pair
is taken where image and text still have room and the image has nothing like the text yet. Images of the eval split
choose before all others, and what they took is barred from training. The result is the same in whatever shards the
images came.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

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
    """One row a candidate. Images are numbered in the order of their keys and texts in that of their hashes, so that
    ties are broken by hash, then by key.
    """

    images: NDArray[np.int64]
    texts: NDArray[np.int64]
    scores: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.images)

    def only(self, rows: NDArray[np.int64] | NDArray[np.bool_]) -> Self:
        return type(self)(self.images[rows], self.texts[rows], self.scores[rows])

    @property
    def order(self) -> NDArray[np.int64]:
        """Best first."""
        return np.lexsort((self.images, self.texts, -self.scores))


def select_texts(
    blocks: Callable[[], Iterable[CandidateTable]],
    is_eval: NDArray[np.bool_],
    num_texts: int,
    words_of: Callable[[int], frozenset[str]],
    config: SelectConfig,
) -> Iterator[CandidateTable]:
    """What is taken, best first. `blocks()` gives all candidates best first, `words_of` a text's words by its number;
    `is_eval` is of each image. Held in memory: N + 1 numbers an image, one a text.
    """
    choice = _Choice(len(is_eval), num_texts, words_of, config)
    if is_eval.any():
        for block in blocks():
            yield choice.take(block.only(is_eval[block.images]))
        choice.bar_used()
    for block in blocks():
        yield choice.take(block.only(~is_eval[block.images]))


class _Choice:
    def __init__(
        self, num_images: int, num_texts: int, words_of: Callable[[int], frozenset[str]], config: SelectConfig
    ) -> None:
        self.words_of, self.config = words_of, config
        self.num_uses = np.zeros(num_texts, np.int32)
        self.num_taken = np.zeros(num_images, np.int32)
        self.taken = np.zeros((num_images, config.num_texts), np.int64)

    def take(self, block: CandidateTable) -> CandidateTable:
        # Most have no room left, which is seen at once; what fills up within the block is seen below.
        block = block.only(self._has_room(block))
        pairs = zip(block.images.tolist(), block.texts.tolist(), strict=True)
        return block.only(np.array([row for row, pair in enumerate(pairs) if self._takes(*pair)], np.int64))

    def bar_used(self) -> None:
        self.num_uses[self.num_uses > 0] = self.config.max_uses

    def _has_room(self, block: CandidateTable) -> NDArray[np.bool_]:
        image_has_room: NDArray[np.bool_] = self.num_taken[block.images] < self.config.num_texts
        return image_has_room & (self.num_uses[block.texts] < self.config.max_uses)

    def _takes(self, image: int, text: int) -> bool:
        number = int(self.num_taken[image])
        if number >= self.config.num_texts or self.num_uses[text] >= self.config.max_uses:
            return False
        if number:
            words = self.words_of(text)
            others = map(self.words_of, self.taken[image, :number].tolist())
            if any(_overlap(words, other) > self.config.max_overlap for other in others):
                return False
        self.taken[image, number] = text
        self.num_taken[image] += 1
        self.num_uses[text] += 1
        return True


def _overlap(first: frozenset[str], second: frozenset[str]) -> float:
    """Shared words over all words."""
    union = len(first | second)
    return len(first & second) / union if union else 1.0


def concatenate(tables: Sequence[CandidateTable]) -> CandidateTable:
    return CandidateTable(
        np.concatenate([np.zeros(0, np.int64), *(table.images for table in tables)]),
        np.concatenate([np.zeros(0, np.int64), *(table.texts for table in tables)]),
        np.concatenate([np.zeros(0, np.float64), *(table.scores for table in tables)]),
    )
