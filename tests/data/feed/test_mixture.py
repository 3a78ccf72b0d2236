import pickle
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from babelcap.config import build_config
from babelcap.coverage import Coverage, Pair
from babelcap.data.feed.mixture import BLOCK_LENGTH, Mixture, MixtureConfig, apportion, pair_weights, shuffled_positions
from babelcap.errors import UserError

# The published counts of annotations: 137 M in all.
PUBLISHED = {
    "caption-en": 19_431_960,
    "caption-de": 12_927_044,
    "translation-de": 32_848_032,
    "translation-es": 19_102_755,
    "translation-fr": 18_532_141,
    "translation-ru": 17_761_632,
    "translation-zh": 16_778_439,
}
SMALL = {name: 20 + 7 * number for number, name in enumerate(PUBLISHED)}
COVERAGE = Coverage()


def make(fake_rows: Any, sizes: dict[str, int] = SMALL, seed: int = 1, **config: Any) -> Mixture:
    return Mixture(fake_rows(sizes), MixtureConfig(**config), COVERAGE, seed)


@pytest.mark.parametrize(
    "weights",
    ["uniform", "task-balanced", "language-balanced", "proportional", {"caption-en": 0.613, "translation-zh": 0.071}],
)
@pytest.mark.parametrize(("num_indices", "tolerance"), [(70_000, 0.005), (1_000_000, 0.001)])
def test_the_mix_is_met(fake_rows: Any, weights: Any, num_indices: int, tolerance: float) -> None:
    mixture = make(fake_rows, {name: size // 1000 for name, size in PUBLISHED.items()}, weights=weights)
    counts = np.bincount(mixture.locate(np.arange(num_indices))[0], minlength=len(mixture.pairs))
    assert counts == pytest.approx(mixture.weights * num_indices, rel=tolerance)
    # Better than asked: within a few samples of a block's shuffle.
    assert np.abs(counts - mixture.weights * num_indices).max() < 100


def test_named_weights_are_the_published_ones() -> None:
    counts = {pair: PUBLISHED[str(pair)] for pair in COVERAGE.seen_pairs}

    def ratios(name: str) -> dict[str, float]:
        weights = pair_weights(name, counts)
        assert sum(weights.values()) == pytest.approx(1)
        least = min(weights.values())
        return {str(pair): round(weight / least, 6) for pair, weight in weights.items()}

    others = ("translation-es", "translation-fr", "translation-ru", "translation-zh")
    assert ratios("uniform") == dict.fromkeys(PUBLISHED, 1)
    assert ratios("task-balanced") == {
        "caption-en": 2.5,
        "caption-de": 2.5,
        **dict.fromkeys(("translation-de", *others), 1),
    }
    assert ratios("language-balanced") == {
        "caption-en": 2,
        "caption-de": 1,
        "translation-de": 1,
        **dict.fromkeys(others, 2),
    }
    assert ratios("proportional")["translation-de"] == pytest.approx(32_848_032 / 12_927_044, rel=1e-5)


@given(
    raw=st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=9),
    start=st.integers(0, 10**12),
    steps=st.lists(st.integers(0, 3000), min_size=1, max_size=20),
)
def test_apportionment_is_exact_close_and_never_takes_back(raw: list[float], start: int, steps: list[int]) -> None:
    weights = np.array(raw) / sum(raw)
    totals = start + np.cumsum(steps)
    counts = apportion(totals, weights)
    assert np.array_equal(counts.sum(axis=1), totals)
    assert (np.diff(counts, axis=0) >= 0).all()
    assert np.abs(counts - totals[:, None] * weights).max() <= max(1, len(raw) / 2) + 1e-3


def test_apportionment_is_that_of_one_seat_after_another() -> None:
    weights = np.array([5, 5, 2, 2, 2, 2, 2]) / 20
    given_out = np.zeros(7, dtype=int)
    for total in range(200):
        assert apportion(np.array([total]), weights)[0].tolist() == given_out.tolist()
        given_out[((given_out + 0.5) / weights).argmin()] += 1


@given(
    size=st.integers(1, 400),
    window_size=st.integers(0, 60),
    open_windows=st.integers(1, 5),
    key=st.integers(0, 2**64 - 1),
)
def test_an_epoch_visits_every_position_once(size: int, window_size: int, open_windows: int, key: int) -> None:
    sizes, keys = np.full(size, size), np.full(size, key, dtype=np.uint64)
    shuffled = shuffled_positions(np.arange(size), sizes, keys, window_size, open_windows)
    assert np.array_equal(np.sort(shuffled), np.arange(size))


@pytest.mark.parametrize("window_size", [0, 8])
def test_epochs_of_each_pair_are_whole_and_differ(fake_rows: Any, window_size: int) -> None:
    mixture = make(fake_rows, weights="task-balanced", window_size=window_size)
    indices = np.arange(2 * BLOCK_LENGTH)
    pair_numbers, rows = mixture.resolve(indices)
    _, ordinals = mixture.locate(indices)
    for number, pair in enumerate(mixture.pairs):
        mine = pair_numbers == number
        of_pair = rows[mine][np.argsort(ordinals[mine])]
        size = SMALL[str(pair)]
        epochs = [of_pair[at : at + size] for at in range(0, len(of_pair) - size, size)]
        assert len(epochs) >= 2
        assert all(np.array_equal(np.sort(epoch), mixture.corpus.rows("train", pair)) for epoch in epochs)
        assert not np.array_equal(epochs[0], epochs[1])


def test_ordinals_count_each_pair_without_gaps(fake_rows: Any) -> None:
    mixture = make(fake_rows, weights="proportional")
    pair_numbers, ordinals = mixture.locate(np.arange(5 * BLOCK_LENGTH))
    for number in range(len(mixture.pairs)):
        of_pair = np.sort(ordinals[pair_numbers == number])
        assert np.array_equal(of_pair, np.arange(len(of_pair)))


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**40), starts=st.lists(st.integers(0, 2**40), min_size=1, max_size=5), window=st.integers(0, 9)
)
def test_a_sample_is_a_function_of_seed_and_index(fake_rows: Any, seed: int, starts: list[int], window: int) -> None:
    mixture, again = (make(fake_rows, seed=seed, window_size=window) for _ in range(2))
    indices = np.concatenate([np.arange(start, start + 5) for start in starts])
    pair_numbers, rows = mixture.resolve(indices)
    backwards = again.resolve(indices[::-1])
    assert np.array_equal(pair_numbers[::-1], backwards[0])
    assert np.array_equal(rows[::-1], backwards[1])
    assert [mixture.sample(int(index)) for index in indices[:3]] == [
        (mixture.pairs[number], row) for number, row in zip(pair_numbers[:3], rows[:3], strict=True)
    ]


