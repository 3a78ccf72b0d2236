"""Batches of training and evaluation, read ahead by worker processes. The state of training is one integer, the step.

Step t takes the indices [t B, (t + 1) B). Every rank sorts all B by the lengths of their texts in the same way and
takes its share of the micro-batches: which samples a step sees depends neither on the ranks nor on the workers.
"""

import gc
import os
import signal
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch.utils.data import DataLoader, Dataset

from babelcap.config import ConfigModel, resource
from babelcap.coverage import Pair
from babelcap.data.feed.batches import Batch
from babelcap.data.feed.mixture import AnnotationRows, Mixture
from babelcap.data.feed.reader import BadSamples, BatchReader
from babelcap.errors import UserError

RESOLVED_AT_ONCE = 2048  # indices


class LoaderConfig(ConfigModel):
    batch_size: int = Field(1024, ge=1)  # samples of a step, over all ranks
    micro_batch_size: int = Field(32, ge=1)  # samples that go through the model at once, on one rank
    num_workers: int = resource(0, ge=0)  # processes that read ahead, for each rank
    prefetch: int = resource(4, ge=1)  # micro-batches that each worker keeps ready


@dataclass
class Loaded:
    """What a worker hands back. `batch` is None where every sample was bad; a user's mistake comes as text."""

    batch: Batch | None
    num_samples: int = 0
    bad: dict[str, int] = field(default_factory=dict)
    mistake: str = ""


def global_batch_indices(step: int, batch_size: int) -> np.ndarray:
    return np.arange(step * batch_size, (step + 1) * batch_size, dtype=np.int64)


def group_by_length(prompt_bytes: np.ndarray, target_bytes: np.ndarray, micro_batch_size: int) -> np.ndarray:
    """[num_micro_batches, micro_batch_size]: places of the samples, so grouped that both texts need little padding.

    Sorted by prompt and cut into about as many bands as each will hold micro-batches; each band sorted by target.
    """
    num_groups = len(prompt_bytes) // micro_batch_size
    by_prompt = np.lexsort((target_bytes, prompt_bytes)).reshape(num_groups, micro_batch_size)
    bands = np.array_split(by_prompt, max(1, round(num_groups**0.5)))
    sorted_bands = []
    for band in bands:
        places = band.reshape(-1)
        order = np.lexsort((prompt_bytes[places], target_bytes[places]))
        sorted_bands.append(places[order].reshape(band.shape))
    return np.concatenate(sorted_bands)


