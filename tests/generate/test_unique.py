"""Copies over all chunks: what is kept does not depend on how the text was cut, ordered or grouped."""

import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelcap.generate.config import BuildConfig
from babelcap.generate.pipeline import Build
from babelcap.generate.schemas import CLEAN
from babelcap.generate.unique import COPY, NEAR_COPY, find_repeats
from babelcap.jobs.stages import Engine

WORDS = (
    "red",
    "blue",
    "green",
    "small",
    "large",
    "old",
    "new",
    "dog",
    "cat",
    "bird",
    "tree",
    "house",
    "street",
    "river",
)
NUM_PAIRS, NUM_COPIES, NUM_NEAR = 120, 30, 20


def lines() -> list[str]:
    """120 pairs, 30 of them twice, 20 others once more in capitals."""
    rng = random.Random(0)
    sides = [(f"We saw the {' '.join(rng.sample(WORDS, 6))} today.", f"Satz {n} auf Deutsch, lang genug für alle.")
             for n in range(NUM_PAIRS)]  # fmt: skip
    sides += sides[:NUM_COPIES]
    sides += [(english.upper(), target) for english, target in sides[NUM_COPIES : NUM_COPIES + NUM_NEAR]]
    return [f"{english}\t{target}\n" for english, target in sides]


@pytest.fixture
def kept(
    tmp_path: Path, settings: Callable[..., BuildConfig], here: Engine
) -> Callable[..., tuple[list[str], dict[str, int]]]:
    def run(text: list[str], chunk: int, group: int) -> tuple[list[str], dict[str, int]]:
        folder = tmp_path / f"{chunk}-{group}-{hash(tuple(text))}"
        folder.mkdir()
        (folder / "t.tsv").write_text("".join(text))
        coverage = {"languages": ["en", "de"], "seen": ["caption-en", "translation-de"], "splits": {}}
        clean = {"check_language": False, "pairs_per_chunk": chunk, "pairs_per_group": group}
        source = {"de": {"files": [folder / "t.tsv"], "format": "tsv"}}
        build = Build(settings(folder / "out", coverage=coverage, clean=clean, text=source), here)
        build.run("clean")
        drops = {COPY: 0, NEAR_COPY: 0}
        for stage in ("clean", "unique"):
            for receipt in build.receipts[stage].values():
                assert receipt.num_in == receipt.num_out + sum(receipt.drops.values())
                for reason, number in receipt.drops.items():
                    drops[reason] += number
        tables = [pq.read_table(path) for path in build.cleaned["de"].files.values()]
        assert len(build.receipts["repeats"]) == -(-sum(r.num_out for r in build.receipts["clean"].values()) // group)
        return sorted(f"{row['en']}\t{row['target']}\n" for table in tables for row in table.to_pylist()), drops

    return run


def test_however_it_is_cut_one_of_each_is_kept(kept: Callable[..., tuple[list[str], dict[str, int]]]) -> None:
    text = lines()
    expected = sorted(text[:NUM_PAIRS])  # never the one in capitals
    counts = {COPY: NUM_COPIES, NEAR_COPY: NUM_NEAR}
    assert kept(text, 1000, 1000) == (expected, counts)
    assert kept(text, 25, 1000) == (expected, counts)
    assert kept(text, 40, 30) == (expected, counts)
    random.Random(1).shuffle(text)
    assert kept(text, 33, 50) == (expected, counts)


def test_memory_is_that_of_a_group(tmp_path: Path) -> None:
    """16 bytes for each pair of the group, and a chunk's keys in some copies, however much text there is."""
    size, num_chunks, rng = 50_000, 8, np.random.default_rng(0)
    paths = []
    for number in range(num_chunks):
        keys = rng.integers(1, 2**63, size, np.uint64)
        columns = [keys, [""] * size, [""] * size, ["de"] * size, keys, np.zeros(size, np.uint16)]
        paths.append(tmp_path / f"{number}.parquet")
        pq.write_table(pa.table(columns, schema=CLEAN), paths[-1])
    names = [path.stem for path in paths]

    def peak(num_groups: int) -> int:
        pool = pa.default_memory_pool()
        before = pool.bytes_allocated()
        tracemalloc.start()
        find_repeats({"text": paths}, {"chunks": names, "group": 0, "num_groups": num_groups})
        numpy_peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return numpy_peak + pool.bytes_allocated() - before

    per_chunk = 40 * size
    assert peak(1) < 16 * num_chunks * size + per_chunk
    assert peak(8) < 16 * size + per_chunk
