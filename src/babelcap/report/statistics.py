"""Intervals of what a report states: over seeds (Student's t), over pictures (Wilson), and of a rank correlation.

A share is given the hull of both: seeds that agree by chance do not make a hundred pictures into many.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import stats

CONFIDENCE = 0.95
NOTHING_NAMED = "nothing named"  # a rate over nothing: no caption said anything of the kind
NUM_BOOTSTRAP = 1000


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % interval, where there is enough to give one, and how that was found."""

    value: float
    low: float | None = None
    high: float | None = None
    num: int = 1  # seeds, or points
    method: str = "one run, no interval"
    seeds: tuple[float, ...] = ()  # what each had, where a figure may show them

    @property
    def is_number(self) -> bool:
        """Not so where it is a rate over nothing."""
        return not math.isnan(self.value)

    def above(self, limit: float) -> bool | None:
        """Whether the whole interval is above a limit; None where there is no interval."""
        return self.low > limit if self.low is not None else None

    def below(self, limit: float) -> bool | None:
        return self.high < limit if self.high is not None else None


def over_seeds(values: Sequence[float]) -> Estimate | None:
    """The mean of the seeds with the t interval of the mean; seeds of which there is nothing to count are left out."""
    if not values:
        return None
    values = [value for value in values if not math.isnan(value)]
    if not values:
        return Estimate(math.nan, method=NOTHING_NAMED)
    mean = math.fsum(values) / len(values)
    if len(values) == 1:
        return Estimate(mean, seeds=(mean,))
    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    reach = float(stats.t.ppf(0.5 + CONFIDENCE / 2, len(values) - 1)) * error
    return Estimate(mean, mean - reach, mean + reach, len(values), f"t over {len(values)} seeds", tuple(values))


def loss_over_seeds(values: Sequence[float], sampling_error: float | None) -> Estimate | None:
    """The t interval over seeds, widened by what other samples would have given: their errors are independent."""
    found = over_seeds(values)
    if found is None or not found.is_number or sampling_error is None or math.isnan(sampling_error):
        return found
    reach = float(stats.norm.ppf(0.5 + CONFIDENCE / 2)) * sampling_error
    if found.low is None or found.high is None:
        return replace(found, low=found.value - reach, high=found.value + reach, method="over samples, one seed")
    reach = math.hypot(reach, found.high - found.value)
    method = f"t over {found.num} seeds, and over samples"
    return replace(found, low=found.value - reach, high=found.value + reach, method=method)


def wilson(share: float, num_samples: float) -> tuple[float, float]:
    """The interval of a share of independent samples; it has a width also at 0 and 1."""
    z = float(stats.norm.ppf(0.5 + CONFIDENCE / 2))
    share = min(1.0, max(0.0, share))
    middle = share + z * z / (2 * num_samples)
    reach = z * math.sqrt(share * (1 - share) / num_samples + z * z / (4 * num_samples**2))
    scale = 1 + z * z / num_samples
    return max(0.0, (middle - reach) / scale), min(1.0, (middle + reach) / scale)


def share_over_seeds(values: Sequence[float], num_pictures: int) -> Estimate | None:
    """A share in every seed: the hull of the t interval over seeds and the Wilson interval over the pictures.

    The pictures are the same for all seeds and languages, so they count once.
    """
    found = over_seeds(values)
    if found is None or not found.is_number or num_pictures < 1:
        return found
    low, high = wilson(found.value, num_pictures)
    if found.low is None or found.high is None:
        return replace(found, low=low, high=high, method=f"Wilson over {num_pictures} pictures, one seed")
    low, high = max(0.0, min(low, found.low)), min(1.0, max(high, found.high))
    method = f"t over {found.num} seeds and Wilson over {num_pictures} pictures, the wider"
    return replace(found, low=low, high=high, method=method)


def difference_of_shares(first: Sequence[float], second: Sequence[float], num_pictures: int) -> Estimate | None:
    """first - second, paired by seed: the hull of the differences' t interval and of Newcombe's over the pictures."""
    if not first or len(first) != len(second):
        return None
    pairs = [(a, b) for a, b in zip(first, second, strict=True) if not math.isnan(a - b)]
    found = over_seeds([a - b for a, b in pairs] or [math.nan])
    if found is None or not found.is_number or num_pictures < 1:
        return found
    a, b = (math.fsum(values) / len(values) for values in zip(*pairs, strict=True))
    (a_low, a_high), (b_low, b_high) = wilson(a, num_pictures), wilson(b, num_pictures)
    low = a - b - math.hypot(a - a_low, b_high - b)
    high = a - b + math.hypot(a_high - a, b - b_low)
    if found.low is None or found.high is None:
        return Estimate(found.value, low, high, 1, f"Newcombe over {num_pictures} pictures, one seed")
    low, high = max(-1.0, min(low, found.low)), min(1.0, max(high, found.high))
    method = f"t over {found.num} pairs of seeds and Newcombe over {num_pictures} pictures, the wider"
    return Estimate(found.value, low, high, found.num, method)


def rank_correlation(first: Sequence[float], second: Sequence[float], groups: Sequence[str]) -> Estimate | None:
    """Spearman's, with the percentile interval of a bootstrap that draws whole groups: seeds of one run stay together.

    None for fewer than five groups, or where one of the two never changes.
    """
    names = sorted(set(groups))
    if len(names) < 5 or len(set(first)) < 2 or len(set(second)) < 2:
        return None
    x, y, member = np.asarray(first), np.asarray(second), np.asarray([names.index(group) for group in groups])
    rows = [np.flatnonzero(member == index) for index in range(len(names))]
    generator = np.random.default_rng(0)
    drawn = []
    for picked in generator.integers(len(names), size=(NUM_BOOTSTRAP, len(names))):
        chosen = np.concatenate([rows[index] for index in picked])
        drawn.append(_correlation(stats.rankdata(x[chosen]), stats.rankdata(y[chosen])))
    low, high = np.nanquantile(drawn, [0.5 - CONFIDENCE / 2, 0.5 + CONFIDENCE / 2])
    value = _correlation(stats.rankdata(x), stats.rankdata(y))
    return Estimate(value, float(low), float(high), len(x), f"bootstrap over {len(names)} models and budgets")


def _correlation(first: "np.ndarray", second: "np.ndarray") -> float:
    first, second = first - first.mean(), second - second.mean()
    size = math.sqrt(float(first @ first) * float(second @ second))
    return float(first @ second) / size if size > 0 else float("nan")