class TrainingBatches(Dataset[Loaded]):
    """`dataset[step, number]` is one micro-batch of this rank, whoever asks and in whatever order."""

    def __init__(self, mixture: Mixture, reader: BatchReader, config: LoaderConfig, rank: int, world_size: int) -> None:
        self.mixture, self.reader, self.config = mixture, reader, config
        self.rank, self.world_size = rank, world_size
        self.num_micro_batches = check_division(config, world_size)
        self._resolved: dict[int, tuple[np.ndarray, np.ndarray]] = {}  # of a few steps: pair numbers and rows
        self._plan: tuple[int, Any] = (-1, None)

    def plan(self, step: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Indices, pair numbers and rows of a whole step, each [micro-batch of all ranks, sample]."""
        if self._plan[0] != step:
            if step not in self._resolved:
                self._resolve_from(step)
            indices = global_batch_indices(step, self.config.batch_size)
            pair_numbers, rows = self._resolved[step]
            groups = group_by_length(*self.reader.corpus.text_bytes(rows), self.config.micro_batch_size)
            self._plan = (step, (indices[groups], pair_numbers[groups], rows[groups]))
        return self._plan[1]

    def _resolve_from(self, step: int) -> None:
        """Several small steps at once: for few indices most of the mixture's time is not spent on them."""
        steps = range(step, step + max(1, RESOLVED_AT_ONCE // self.config.batch_size))
        indices = np.concatenate([global_batch_indices(one, self.config.batch_size) for one in steps])
        parts = (part.reshape(len(steps), -1) for part in self.mixture.resolve(indices))
        self._resolved = dict(zip(steps, zip(*parts, strict=True), strict=True))

    def __getitem__(self, place: tuple[int, int]) -> Loaded:
        step, number = place
        # Neighbours in length go to different ranks at the same time, so that no rank waits for a longer batch.
        indices, pair_numbers, rows = (part[number * self.world_size + self.rank] for part in self.plan(step))
        try:
            batch, bad = self.reader.read(
                self.mixture.pairs, indices, pair_numbers, rows, substitute=self.mixture.replacement
            )
        except UserError as error:
            return Loaded(None, mistake=str(error))
        assert batch is not None, "bad samples are replaced in training"
        batch.step, batch.number = step, number
        return Loaded(batch, len(indices), bad)


class TrainingLoader:
    """Gives every step's micro-batches for one rank, from any step on, and totals the bad samples."""

    def __init__(
        self, mixture: Mixture, reader: BatchReader, config: LoaderConfig, rank: int = 0, world_size: int = 1
    ) -> None:
        self.dataset = TrainingBatches(mixture, reader, config, rank, world_size)
        self.config = config
        self.pairs = mixture.pairs
        self.bad = BadSamples(reader.config.max_bad_share)

    @property
    def num_micro_batches(self) -> int:
        return self.dataset.num_micro_batches

    def steps(self, start: int, stop: int) -> Iterator[tuple[int, list[Batch]]]:
        """(step, its micro-batches) for each step from `start` up to `stop`."""
        places = ((step, number) for step in range(start, stop) for number in range(self.num_micro_batches))
        batches: list[Batch] = []
        for loaded in read_ahead(self.dataset, places, self.config.num_workers, self.config.prefetch):
            assert loaded.batch is not None
            self.bad.add(loaded.num_samples, loaded.bad)
            batches.append(loaded.batch)
            if len(batches) == self.num_micro_batches:
                yield loaded.batch.step, batches
                batches = []


class SequentialBatches(Dataset[Loaded]):
    """`dataset[n]` is the n-th batch of an evaluation: one pair each, by length, in an order that never changes."""

    def __init__(
        self,
        reader: BatchReader,
        pairs: tuple[Pair, ...],
        rows: Sequence[np.ndarray],
        batch_size: int,
    ) -> None:
        self.reader, self.pairs, self.rows = reader, pairs, rows
        self.batches: list[tuple[int, np.ndarray]] = []  # the pair's number, and places among its rows
        for number, pair_rows in enumerate(rows):
            prompt_bytes, target_bytes = reader.corpus.text_bytes(pair_rows)
            order = np.lexsort((prompt_bytes, target_bytes))
            self.batches += [(number, order[at : at + batch_size]) for at in range(0, len(order), batch_size)]

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, number: int) -> Loaded:
        pair_number, places = self.batches[number]
        try:
            batch, bad = self.reader.read(
                self.pairs, places, np.full(len(places), pair_number), self.rows[pair_number][places]
            )
        except UserError as error:
            return Loaded(None, mistake=str(error))
        if batch is not None:
            batch.number = number
        return Loaded(batch, len(places), bad)


@dataclass(frozen=True)
class EvaluationRows:
    """Which annotations are evaluated: at most `limit` of each pair, the first in storage order, so that a larger
    limit adds to them."""

    split: str
    pairs: tuple[Pair, ...]
    limit: int | None = None


class EvaluationLoader:
    """Iterates over a split, pair by pair. A bad sample is left out and counted, never replaced."""

    def __init__(
        self,
        corpus: AnnotationRows,
        reader: BatchReader,
        wanted: EvaluationRows,
        batch_size: int,
        num_workers: int = 0,
    ) -> None:
        self.pairs = wanted.pairs
        present = corpus.pairs(wanted.split)
        missing = [str(pair) for pair in self.pairs if pair not in present]
        if missing:
            found = ", ".join(map(str, present))
            raise UserError(f"the corpus has no {', '.join(missing)} in split '{wanted.split}' (it has {found})")
        if wanted.limit is not None and wanted.limit < 1:
            raise UserError(f"limit is {wanted.limit}; at least 1 annotation of each pair is evaluated")
        rows = [np.array(corpus.rows(wanted.split, pair)[: wanted.limit]) for pair in self.pairs]
        self.dataset = SequentialBatches(reader, self.pairs, rows, batch_size)
        self.num_workers = num_workers
        self.bad = BadSamples(reader.config.max_bad_share)

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[Batch]:
        self.bad = BadSamples(self.bad.max_share)
        for loaded in read_ahead(self.dataset, range(len(self.dataset)), self.num_workers):
            self.bad.add(loaded.num_samples, loaded.bad)
            if loaded.batch is not None:
                yield loaded.batch


def read_ahead(
    dataset: Dataset[Loaded], places: Iterable[Any], num_workers: int, prefetch: int = 4
) -> Iterator[Loaded]:
    """The dataset at these places, in order. The result does not depend on the number of workers."""
    if num_workers > 0:
        # Tokenizers' own threads do not survive a fork, and the workers are parallel already.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    loader: DataLoader[Loaded] = DataLoader(
        dataset,
        batch_size=None,
        sampler=places,
        num_workers=num_workers,
        prefetch_factor=prefetch if num_workers > 0 else None,
        collate_fn=_as_it_is,
        worker_init_fn=_enter_worker,
        generator=torch.Generator(),  # its own, or building a loader would draw from the one that dropout uses
    )
    for loaded in loader:
        if loaded.mistake:
            raise UserError(loaded.mistake)
        yield loaded


def check_division(config: LoaderConfig, world_size: int) -> int:
    """Micro-batches of a step on each rank."""
    unit = config.micro_batch_size * world_size
    if config.batch_size % unit:
        ranks = f"{world_size} rank{'s' if world_size > 1 else ''}"
        raise UserError(
            f"batch_size is {config.batch_size}, which {ranks} of micro_batch_size {config.micro_batch_size} do not "
            f"divide; choose a multiple of {unit}"
        )
    return config.batch_size // unit


def _enter_worker(worker: int) -> None:
    # A scheduler tells every process to leave; the one that trains decides when, and needs its workers until then.
    for number in (signal.SIGTERM, signal.SIGUSR1):
        signal.signal(number, signal.SIG_IGN)
    gc.freeze()  # what came with the fork is not looked through again and again, which would copy its pages


def _as_it_is(loaded: Any) -> Any:
    return loaded
