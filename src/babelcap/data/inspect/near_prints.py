"""All pairs of fingerprints within a distance, found without comparing all with all, and without missing one.

The 128 bits are cut into eight bands of sixteen. Two prints that differ in at most d bits agree up to d // 8 bits in at
least one band; so each print of the smaller side is entered under every value that near, and the others are looked up.
"""

from collections.abc import Iterator
from itertools import combinations
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from babelcap.data.inspect.fingerprints import Prints, distances

NUM_BANDS, BAND_BITS = 8, 16
MAX_DISTANCE = 23  # beyond, three bits a band would have to be tried: as many entries as there are values
ROWS_PER_BLOCK = 8192


class NearPairs(NamedTuple):
    """Rows of the left and of the right side, and how many bits differ; by left row, then distance, then right row."""

    left: NDArray[np.int64]
    right: NDArray[np.int64]
    distances: NDArray[np.int64]


def near_pairs(left: Prints, right: Prints, max_distance: int) -> NearPairs:
    """`right` is held in memory 137 times over in two bands of eight; give the smaller side there."""
    if not 0 <= max_distance <= MAX_DISTANCE:
        raise ValueError(f"max_distance is {max_distance}; 0 to {MAX_DISTANCE} are exact")
    found = [np.zeros((0, 2), np.int64)]
    if len(left) and len(right):
        masks = _masks(max_distance // NUM_BANDS)
        for band in range(NUM_BANDS):
            found += _band_pairs(left, right, band, masks, max_distance)
    pairs = np.unique(np.concatenate(found), axis=0)
    bits = distances(left[pairs[:, 0]], right[pairs[:, 1]]) if len(pairs) else np.zeros(0, np.int64)
    order = np.lexsort((pairs[:, 1], bits, pairs[:, 0]))
    return NearPairs(pairs[order, 0], pairs[order, 1], bits[order])


def _masks(radius: int) -> NDArray[np.uint16]:
    """Every change of a band in at most so many bits."""
    bits = [1 << place for place in range(BAND_BITS)]
    return np.array([sum(some) for number in range(radius + 1) for some in combinations(bits, number)], np.uint16)


def _band(prints: Prints, band: int) -> NDArray[np.uint16]:
    column, shift = divmod(band, NUM_BANDS // 2)
    return (prints[:, column] >> np.uint64(BAND_BITS * shift)).astype(np.uint16)


def _band_pairs(
    left: Prints, right: Prints, band: int, masks: NDArray[np.uint16], max_distance: int
) -> Iterator[NDArray[np.int64]]:
    entries = (_band(right, band)[:, None] ^ masks[None]).ravel()
    order = np.argsort(entries, kind="stable")
    rows_right = (order // len(masks)).astype(np.int64)
    starts = np.concatenate([[0], np.cumsum(np.bincount(entries, minlength=1 << BAND_BITS))])
    values = _band(left, band).astype(np.int64)
    for start in range(0, len(left), ROWS_PER_BLOCK):
        block = values[start : start + ROWS_PER_BLOCK]
        first, number = starts[block], starts[block + 1] - starts[block]
        rows = np.repeat(np.arange(start, start + len(block)), number)
        # Within each run of entries: 0, 1, 2, ... from where the run begins.
        within = np.arange(len(rows)) - np.repeat(np.cumsum(number) - number, number)
        others = rows_right[np.repeat(first, number) + within]
        near = distances(left[rows], right[others]) <= max_distance
        yield np.stack([rows[near], others[near]], axis=1)
