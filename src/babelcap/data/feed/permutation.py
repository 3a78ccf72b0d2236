"""Seeded permutations and draws at random access: no table, no state, the same numbers on every machine for ever.

A permutation of n things is a Feistel network on the next power of two, walked until it lands below n:
(L, R) -> (R, L xor hash(key, round, R)) is invertible whatever the hash, so every position is hit exactly once.
"""

import hashlib

import numpy as np

NUM_ROUNDS = 8  # even, so that halves of unequal width end where they began; eight also mixes the smallest sizes well
GOLDEN = np.uint64(0x9E3779B97F4A7C15)
FIRST = np.uint64(0xBF58476D1CE4E5B9)
SECOND = np.uint64(0x94D049BB133111EB)
ONE = np.uint64(1)


def derive_key(*parts: object) -> int:
    """A 64-bit key from a seed and what it is for; another purpose gives an unrelated key."""
    return int.from_bytes(hashlib.blake2b("/".join(map(str, parts)).encode(), digest_size=8).digest(), "little")


def hash_numbers(keys: np.ndarray | int, numbers: np.ndarray) -> np.ndarray:
    """Uniform 64-bit numbers, one for each (key, number)."""
    numbers = np.atleast_1d(np.asarray(numbers)).astype(np.uint64)
    mixed = _mix(numbers * GOLDEN + FIRST)
    return _mix(mixed ^ np.atleast_1d(np.asarray(keys, dtype=np.uint64)))


def uniform(key: int, numbers: np.ndarray) -> np.ndarray:
    """float64 in [0, 1), one for each number."""
    return (hash_numbers(key, numbers) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def permute(positions: np.ndarray, sizes: np.ndarray | int, keys: np.ndarray | int) -> np.ndarray:
    """Where each position goes in a permutation of its own `size` under its own `key`; arrays broadcast."""
    shape = np.broadcast_shapes(np.shape(positions), np.shape(sizes), np.shape(keys))
    value = np.broadcast_to(np.asarray(positions, dtype=np.uint64), shape).reshape(-1).copy()
    size = np.broadcast_to(np.asarray(sizes, dtype=np.uint64), shape).reshape(-1)
    key = np.broadcast_to(np.asarray(keys, dtype=np.uint64), shape).reshape(-1)
    if (value >= size).any():
        raise ValueError("a position is outside of its permutation")
    num_bits = np.maximum(_bit_length(size - ONE), 2).astype(np.uint64)
    walking = np.flatnonzero(size > ONE)
    while walking.size:
        value[walking] = _feistel(value[walking], num_bits[walking], key[walking])
        walking = walking[value[walking] >= size[walking]]
    return value.astype(np.int64).reshape(shape)


def _feistel(value: np.ndarray, num_bits: np.ndarray, key: np.ndarray) -> np.ndarray:
    right_bits = num_bits >> ONE
    left_bits = num_bits - right_bits
    left, right = value >> right_bits, value & ((ONE << right_bits) - ONE)
    left_mask, right_mask = (ONE << left_bits) - ONE, (ONE << right_bits) - ONE
    for number in range(NUM_ROUNDS):
        round_key = key + np.uint64((number + 1) * int(GOLDEN) % 2**64)
        left, right = right, left ^ (_mix((right + ONE) * SECOND ^ round_key) & left_mask)
        left_mask, right_mask = right_mask, left_mask
    return (left << right_bits) | right


def _mix(value: np.ndarray) -> np.ndarray:
    """Spreads every bit over all 64 (xor-shift and multiply, twice)."""
    value = (value ^ (value >> np.uint64(30))) * FIRST
    value = (value ^ (value >> np.uint64(27))) * SECOND
    return value ^ (value >> np.uint64(31))


def _bit_length(value: np.ndarray) -> np.ndarray:
    return np.frexp(value.astype(np.float64))[1]
