"""The loss that is left when overconfidence is taken away: after the best single temperature.

loss_t = logsumexp(z / t) - z_target / t. For each test split the temperature is fitted on one half of the samples and
measured on the other, then the other way round: every sample is measured once, never by a temperature fitted on it.
Which half is by chance: neighbours may differ in kind, and halves by turns then get the temperature of the other kind.
"""

import hashlib
from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean

import numpy as np
import torch
from torch import Tensor

from babelcap.coverage import Coverage, Pair, mean_over_splits
from babelcap.data.feed.batches import IGNORED_LABEL
from babelcap.measures import CALIBRATED_BY_CHANCE, loss_measure
from babelcap.records import EvalResult

TEMPERATURES = (1.0, *(float(value) for value in np.geomspace(0.5, 5.0, 24).round(4)))
HALVES = (0, 1)


def half_of(place: int) -> int:
    return hashlib.blake2b(str(place).encode(), digest_size=1).digest()[0] % 2


class Calibration:
    """The mean loss of every sample at every temperature of a grid, in which 1 is."""

    def __init__(self, temperatures: Sequence[float] = TEMPERATURES) -> None:
        self.temperatures = np.array(sorted(temperatures))
        self._losses: dict[Pair, dict[int, np.ndarray]] = defaultdict(dict)  # pair -> sample -> [temperature]

    def add(self, pair: Pair, places: Sequence[int], logits: Tensor, labels: Tensor) -> None:
        """`places` are those of the samples among the rows of the pair: they say which half a sample is in."""
        kept = labels != IGNORED_LABEL
        chosen, targets = logits[kept].float(), labels[kept]
        means = np.empty((len(places), len(self.temperatures)))
        counts = kept.sum(dim=1).double()
        owners = torch.arange(len(places)).repeat_interleave(kept.sum(dim=1).cpu())
        for column, temperature in enumerate(self.temperatures):
            losses = torch.nn.functional.cross_entropy(chosen / float(temperature), targets, reduction="none").double()
            sums = torch.zeros(len(places), dtype=torch.float64).index_add_(0, owners, losses.cpu())
            means[:, column] = (sums / counts.cpu()).numpy()
        self._losses[pair].update(zip(places, means, strict=True))

    def result(self, split: str, coverage: Coverage) -> EvalResult:
        """In the signature: the temperatures of each test split, one for each half."""
        per_pair: dict[str, float] = {}
        chosen: dict[str, str] = {}
        for name in coverage.splits:
            pairs = [pair for pair in coverage.split(name) if self._losses.get(pair)]
            best = {half: self._best(pairs, other) for half, other in zip(HALVES, reversed(HALVES), strict=True)}
            for pair in pairs:
                per_pair[str(pair)] = fmean(
                    float(values[best[half_of(place)]]) for place, values in self._losses[pair].items()
                )
            if pairs:
                chosen[f"temperature of {name}"] = ", ".join(f"{self.temperatures[best[half]]:g}" for half in HALVES)
        return EvalResult(
            measure=loss_measure("calibrated"),
            split=split,
            per_pair=per_pair,
            per_split=mean_over_splits(per_pair, coverage, fmean),
            num_samples={str(pair): len(found) for pair, found in self._losses.items()},
            signature=CALIBRATED_BY_CHANCE | chosen,
        )

    def _best(self, pairs: Sequence[Pair], half: int) -> int:
        """The place of the temperature with the lowest mean over the pairs; 1 where the half is empty."""
        means = [
            np.mean(values, axis=0)
            for pair in pairs
            if (values := [row for place, row in self._losses[pair].items() if half_of(place) == half])
        ]
        if not means:
            return int(np.searchsorted(self.temperatures, 1.0))
        return int(np.argmin(np.mean(means, axis=0)))
