"""The best of each row of logits, chunk by chunk of a vocabulary, and what probabilities are relative to (best.c).

A row's results depend neither on the rows beside it nor on the number of threads, and every level gives the same bits.
"""

import torch
from torch import Tensor

from babelcap.native.compiled import checked, compiled_module, known_float_levels
from babelcap.native.threads import parallel_address


class BestSoFar:
    """Of `num_rows` rows the `number` largest logits, the largest first; with `sums`, those of exp(logit - largest)."""

    def __init__(self, num_rows: int, number: int, *, level: str, sums: bool) -> None:
        self._compiled = compiled_module("best")
        self._level = known_float_levels("best").index(level)
        self.values = torch.full((num_rows, number), -torch.inf)  # not a number first: a logit was none
        self.places = torch.zeros(num_rows, number, dtype=torch.long)
        self.sums = torch.zeros(num_rows, dtype=torch.double) if sums else None

    def add(self, logits: Tensor, start: int) -> None:
        """[rows, width], whose first stands at place `start` of the vocabulary."""
        logits = checked(logits, torch.float32, 2).contiguous()
        num_rows, number = self.values.shape
        if len(logits) != num_rows or start < 0:
            raise ValueError(f"{len(logits)} rows from place {start} on: {num_rows} are looked at")
        if not logits.numel() or not number:
            return
        self._compiled.look(
            self._level,
            parallel_address(),
            torch.get_num_threads(),
            logits.data_ptr(),
            num_rows,
            logits.shape[1],
            start,
            number,
            self.values.data_ptr(),
            self.places.data_ptr(),
            0 if self.sums is None else self.sums.data_ptr(),
        )

    def log_sum_exp(self) -> Tensor | None:
        """[row] log sum exp(logit) of all that was added; none where no sums were wanted."""
        return None if self.sums is None else self.values[:, 0] + self.sums.log().float()
