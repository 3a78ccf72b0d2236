"""A language's candidates and the texts they name, on disk: `select` goes through them without holding them.

runs    the candidates of one group of tars, sorted best first; merged block by block into one sequence
texts   both sides of every pair that is a candidate, in one file

Memory: BLOCK candidates a group (24 bytes each), 20 bytes a text that is somebody's candidate; none a text that is not.
"""

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from babelcap.generate.select import CandidateTable
from babelcap.storage import parquet_errors

BLOCK = 65_536  # candidates of a run that are in memory
RECORD = np.dtype([("image", "<i8"), ("hash", "<u8"), ("score", "<f8")])
WORDS_KEPT = 20_000  # texts whose words are remembered


class CandidateRuns:
    """Those with at least `min_score`. `hashes`, sorted, are of all their texts: a text's number is its place there."""

    def __init__(self, folder: Path, min_score: float, block: int = BLOCK) -> None:
        self.folder, self.min_score, self.block = folder, min_score, block
        self.sizes: list[int] = []
        self.hashes = np.zeros(0, np.uint64)

    def add(self, images: NDArray[np.int64], hashes: NDArray[np.uint64], scores: NDArray[np.float64]) -> None:
        order = np.lexsort((images, hashes, -scores))[: int((scores >= self.min_score).sum())]
        records = np.empty(len(order), RECORD)
        records["image"], records["hash"], records["score"] = images[order], hashes[order], scores[order]
        records.tofile(self._path(len(self.sizes)))
        self.sizes.append(len(records))
        self.hashes = np.union1d(self.hashes, records["hash"])

    def best_first(self) -> Iterator[CandidateTable]:
        """All candidates of all runs in one order, whatever runs they are in."""
        read = [0] * len(self.sizes)
        waiting = [np.zeros(0, RECORD) for _ in self.sizes]
        while True:
            for run, size in enumerate(self.sizes):
                if read[run] < size and len(waiting[run]) <= self.block // 2:
                    more = self._read(run, read[run], self.block - len(waiting[run]))
                    read[run] += len(more)
                    waiting[run] = np.concatenate([waiting[run], more])
            together = np.concatenate(waiting) if waiting else np.zeros(0, RECORD)
            if not len(together):
                return
            numbers = np.searchsorted(self.hashes, together["hash"])
            table = CandidateTable(together["image"], numbers, together["score"])
            order = table.order
            # Beyond the last of a run that goes on, something that is still on disk may come first.
            rank = np.empty(len(order), np.int64)
            rank[order] = np.arange(len(order))
            ends = np.cumsum([len(part) for part in waiting])
            lasts = [rank[end - 1] for run, end in enumerate(ends) if read[run] < self.sizes[run]]
            order = order[: min(lasts) + 1] if lasts else order
            yield table.only(order)
            counts = np.bincount(np.searchsorted(ends, order, side="right"), minlength=len(waiting))
            waiting = [part[count:] for part, count in zip(waiting, counts, strict=True)]

    def _read(self, run: int, start: int, number: int) -> NDArray[np.void]:
        return np.fromfile(self._path(run), RECORD, count=number, offset=start * RECORD.itemsize)

    def _path(self, run: int) -> Path:
        return self.folder / f"run-{run}"


class TextStore:
    """The pairs with the given hashes, which are sorted, out of a language's chunks."""

    def __init__(self, path: Path, chunks: Sequence[Path], hashes: NDArray[np.uint64]) -> None:
        self.offsets = np.full(len(hashes), -1, np.int64)
        with path.open("wb") as file:
            for chunk in chunks:
                with parquet_errors(chunk), pq.ParquetFile(chunk) as reader:
                    for batch in reader.iter_batches(batch_size=BLOCK, columns=["hash", "en", "target"]):
                        found = batch["hash"].to_numpy()
                        numbers = np.searchsorted(hashes, found)
                        is_wanted = np.append(hashes, np.uint64(0))[numbers] == found
                        kept = batch.filter(pa.array(is_wanted))
                        sides = zip(kept["en"].to_pylist(), kept["target"].to_pylist(), strict=True)
                        for number, pair in zip(numbers[is_wanted].tolist(), sides, strict=True):
                            self.offsets[number] = file.tell()
                            file.write(json.dumps(pair).encode() + b"\n")
        self.file = path.open("rb")
        self.words = lru_cache(WORDS_KEPT)(self._words)

    def pair(self, number: int) -> tuple[str, str]:
        """English and the other side."""
        assert self.offsets[number] >= 0, "a candidate's text is in none of the chunks it was found in"
        self.file.seek(self.offsets[number])
        english, target = json.loads(self.file.readline())
        return english, target

    def _words(self, number: int) -> frozenset[str]:
        return frozenset(self.pair(number)[0].casefold().split())

    def close(self) -> None:
        self.file.close()
