"""A corpus seen with the images of one task exchanged: its annotations stay, each with the picture of another image.

The images that have such annotations in the split are put in a random order, a pure function of the seed, and each
gives way to the next one: one cycle through all of them, so that no annotation keeps its own picture.
"""

import numpy as np

from babelcap.coverage import Pair
from babelcap.data.feed.permutation import derive_key, permute
from babelcap.data.feed.view import IndexView
from babelcap.data.store.index import CorpusIndex
from babelcap.errors import UserError

ROWS_AT_ONCE = 1 << 20


class ExchangedImages(IndexView):
    """Only `image_number` answers otherwise, for annotations of the task."""

    def __init__(self, index: CorpusIndex, task: str, split: str, seed: int) -> None:
        super().__init__(index)
        self.task = task
        pairs = [pair for pair in index.pairs(split) if str(pair.task) == task]
        if not pairs:
            known = ", ".join(dict.fromkeys(str(pair.task) for pair in index.pairs(split)))
            raise UserError(
                f"data.exchange_images: '{task}' is no task of {index.corpus.folder}, split '{split}' (it has: {known})"
            )
        images = np.flatnonzero(self._has_rows(pairs, split))
        if len(images) < 2:
            raise UserError(f"data.exchange_images: {len(images)} image has {task} annotations; two are needed")
        key = derive_key(seed, "exchange images", task)
        order = images[permute(np.arange(len(images)), len(images), key)]
        self._instead = np.arange(index.num_images)
        self._instead[order] = np.roll(order, -1)

    def _has_rows(self, pairs: list[Pair], split: str) -> np.ndarray:
        """[images] bool, without holding the image numbers of all rows."""
        found = np.zeros(self.index.num_images, dtype=bool)
        for pair in pairs:
            rows = self.index.rows(split, pair)
            for start in range(0, len(rows), ROWS_AT_ONCE):
                found[self.index.image_numbers(rows[start : start + ROWS_AT_ONCE])] = True
        return found

    def image_number(self, row: int) -> int:
        number = self.index.image_number(row)
        return int(self._instead[number]) if str(self.index.pair(row).task) == self.task else number
