"""A corpus seen otherwise: reads as a CorpusIndex does, but for what a subclass answers in its own way."""

import numpy as np

from babelcap.coverage import Pair
from babelcap.data.store.index import CorpusIndex
from babelcap.records import Annotation


class IndexView:
    def __init__(self, index: CorpusIndex) -> None:
        self.index = index

    def annotation(self, row: int) -> Annotation:
        return self.index.annotation(row)

    def image_number(self, row: int) -> int:
        return self.index.image_number(row)

    def read_image(self, image_number: int) -> bytes:
        return self.index.read_image(image_number)

    def text_bytes(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.index.text_bytes(rows)

    def pairs(self, split: str) -> tuple[Pair, ...]:
        return self.index.pairs(split)

    def rows(self, split: str, pair: Pair) -> np.ndarray:
        return self.index.rows(split, pair)
