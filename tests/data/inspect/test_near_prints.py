"""Near pairs: the same as comparing all with all, at every distance."""

import numpy as np
import pytest

from babelcap.data.inspect.fingerprints import Prints, distances
from babelcap.data.inspect.near_prints import MAX_DISTANCE, near_pairs


def flipped(prints: Prints, number: int, generator: np.random.Generator) -> Prints:
    """So many bits of each print changed, wherever."""
    bits = np.unpackbits(prints.view(np.uint8), axis=1)
    for row in bits:
        row[generator.choice(128, number, replace=False)] ^= 1
    return np.packbits(bits, axis=1).view(np.uint64)


@pytest.mark.parametrize("max_distance", [0, 7, 8, 15, 20, MAX_DISTANCE])
def test_nothing_near_is_missed_and_nothing_far_is_found(max_distance: int) -> None:
    generator = np.random.default_rng(max_distance)
    right = generator.integers(0, 2**64, (200, 2), dtype=np.uint64)
    copies = [flipped(right, number, generator) for number in range(MAX_DISTANCE + 3)]
    left = np.concatenate([*copies, generator.integers(0, 2**64, (300, 2), dtype=np.uint64)])
    found = near_pairs(left, right, max_distance)
    wanted = [
        (row, int(other), int(bits))
        for row, one in enumerate(left)
        for other, bits in enumerate(distances(one[None], right))
        if bits <= max_distance
    ]
    assert list(zip(*map(np.ndarray.tolist, found), strict=True)) == sorted(wanted, key=lambda row: (row[0], row[2]))
    assert len(wanted) == 200 * (max_distance + 1)


def test_either_side_may_be_empty() -> None:
    some, none = np.ones((3, 2), np.uint64), np.zeros((0, 2), np.uint64)
    assert len(near_pairs(some, none, 20).left) == len(near_pairs(none, some, 20).left) == 0


def test_a_distance_beyond_what_is_exact_is_refused() -> None:
    some = np.ones((3, 2), np.uint64)
    with pytest.raises(ValueError, match="max_distance is 24"):
        near_pairs(some, some, 24)
