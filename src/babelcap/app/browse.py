"""Texts of a corpus by what they are: filtered and ordered column by column, a page at a time.

Looks at a bounded number of texts, and says how far it came: a corpus may have a hundred million.
"""

import heapq
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from babelcap.data.store.format import ANNOTATION_TYPE, read_batches
from babelcap.data.store.store import Corpus
from babelcap.data.store.verify import require_annotations

STORED, WORST, BEST = "stored", "worst", "best"
MAX_LOOKED_AT = 1_000_000
COLUMNS = ["key", "tar", "offset", "length", "split", "annotations"]


@dataclass(frozen=True)
class Filter:
    """None: any."""

    split: str | None = None
    task: str | None = None
    language: str | None = None
    origin: str | None = None
    words: str = ""  # that the target or the source has to contain
    score: tuple[float, float] | None = None


class FoundText(NamedTuple):
    """One text with where its picture lies."""

    key: str
    tar: str
    offset: int
    length: int
    split: str
    annotation: dict[str, Any]


@dataclass
class Found:
    texts: list[FoundText] = field(default_factory=list)
    num_matches: int = 0  # among those looked at
    num_looked_at: int = 0
    is_all: bool = True
    has_scores: bool = False


class Ranked:
    """The so many texts of highest value, the earlier one first where values are equal."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._heap: list[tuple[float, int, FoundText]] = []  # the least wanted first
        self._num_offered = 0

    def offer(self, value: float, make: Callable[[], FoundText]) -> None:
        self._num_offered += 1
        entry = (value, -self._num_offered)  # a number of its own, so that texts are never compared
        if len(self._heap) < self.size:
            heapq.heappush(self._heap, (*entry, make()))
        elif entry > self._heap[0][:2]:
            heapq.heapreplace(self._heap, (*entry, make()))

    def texts(self) -> list[FoundText]:
        return [text for _, _, text in sorted(self._heap, key=lambda entry: entry[:2], reverse=True)]


def find_texts(corpus: Corpus, wanted: Filter, order: str = STORED, num: int = 12, start: int = 0) -> Found:
    """A text without a score has no place in an order by score."""
    found, ranked = Found(), Ranked(start + num)
    for batch in _batches(corpus, wanted, found):
        fields = dict(zip(ANNOTATION_TYPE.names, batch.column("annotations").flatten().flatten(), strict=True))
        parents = pc.list_parent_indices(batch.column("annotations")).to_numpy()
        splits = batch.column("split").take(pa.array(parents))
        places = np.flatnonzero(_matches(fields, splits, wanted))
        scores = np.asarray(fields["score"].to_numpy(zero_copy_only=False), dtype=float)  # none: not a number
        with_score = places[np.isfinite(scores[places])]
        if order == STORED:
            first = max(0, start - found.num_matches)
            for place in places[first : first + max(0, num - len(found.texts))]:
                found.texts.append(_text(batch, fields, int(parents[place]), int(place)))
        else:
            for place in with_score:
                make = partial(_text, batch, fields, int(parents[place]), int(place))
                ranked.offer(float(scores[place]) * (-1 if order == WORST else 1), make)
        found.has_scores = found.has_scores or bool(len(with_score))
        found.num_looked_at += len(parents)
        found.num_matches += len(places)
    if order != STORED:
        found.texts = ranked.texts()[start:]
    return found


def _batches(corpus: Corpus, wanted: Filter, found: Found) -> Iterator[pa.RecordBatch]:
    for shard in corpus.manifest.shards:
        if wanted.split is not None and wanted.split not in shard.splits:
            continue
        if found.num_looked_at >= MAX_LOOKED_AT:
            found.is_all = False
            return
        require_annotations(corpus.folder, [shard])
        yield from read_batches(corpus.annotations_path(shard), COLUMNS, 4096)


def _matches(fields: dict[str, pa.Array], splits: pa.Array, wanted: Filter) -> np.ndarray:
    inside = np.ones(len(splits), dtype=bool)
    for values, value in (
        (splits, wanted.split),
        (fields["task"], wanted.task),
        (fields["language"], wanted.language),
        (fields["origin"], wanted.origin),
    ):
        if value is not None:
            inside &= _as_bools(pc.equal(values, value))
    if wanted.words:
        texts = [
            _as_bools(pc.match_substring(fields[name], wanted.words, ignore_case=True)) for name in ("source", "target")
        ]
        inside &= texts[0] | texts[1]
    if wanted.score is not None:
        low, high = wanted.score
        inside &= _as_bools(pc.greater_equal(fields["score"], low)) & _as_bools(pc.less_equal(fields["score"], high))
    return inside


def _as_bools(values: pa.Array) -> np.ndarray:
    return np.asarray(pc.fill_null(values, False).to_numpy(zero_copy_only=False), dtype=bool)


def _text(batch: pa.RecordBatch, fields: dict[str, pa.Array], image: int, place: int) -> FoundText:
    values = {name: column[place].as_py() for name, column in fields.items()}
    key, tar, offset, length, split = (batch.column(name)[image].as_py() for name in COLUMNS[:-1])
    return FoundText(key, tar, offset, length, split, values)


def origins_of(corpus: Corpus) -> list[str]:
    """Who made the texts, of the first shard: enough to choose from."""
    origins: set[str] = set()
    for shard in corpus.manifest.shards[:1]:
        require_annotations(corpus.folder, [shard])
        for batch in read_batches(corpus.annotations_path(shard), ["annotations"], 4096):
            fields = dict(zip(ANNOTATION_TYPE.names, batch.column("annotations").flatten().flatten(), strict=True))
            origins |= set(pc.unique(fields["origin"]).to_pylist())
    return sorted(origin for origin in origins if origin)
