import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from babelcap.data.feed.permutation import derive_key, hash_numbers, permute, uniform


@given(size=st.integers(1, 3000), key=st.integers(0, 2**64 - 1))
def test_every_position_is_hit_once(size: int, key: int) -> None:
    assert np.array_equal(np.sort(permute(np.arange(size), size, key)), np.arange(size))


def test_each_element_has_its_own_size_and_key() -> None:
    sizes, keys = np.array([10, 1, 137_000_000]), np.array([3, 4, 5], dtype=np.uint64)
    together = permute(np.array([7, 0, 5_000_000]), sizes, keys)
    alone = [
        permute(np.array([position]), int(size), int(key))[0]
        for position, size, key in zip([7, 0, 5_000_000], sizes, keys, strict=True)
    ]
    assert together.tolist() == alone
    assert 0 <= together[2] < 137_000_000


def test_small_permutations_are_all_about_as_likely() -> None:
    keys = hash_numbers(1, np.arange(24_000))[:, None]
    _, counts = np.unique(permute(np.arange(4)[None, :], 4, keys), axis=0, return_counts=True)
    assert len(counts) == 24
    assert counts.min() > 850
    assert counts.max() < 1150


def test_a_large_permutation_looks_random() -> None:
    size = 100_000
    permuted = permute(np.arange(size), size, derive_key(0, "test"))
    assert abs(np.corrcoef(permuted, np.arange(size))[0, 1]) < 0.02
    assert abs(np.corrcoef(permuted[:-1], permuted[1:])[0, 1]) < 0.02


def test_numbers_are_pinned_for_ever() -> None:
    """A change here changes every training run that was ever made."""
    assert derive_key(17, "pair", "caption-en") == 4455149435486344518
    assert hash_numbers(5, np.array([0, 1, 2**40])).tolist() == [
        15876206117741915742,
        15989013406966393657,
        8948062979023128252,
    ]
    assert permute(np.arange(8), 8, 5).tolist() == [7, 5, 4, 6, 2, 0, 1, 3]


def test_uniform_draws() -> None:
    draws = uniform(derive_key(3, "prefix"), np.arange(100_000))
    assert draws.min() >= 0
    assert draws.max() < 1
    assert abs(draws.mean() - 0.5) < 0.005
