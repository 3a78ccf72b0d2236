"""Pictures of one set that are in another: by the ids that their names tell, and by what they look like.

Names are cheap and exact, where both sides kept them; fingerprints find what was renamed, re-encoded or resized.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from babelcap.data.feed.images import ImageInput
from babelcap.data.importers.files import files_below
from babelcap.data.inspect.fingerprints import Prints, fingerprint
from babelcap.data.inspect.image_names import Aliases, image_ids
from babelcap.data.inspect.near_prints import near_pairs
from babelcap.data.store.index import TarReader
from babelcap.data.store.manifest import Shard
from babelcap.data.store.store import Corpus
from babelcap.data.store.tar import IMAGE_EXTENSIONS
from babelcap.errors import BadSample, UserError
from babelcap.jobs.shards import map_shards

MAX_DISTANCE = 20  # of 128 bits; why: docs/finetune.md
NAME, PICTURE = "name", "picture"
FILES_PER_JOB = 500


class Pictures(NamedTuple):
    """A set of pictures: where each is from, its name, and its prints where `is_printed`."""

    sets: list[str]  # such as the benchmark's name
    names: list[str]  # paths or keys
    prints: Prints
    is_printed: NDArray[np.bool_]
    unreadable: Counter[str]  # reason -> pictures that could not be looked at

    @property
    def num_not_compared(self) -> int:
        return int((~self.is_printed).sum())


class Leak(NamedTuple):
    """A picture that is in both sets."""

    key: str
    set: str
    name: str
    how: str  # NAME or PICTURE
    distance: int | None = None  # in bits, where their pictures were compared


def find_leaks(
    left: Pictures, right: Pictures, max_distance: int = MAX_DISTANCE, aliases: Aliases | None = None
) -> list[Leak]:
    """Every pair once, by the order of `left`; what both name and picture tell counts as told by name."""
    by_id: dict[str, list[int]] = {}
    for row, name in enumerate(right.names):
        for one in image_ids(name, aliases):
            by_id.setdefault(one, []).append(row)
    found: dict[tuple[int, int], tuple[str, int | None]] = {}
    for row, name in enumerate(left.names):
        for one in image_ids(name, aliases):
            found |= {(row, other): (NAME, None) for other in by_id.get(one, ())}
    rows = [np.flatnonzero(side.is_printed) for side in (left, right)]
    near = near_pairs(left.prints[rows[0]], right.prints[rows[1]], max_distance)
    for at_left, at_right, distance in zip(*near, strict=True):
        pair = int(rows[0][at_left]), int(rows[1][at_right])
        found[pair] = (found.get(pair, (PICTURE, None))[0], int(distance))
    return [
        Leak(left.names[row], right.sets[other], right.names[other], how, distance)
        for (row, other), (how, distance) in sorted(found.items())
    ]


def gather(parts: Iterable[Pictures]) -> Pictures:
    parts = list(parts)
    return Pictures(
        [name for part in parts for name in part.sets],
        [name for part in parts for name in part.names],
        np.concatenate([np.zeros((0, 2), np.uint64), *(part.prints for part in parts)]),
        np.concatenate([np.zeros(0, np.bool_), *(part.is_printed for part in parts)]),
        sum((part.unreadable for part in parts), Counter[str]()),
    )


def pictures_of_files(paths: Sequence[Path], name: str, num_workers: int = 1) -> Pictures:
    """Files that are not there are known by their names alone."""
    jobs = [(paths[start : start + FILES_PER_JOB], name) for start in range(0, len(paths), FILES_PER_JOB)]
    return gather(map_shards(_print_files, jobs, num_workers, f"Looking at {name}"))


def pictures_of_folder(folder: Path, num_workers: int = 1) -> Pictures:
    """Every image file below a folder."""
    if not folder.is_dir():
        raise UserError(f"{folder}: no such folder")
    paths = sorted(path for path in files_below(folder) if path.suffix[1:].lower() in IMAGE_EXTENSIONS)
    if not paths:
        raise UserError(f"{folder} holds no pictures ({', '.join(sorted(IMAGE_EXTENSIONS))})")
    return pictures_of_files(paths, str(folder), num_workers)


def pictures_of_corpus(corpus: Corpus, splits: Sequence[str], num_workers: int = 1) -> Pictures:
    shards = [shard for shard in corpus.manifest.shards if set(splits) & set(shard.splits)]
    jobs = [(corpus, shard, tuple(splits)) for shard in shards]
    return gather(map_shards(_print_shard, jobs, num_workers, f"Looking at {corpus.folder.name}"))


def print_pictures(sets: list[str], names: list[str], read: Callable[[int], ImageInput]) -> Pictures:
    """`read` gives the encoded image, or the file, of a row."""
    prints, is_printed = np.zeros((len(names), 2), np.uint64), np.zeros(len(names), np.bool_)
    unreadable: Counter[str] = Counter()
    for row in range(len(names)):
        try:
            prints[row] = fingerprint(read(row))
            is_printed[row] = True
        except BadSample as error:
            unreadable[error.reason] += 1
    return Pictures(sets, names, prints, is_printed, unreadable)


def _print_files(job: tuple[Sequence[Path], str]) -> Pictures:
    paths, name = job
    return print_pictures([name] * len(paths), [path.as_posix() for path in paths], paths.__getitem__)


def _print_shard(job: tuple[Corpus, Shard, tuple[str, ...]]) -> Pictures:
    corpus, shard, splits = job
    rows = [row for row in corpus.shard_rows(shard) if row.split in splits]
    reader = TarReader([corpus.tar_path(shard.tar)])
    sets, names = [f"{corpus.folder} ({row.split})" for row in rows], [row.key for row in rows]
    return print_pictures(sets, names, lambda row: reader.read(0, rows[row].offset, rows[row].length))
