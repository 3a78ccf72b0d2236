"""A flipped bit of an answer, a score or a record is found, or changes nothing that anybody reads."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from torture.flips import flip_target
from torture.readers.flipped_results import flipped_prediction, flipped_records, flipped_stage, flipped_step
from torture.readers.target import Target


@pytest.mark.parametrize("number", [20, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", [flipped_prediction, flipped_records, flipped_stage, flipped_step])
def test_no_flipped_bit_of_a_result_is_used(
    make: Callable[[Path], Target], number: int, tmp_path: Path, flips: Callable[[str, Counter[str]], None]
) -> None:
    ended = flip_target(make, tmp_path, number, seed=number)
    assert ended["found"] > number / 2
    flips(make.__name__.replace("flipped_", "results: "), ended)
