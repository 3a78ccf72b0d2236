"""Which annotation is the i-th of training: a pure function of (seed, index), with no state and no table in memory.

Of n samples, pair p gets c_p(n): the first n of all (k + 1/2) / w_p in order, so the mix is exact at every length and
c_p never falls. Block b shuffles the c_p((b+1)L) - c_p(bL) samples of each pair; the sample's number within its pair
then picks an annotation from a permutation that is new in every epoch of the pair.
"""

import difflib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from pydantic import Field, field_validator

from babelcap.config import ConfigModel
from babelcap.coverage import Coverage, Pair
from babelcap.data.feed.permutation import derive_key, hash_numbers, permute
from babelcap.errors import UserError
from babelcap.measures import TRAIN

BLOCK_LENGTH = 1024  # samples within which the mix is exact to one sample a pair; part of the order's definition
NAMED_MIXES = ("uniform", "task-balanced", "language-balanced", "proportional")


class AnnotationRows(Protocol):
    """What the mixture asks of a corpus: CorpusIndex has it."""

    def pairs(self, split: str) -> tuple[Pair, ...]: ...

    def rows(self, split: str, pair: Pair) -> np.ndarray: ...


class MixtureConfig(ConfigModel):
    """`weights` is a name or a table such as {"caption-en" = 2, "translation-de" = 1}; a pair left out is not drawn."""

    weights: str | dict[str, float] = "uniform"
    window_size: int = Field(0, ge=0)  # annotations read from one place of the corpus; 0 shuffles a pair as a whole
    open_windows: int = Field(4, ge=1)  # windows of a pair that are shuffled together

    @field_validator("weights")
    @classmethod
    def _weights_make_sense(cls, weights: str | dict[str, float]) -> str | dict[str, float]:
        if isinstance(weights, str):
            if weights not in NAMED_MIXES:
                raise ValueError(f"unknown mix; choose {', '.join(NAMED_MIXES)} or give a table of pair = weight")
            return weights
        for pair, weight in weights.items():
            if not (math.isfinite(weight) and weight >= 0):
                raise ValueError(f"the weight of '{pair}' is {weight}; weights are finite and not negative")
        if not any(weights.values()):
            raise ValueError("no pair has a weight above zero")
        return weights