def test_another_seed_is_another_order(fake_rows: Any) -> None:
    one, other = (make(fake_rows, seed=seed).resolve(np.arange(200)) for seed in (1, 2))
    assert not np.array_equal(one[0], other[0])
    assert not np.array_equal(one[1], other[1])


def test_a_window_keeps_neighbouring_reads_together(fake_rows: Any) -> None:
    sizes = {"caption-en": 100_000}
    weights = {"caption-en": 1.0}
    near = make(fake_rows, sizes, weights=weights, window_size=512, open_windows=2).resolve(np.arange(1024))[1]
    far = make(fake_rows, sizes, weights=weights).resolve(np.arange(1024))[1]
    tar_size = 512
    assert len(np.unique(near // tar_size)) <= 4  # two windows, each across at most two tars
    assert len(np.unique(far // tar_size)) > 150
    assert np.abs(np.diff(near)).mean() > 100  # and yet shuffled


def test_the_published_size_takes_no_memory_of_its_own(fake_rows: Any) -> None:
    class Counted:
        """A stand-in for a memory map: knows its length and answers for the positions asked."""

        def __init__(self, size: int) -> None:
            self.size, self.num_read = size, 0

        def __len__(self) -> int:
            return self.size

        def __getitem__(self, positions: np.ndarray) -> np.ndarray:
            self.num_read += len(positions)
            return positions

    class Huge:
        def __init__(self) -> None:
            self.maps = {Pair.parse(name): Counted(size) for name, size in PUBLISHED.items()}

        def pairs(self, split: str) -> tuple[Pair, ...]:
            return tuple(self.maps)

        def rows(self, split: str, pair: Pair) -> Any:
            return self.maps[pair]

    corpus = Huge()
    mixture = Mixture(corpus, MixtureConfig(window_size=10_000), COVERAGE, seed=0)
    pair_numbers, rows = mixture.resolve(np.arange(10**9, 10**9 + 2048))
    assert sum(counted.num_read for counted in corpus.maps.values()) == 2048
    assert (rows < mixture.sizes[pair_numbers]).all()


def test_replacements_keep_the_pair_and_vary(fake_rows: Any) -> None:
    mixture, again = (make(fake_rows) for _ in range(2))
    pair_numbers, _ = mixture.resolve(np.arange(50))
    for index, number in enumerate(pair_numbers):
        rows = [mixture.replacement(index, number, attempt) for attempt in range(1, 9)]
        assert set(rows) <= set(mixture.corpus.rows("train", mixture.pairs[number]).tolist())
        assert len(set(rows)) > 3
        assert rows == [again.replacement(index, number, attempt) for attempt in range(1, 9)]


def test_pickling_leaves_the_rows_to_the_corpus(fake_rows: Any) -> None:
    mixture = make(fake_rows, dict.fromkeys(PUBLISHED, 50_000))
    pickled = pickle.dumps(mixture)
    assert len(pickled) < 20_000
    for one, other in zip(mixture.resolve(np.arange(100)), pickle.loads(pickled).resolve(np.arange(100)), strict=True):
        assert np.array_equal(one, other)


def test_counts_are_what_the_order_has(fake_rows: Any) -> None:
    mixture = make(fake_rows, weights="task-balanced")
    num_samples = 3 * BLOCK_LENGTH
    counted = Counter(mixture.pairs[number] for number in mixture.locate(np.arange(num_samples))[0])
    assert mixture.counts(num_samples) == counted


@settings(max_examples=50, deadline=None)
@example(weights={"caption-en": 1.0, "caption-de": 2.2e-311})
@given(weights=st.dictionaries(st.sampled_from([str(pair) for pair in COVERAGE.all_pairs]), st.floats(0, 10)))
def test_no_unseen_pair_is_ever_drawn(small_index: Any, weights: dict[str, float]) -> None:
    """Whatever the table: either it is refused, or every annotation drawn is of a seen pair, by its own account."""
    try:
        mixture = Mixture(small_index, build_config(MixtureConfig, {"weights": weights}), COVERAGE, seed=3)
    except UserError:
        return
    _, rows = mixture.resolve(np.arange(300))
    assert {small_index.annotation(row).pair for row in rows} <= set(COVERAGE.seen_pairs)


@pytest.mark.parametrize(
    ("weights", "words"),
    [
        ("unifrom", "unknown mix; choose uniform"),
        ({"caption-en": -1.0}, "'caption-en' is -1.0"),
        ({"caption-en": float("nan")}, "weights.caption-en: Input should be a finite number (found nan)"),
        ({"caption-en": 0.0}, "no pair has a weight above zero"),
        ({}, "no pair has a weight above zero"),
        ({"caption-eng": 1.0}, "did you mean 'caption-en'?"),
        ({"translation-en": 1.0}, "unknown pair 'translation-en'"),
        ({"caption-es": 1.0}, "'caption-es' is not among the coverage's seen pairs"),
    ],
)
def test_a_mistake_in_the_weights_is_named(fake_rows: Any, weights: Any, words: str) -> None:
    with pytest.raises(UserError, match="weights") as raised:
        Mixture(fake_rows(SMALL), build_config(MixtureConfig, {"weights": weights}), COVERAGE, seed=0)
    assert words in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_pair_that_the_corpus_lacks_is_named_with_what_there_is(fake_rows: Any) -> None:
    with pytest.raises(UserError, match=r"no caption-de, translation-zh in split 'train' \(it has caption-en, "):
        make(fake_rows, {name: size for name, size in SMALL.items() if name not in ("caption-de", "translation-zh")})
    with pytest.raises(UserError, match="no caption-de in split"):
        make(fake_rows, SMALL | {"caption-de": 0})


def test_zero_weight_leaves_a_pair_out_even_when_unseen_or_absent(fake_rows: Any) -> None:
    sizes = {"caption-en": 30, "translation-de": 40}
    mixture = make(fake_rows, sizes, weights={"translation-de": 3, "caption-en": 1, "caption-es": 0, "caption-de": 0})
    assert list(map(str, mixture.pairs)) == ["caption-en", "translation-de"]
    assert mixture.weights.tolist() == [0.25, 0.75]
