"""What a picture looks like in 128 bits: two prints of a file renamed, re-encoded or resized differ in few of them.

dct       64 low frequencies of the grey picture at 32 x 32, each above or below their median (a DCT hash, "pHash")
gradient  at 9 x 8, whether each grey value is above its left neighbour's ("dHash")

The distance of two pictures is the number of bits that differ. What it withstands was measured: docs/finetune.md.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from babelcap.data.feed.images import ImageInput, decode_image

DCT_SIZE_PX = 32
NUM_FREQUENCIES = 64
DECODED_SIZE_PX = 128  # a large JPEG is decoded no smaller than this
Prints = NDArray[np.uint64]  # [pictures, 2]: dct, gradient


def fingerprint(source: ImageInput) -> Prints:
    """[2]. Raises BadSample where the picture cannot be decoded."""
    grey = decode_image(source, size_px=DECODED_SIZE_PX).convert("L")
    return np.array([_pack(_dct_bits(grey)), _pack(_gradient_bits(grey))], np.uint64)


def distances(left: Prints, right: Prints) -> NDArray[np.int64]:
    """Bits that differ, row by row."""
    return np.bitwise_count(left ^ right).sum(axis=-1, dtype=np.int64)


def _dct_bits(grey: Image.Image) -> NDArray[np.bool_]:
    matrix, rows, columns = _transform()
    pixels = np.asarray(grey.resize((DCT_SIZE_PX, DCT_SIZE_PX), Image.Resampling.LANCZOS), dtype=np.float64)
    # Rounded, so that a picture of one grey has no frequencies instead of the noise of rounding errors.
    found = (matrix @ pixels @ matrix.T)[rows, columns].round(6)
    return found > np.median(found)


def _gradient_bits(grey: Image.Image) -> NDArray[np.bool_]:
    pixels = np.asarray(grey.resize((9, 8), Image.Resampling.LANCZOS), dtype=np.int16)
    return (pixels[:, 1:] > pixels[:, :-1]).ravel()


@cache
def _transform() -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """The DCT-II as a matrix, and where the lowest frequencies lie: by diagonals, without the mean."""
    frequency, place = np.arange(DCT_SIZE_PX)[:, None], np.arange(DCT_SIZE_PX)[None]
    matrix = np.cos(np.pi * frequency * (2 * place + 1) / (2 * DCT_SIZE_PX)) * np.sqrt(2 / DCT_SIZE_PX)
    matrix[0] /= np.sqrt(2)
    found = [(row, column) for row in range(DCT_SIZE_PX) for column in range(DCT_SIZE_PX)]
    lowest = sorted(found, key=lambda at: (sum(at), at[0]))[1 : NUM_FREQUENCIES + 1]
    rows, columns = np.array(lowest).T
    return matrix, rows, columns


def _pack(bits: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(bits).tobytes(), "big")
