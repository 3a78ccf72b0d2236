"""Attacks on a corpus: seeded bit flips and wrong values, counted.

A flipped bit is found when the corpus is opened, or does not change what is read, or is found by `data check --full`.
"""

import json
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.store import Corpus
from babelcap.errors import UserError
from babelcap.storage import text_sha256
from babelcap.world.corpus import TEXT_KINDS
from torture.damage import wrong_value
from torture.flips_corpus import PARTS, all_that_is_read, flip_bits, make_attacked

NUM_FLIPS, NUM_FLIPS_SLOW = 20, 200  # of each part of a corpus
NUM_WRONG = 120  # values of the manifest
Flips = Callable[[str, dict[str, int]], None]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_attacked(tmp_path_factory.mktemp("attacked") / "world")


@pytest.mark.parametrize("part", PARTS)
def test_no_flipped_bit_is_used_silently(world: Path, part: str) -> None:
    ended = flip_bits(world, part, NUM_FLIPS, seed=1)
    assert ended.total() == NUM_FLIPS
    if part in {"annotations", "truth", "text", "tokenizers"}:
        assert ended == {"found when opened": NUM_FLIPS}
    if part == "tars":
        assert ended["changes nothing"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [NUM_FLIPS_SLOW])
@pytest.mark.parametrize("part", PARTS)
def test_no_flipped_bit_of_hundreds_is_used_silently(world: Path, part: str, number: int, flips: Flips) -> None:
    ended = flip_bits(world, part, number, seed=2)
    flips(f"corpus: {part}", ended)
    assert ended.total() == number


def test_no_altered_manifest_passes(world: Path) -> None:
    """Wrong values with the right checksum, as a program with a fault would write them, and with the old one."""
    path = world / "corpus.json"
    whole, generator = path.read_bytes(), random.Random(3)
    values = json.loads(whole)
    stated = values.pop("sha256")
    num_tried, num_silent = 0, 0
    try:
        for _ in range(NUM_WRONG):
            changed = wrong_value(values, generator)
            if changed == values or not isinstance(changed, dict):
                continue
            num_tried += 1
            path.write_text(json.dumps({**changed, "sha256": stated}))
            with pytest.raises(UserError):
                Corpus.open(world)
            path.write_text(json.dumps({**changed, "sha256": text_sha256(json.loads(json.dumps(changed)))}))
            with suppress(UserError):
                CorpusIndex.open(world)
                num_silent += 1  # a provenance or a checksum that nothing was read by: no result depends on it here
    finally:
        path.write_bytes(whole)
    assert num_tried > NUM_WRONG / 2
    assert num_silent < num_tried


def test_what_the_attacks_read_is_what_a_world_has(world: Path) -> None:
    """An attack on nothing would find nothing."""
    found = all_that_is_read(world)
    assert all(found.values())
    assert len(found["free text"]) == 6 * len(TEXT_KINDS)
