"""Damaged files of every reader: read, or refused in one line. The list of readers is `torture.readers`."""

from collections.abc import Callable
from pathlib import Path

import pytest

from torture.readers import READERS
from torture.readers.target import Target

NUM, NUM_SLOW = 12, 600  # damaged inputs of each reader
Attack = Callable[[Callable[..., object], int], None]
EVERY = [make for makers in READERS.values() for make in makers]


@pytest.mark.parametrize("number", [NUM, pytest.param(NUM_SLOW, marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", EVERY, ids=lambda make: make.__name__)
def test_damaged_files(make: Callable[[Path], Target], number: int, attack: Attack) -> None:
    attack(make, number)