class Mixture:
    """The training order over one split of a corpus. `pairs` are those with a weight, in the coverage's order."""

    def __init__(
        self, corpus: AnnotationRows, config: MixtureConfig, coverage: Coverage, seed: int, split: str = TRAIN
    ) -> None:
        self.corpus, self.config, self.seed, self.split = corpus, config, seed, split
        wanted = _wanted_pairs(config, coverage)
        _require_present(wanted, [pair for pair in corpus.pairs(split) if len(corpus.rows(split, pair))], split)
        self._load_rows(wanted)
        weights = pair_weights(config.weights, dict(zip(wanted, map(len, self._rows), strict=True)))
        self.pairs = tuple(weights)
        self.weights = np.array(list(weights.values()))
        self._load_rows(self.pairs)
        self._block_key = derive_key(seed, "block")
        self._pair_keys = np.array([derive_key(seed, "pair", pair) for pair in self.pairs], dtype=np.uint64)
        self._replacement_key = derive_key(seed, "replacement")

    def _load_rows(self, pairs: Iterable[Pair]) -> None:
        self._rows = [self.corpus.rows(self.split, pair) for pair in pairs]

    def __getstate__(self) -> dict[str, Any]:
        """Without the memory maps, which would be pickled as copies of their contents."""
        return {name: value for name, value in vars(self).items() if name != "_rows"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._load_rows(self.pairs)

    @property
    def sizes(self) -> np.ndarray:
        """Annotations of each pair: the length of its epoch."""
        return np.array([len(rows) for rows in self._rows], dtype=np.int64)

    def counts(self, num_samples: int) -> dict[Pair, int]:
        """How many of the first `num_samples` are of each pair, up to the shuffle of the last, incomplete block."""
        return dict(zip(self.pairs, apportion(np.array([num_samples]), self.weights)[0].tolist(), strict=True))

    def locate(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The number of each index's pair, and how many samples of that pair came before it."""
        indices = np.atleast_1d(np.asarray(indices, dtype=np.int64))
        if (indices < 0).any():
            raise ValueError("an index is negative")
        blocks, block_of = np.unique(indices // BLOCK_LENGTH, return_inverse=True)
        before = apportion(blocks * BLOCK_LENGTH, self.weights)
        within = apportion((blocks + 1) * BLOCK_LENGTH, self.weights) - before
        ends = np.cumsum(within, axis=1)
        slots = permute(indices % BLOCK_LENGTH, BLOCK_LENGTH, hash_numbers(self._block_key, blocks)[block_of])
        pair_numbers = (slots[:, None] >= ends[block_of]).sum(axis=1)
        starts = (ends - within)[block_of, pair_numbers]
        return pair_numbers, before[block_of, pair_numbers] + slots - starts

    def resolve(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The number of each index's pair in `pairs`, and the row of its annotation in the corpus."""
        pair_numbers, ordinals = self.locate(indices)
        sizes = self.sizes[pair_numbers]
        keys = hash_numbers(self._pair_keys[pair_numbers], ordinals // sizes)
        positions = shuffled_positions(ordinals % sizes, sizes, keys, self.config.window_size, self.config.open_windows)
        return pair_numbers, self._take(pair_numbers, positions)

    def sample(self, index: int) -> tuple[Pair, int]:
        """The pair and the annotation's row at one index."""
        pair_numbers, rows = self.resolve(np.array([index]))
        return self.pairs[pair_numbers[0]], int(rows[0])

    def replacement(self, index: int, pair_number: int, attempt: int) -> int:
        """The row that stands in for a bad sample at `index`: another annotation of the same pair, so the mix holds.

        It is drawn anew for each attempt (1, 2, ...) rather than taken from next to the bad one, where the tar may be
        damaged as well.
        """
        key = hash_numbers(self._replacement_key, np.array([index]))
        size = len(self._rows[pair_number])
        return int(self._rows[pair_number][int(hash_numbers(key, np.array([attempt]))[0]) % size])

    def _take(self, pair_numbers: np.ndarray, positions: np.ndarray) -> np.ndarray:
        rows = np.empty(len(positions), dtype=np.int64)
        for number in np.unique(pair_numbers):
            chosen = pair_numbers == number
            rows[chosen] = self._rows[number][positions[chosen]]
        return rows


def apportion(totals: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """[num_totals, num_pairs]: each total divided by Webster's method, which never takes back what it gave.

    Weights sum to 1. Starts below the answer (x weights give at most x + K/2 seats) and gives out the few that remain.
    """
    totals = np.asarray(totals, dtype=np.int64)
    start = np.maximum(totals - len(weights) / 2, 0)[:, None]
    counts = np.floor(start * weights).astype(np.int64)
    missing = totals - counts.sum(axis=1)
    while (missing > 0).any():
        open_rows = np.flatnonzero(missing > 0)
        with np.errstate(over="ignore"):  # of a weight next to nothing: infinitely late is the right answer
            turns = (counts[open_rows] + 0.5) / weights
        chosen = turns.argmin(axis=1)
        counts[open_rows, chosen] += 1
        missing[open_rows] -= 1
    return counts


def shuffled_positions(
    positions: np.ndarray, sizes: np.ndarray, keys: np.ndarray, window_size: int, open_windows: int
) -> np.ndarray:
    """A permutation of each epoch. With windows, neighbours in the result come from `open_windows` runs of storage.

    The epoch's rows, rotated so that windows never begin where they did before, are cut into windows; the windows are
    shuffled; each group of `open_windows` is shuffled as one. What does not fill a window comes with the last group.
    """
    group = window_size * open_windows
    inner_keys = hash_numbers(keys, np.array([1]))
    if group == 0:
        return permute(positions, sizes, inner_keys)
    group_numbers = positions // group
    # Groups differ in their key; the last one is as long as what remains.
    lengths = np.minimum(group, sizes - group_numbers * group)
    inner = permute(positions % group, lengths, hash_numbers(inner_keys, group_numbers))
    slots = group_numbers * open_windows + inner // window_size
    num_windows = sizes // window_size
    whole = slots < num_windows
    windows = slots.copy()
    outer_keys = np.broadcast_to(hash_numbers(keys, np.array([2])), slots.shape)
    windows[whole] = permute(slots[whole], num_windows[whole], outer_keys[whole])
    rotation = (hash_numbers(keys, np.array([3])) % sizes.astype(np.uint64)).astype(np.int64)
    return (rotation + windows * window_size + inner % window_size) % sizes


def pair_weights(weights: str | Mapping[str, float], num_annotations: Mapping[Pair, int]) -> dict[Pair, float]:
    """Normalised weights of the pairs in `num_annotations`; those of zero are left out."""
    pairs = list(num_annotations)
    if isinstance(weights, Mapping):
        raw = {pair: float(weights[str(pair)]) for pair in pairs}
    elif weights == "uniform":
        raw = dict.fromkeys(pairs, 1.0)
    elif weights == "task-balanced":  # every task as often as every other; the published 5 : 2
        raw = {pair: 1 / sum(other.task == pair.task for other in pairs) for pair in pairs}
    elif weights == "language-balanced":  # every target language as often as every other; the published 1 : 2
        raw = {pair: 1 / sum(other.language == pair.language for other in pairs) for pair in pairs}
    else:
        raw = {pair: float(num_annotations[pair]) for pair in pairs}
    total = sum(raw.values())
    return {pair: weight / total for pair, weight in raw.items() if weight > 0}


def _wanted_pairs(config: MixtureConfig, coverage: Coverage) -> tuple[Pair, ...]:
    if isinstance(config.weights, str):
        return coverage.seen_pairs
    known, seen = list(map(str, coverage.all_pairs)), set(map(str, coverage.seen_pairs))
    for name, weight in config.weights.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"known: {', '.join(known)}"
            raise UserError(f"mixture.weights: unknown pair '{name}'; {hint}")
        if weight > 0 and name not in seen:
            raise UserError(
                f"mixture.weights: '{name}' is not among the coverage's seen pairs ({', '.join(coverage.seen)}); "
                "add it to coverage.seen to train on it"
            )
    return tuple(pair for pair in coverage.seen_pairs if config.weights.get(str(pair), 0) > 0)


def _require_present(wanted: Sequence[Pair], present: Sequence[Pair], split: str) -> None:
    missing = [str(pair) for pair in wanted if pair not in present]
    if missing:
        found = ", ".join(map(str, present)) or "no annotations at all"
        raise UserError(
            f"mixture.weights: the corpus has no {', '.join(missing)} in split '{split}' (it has {found}); "
            "give weights for those alone or choose another corpus"
        )
    if not wanted:
        raise UserError("mixture.weights: no pair to draw from; coverage.seen is empty")
