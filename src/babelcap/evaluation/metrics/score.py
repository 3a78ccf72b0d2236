"""A score is a number that knows where it comes from: its signature, what each item adds to it, how sure it is.

A metric gives one row of statistics an item, and a function from sums of rows to the value of the metric. Every
replicate of the bootstrap is then a weighted sum of rows: no text is read again.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from babelcap.errors import UserError

Array = NDArray[np.float64]
Combine = Callable[[Array], Array]  # sums of statistics [replicate, column] -> values [replicate]
NUM_REPLICATES = 1000
CHUNK = 2**22  # drawn items held at a time

VERSION = "babelcap-1"  # in every signature of a metric that is computed here


class Interval(tuple[float, float]):
    """(low, high)."""

    @property
    def low(self) -> float:
        return self[0]

    @property
    def high(self) -> float:
        return self[1]


@dataclass(frozen=True)
class Items:
    """What each item adds to a score; `statistics` and `combine` where the score is not the mean of the values."""

    ids: tuple[str, ...]
    values: Array  # of each item alone, as the metric's own tool gives them
    num_empty: int = 0  # hypotheses without a word; they score 0 and are counted
    statistics: Array | None = None  # [item, column]
    combine: Combine | None = None
    groups: Sequence[int] | None = None  # items of one group are drawn together


class Score(float):
    """The value of a metric, usable as the number it is, with its signature and what it was computed from."""

    def __new__(cls, name: str, signature: str, items: Items) -> "Score":
        rows = _rows(items)
        return super().__new__(cls, (items.combine or mean_of_values)(rows.sum(axis=0, keepdims=True))[0])

    def __init__(self, name: str, signature: str, items: Items) -> None:
        self.name, self.signature, self.items = name, signature, items

    def __reduce__(self) -> tuple[type["Score"], tuple[str, str, Items]]:
        return Score, (self.name, self.signature, self.items)  # a float alone would be copied without the rest

    @property
    def value(self) -> float:
        return float(self)

    @property
    def num_items(self) -> int:
        return len(self.items.ids)

    @property
    def num_empty(self) -> int:
        return self.items.num_empty

    @property
    def per_item(self) -> dict[str, float]:
        return dict(zip(self.items.ids, map(float, self.items.values), strict=True))

    def combine(self, sums: Array) -> Array:
        return (self.items.combine or mean_of_values)(sums)

    def interval(self, num_replicates: int = NUM_REPLICATES, seed: int = 0, confidence: float = 0.95) -> Interval:
        """The percentile interval of a bootstrap over items, or over groups of items where there are some."""
        values = self.combine(_drawn_sums(self.grouped_rows(), num_replicates, seed))
        low, high = np.nanquantile(values, [0.5 - confidence / 2, 0.5 + confidence / 2])
        return Interval((float(low), float(high)))

    def grouped_rows(self) -> Array:
        """[group, column], what is drawn: the statistics of the items, or their sums over groups."""
        rows = _rows(self.items)
        if self.items.groups is None:
            return rows
        names, numbers = np.unique(np.asarray(self.items.groups), return_inverse=True)
        sums = np.zeros((len(names), rows.shape[1]))
        np.add.at(sums, numbers, rows)
        return sums

    def record(self) -> dict[str, float | int | str]:
        """What is written beside a prediction."""
        return {
            "name": self.name,
            "value": self.value,
            "signature": self.signature,
            "num_items": self.num_items,
            "num_empty": self.num_empty,
        }


def _rows(items: Items) -> Array:
    if items.statistics is None:
        return np.stack([np.asarray(items.values, dtype=np.float64), np.ones(len(items.ids))], axis=1)
    return items.statistics


def mean_of_values(sums: Array) -> Array:
    return sums[:, 0] / sums[:, 1]


def _drawn_sums(rows: Array, num_replicates: int, seed: int) -> Array:
    """[replicate, column]: the sums over as many rows as there are, drawn with replacement."""
    num_rows = len(rows)
    generator = np.random.default_rng(seed)
    sums = np.empty((num_replicates, rows.shape[1]))
    step = max(1, CHUNK // num_rows)
    for start in range(0, num_replicates, step):
        size = min(step, num_replicates - start)
        drawn = generator.integers(num_rows, size=(size, num_rows))
        drawn += np.arange(size)[:, None] * num_rows
        counts = np.bincount(drawn.ravel(), minlength=size * num_rows).reshape(size, num_rows)
        sums[start : start + size] = counts @ rows
    return sums


@dataclass(frozen=True)
class PairedTest:
    """first - second on the same items: a bootstrap interval, and p by approximate randomisation."""

    difference: float
    low: float
    high: float
    p_value: float
    num_replicates: int


def paired_test(first: Score, second: Score, num_replicates: int = NUM_REPLICATES, seed: int = 0) -> PairedTest:
    """Two systems on the same items. Randomisation exchanges their outputs, an item (or a group) at a time."""
    verdict = compare(first.signature, second.signature)
    if verdict != COMPARABLE:
        raise UserError(f"{first.name}: {verdict}")
    if first.items.ids != second.items.ids:
        raise UserError(
            f"{first.name}: a paired test needs the same items in both; found {first.num_items} and "
            f"{second.num_items} items, {len(set(first.items.ids) & set(second.items.ids))} of them in both"
        )
    a, b = first.grouped_rows(), second.grouped_rows()
    both = _drawn_sums(np.concatenate([a, b], axis=1), num_replicates, seed)
    width = a.shape[1]
    differences = first.combine(both[:, :width]) - second.combine(both[:, width:])
    low, high = np.nanquantile(differences, [0.025, 0.975])
    found = first.value - second.value
    chance = np.concatenate(list(_exchanged(a, b, first.combine, num_replicates, seed + 1)))
    at_least = int((np.abs(chance) >= abs(found) - 1e-12).sum())
    return PairedTest(found, float(low), float(high), (1 + at_least) / (1 + num_replicates), num_replicates)


def _exchanged(a: Array, b: Array, combine: Combine, num_replicates: int, seed: int) -> Iterator[Array]:
    generator = np.random.default_rng(seed)
    step = max(1, CHUNK // len(a))
    for start in range(0, num_replicates, step):
        swapped = generator.integers(2, size=(min(step, num_replicates - start), len(a)))
        moved = swapped @ (b - a)
        yield combine(a.sum(axis=0) + moved) - combine(b.sum(axis=0) - moved)


COMPARABLE = "comparable"


def signature(metric: str, choices: Mapping[str, object]) -> str:
    """`CIDEr-D|tok:ptb|sigma:6|...`: every choice that changes the number, in the order given."""
    for key, value in choices.items():
        if "|" in f"{key}{value}" or ":" in key:
            raise ValueError(f"'{key}: {value}' cannot be part of a signature")
    return "|".join([metric, *(f"{key}:{value}" for key, value in choices.items())])


def _choices(text: str) -> dict[str, str]:
    metric, *parts = text.split("|") if "|" in text and ":" not in text.split("|")[0] else ["", *text.split("|")]
    return {"metric": metric} | {key: value for key, _, value in (part.partition(":") for part in parts)}


def compare(first: str, second: str) -> str:
    """`comparable`, or `not comparable: ...` with each choice in which the two signatures differ."""
    a, b = _choices(first), _choices(second)
    differing = [key for key in (*a, *(key for key in b if key not in a)) if a.get(key) != b.get(key)]
    if not differing:
        return COMPARABLE
    words = [f"{key} {a.get(key, 'unstated')} against {b.get(key, 'unstated')}" for key in differing]
    return f"not comparable: {', '.join(words)}"
