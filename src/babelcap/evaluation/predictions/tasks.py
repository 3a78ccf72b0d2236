"""What is asked for: benchmarks, task sets or files of items, read and checked before any model is loaded."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from babelcap.data.feed.images import decode_image
from babelcap.errors import BadSample, UserError
from babelcap.evaluation.benchmarks import BENCHMARKS, TASK_SETS, Item, read_benchmark, require_images
from babelcap.evaluation.benchmarks.item_file import SUFFIX, read_item_file
from babelcap.evaluation.benchmarks.table import known_name
from babelcap.evaluation.predictions.folder import CAPTION, LOSSES, PARTS, TRANSLATION, AskedItem
from babelcap.storage import RememberedChecksums

# What of a benchmark a task set is about, where it is not all of it: CoMMuTE has translations and losses.
PARTS_OF_SETS = {"captioning": (CAPTION,), "translation": (TRANSLATION,), "ambiguity": (LOSSES,)}
CHECKED_SIZE_PX = 64  # pictures are decoded reduced where their format allows: damage shows all the same
SEED = 0  # of the derangement, which is one for all


@dataclass(frozen=True)
class Task:
    """One part of one benchmark: what one prediction is of."""

    benchmark: str
    part: str
    items: tuple[Item, ...]
    given: Mapping[str, Any]  # how it was asked for: benchmark, data, languages, limit


@dataclass(frozen=True)
class Selection:
    """Some of a benchmark's items; None for all."""

    root: Path
    languages: tuple[str, ...] | None = None
    limit: int | None = None  # of each language


def read_tasks(names: Sequence[str], selection: Selection, on_missing: Callable[[str], None]) -> list[Task]:
    """The tasks of all names, each once. A benchmark whose files are not there goes to `on_missing`, in one line."""
    tasks: dict[tuple[str, str], Task] = {}
    wanted = [found for name in names for found in _named(name)]
    for name, parts, languages in wanted:
        try:
            items = _read(name, selection, languages)
        except UserError as error:
            on_missing(f"{_title(name)}: {error}")
            continue
        given = {
            "benchmark": str(Path(name).absolute()) if name.endswith(SUFFIX) else name,
            "data": None if name.endswith(SUFFIX) else str(selection.root.absolute()),
            "languages": ",".join(selection.languages or languages or ()) or None,
            "limit": selection.limit,
        }
        for part in parts:
            chosen = tuple(item for item in items if part_of(item, part))
            if chosen:
                tasks.setdefault((name, part), Task(_title(name), part, chosen, given))
    return list(tasks.values())


def part_of(item: Item, part: str) -> bool:
    return item.contrast is not None if part == LOSSES else item.task == part


def _named(name: str) -> list[tuple[str, tuple[str, ...], tuple[str, ...] | None]]:
    """(benchmark, its parts, its languages) of each benchmark that a name stands for."""
    if name.endswith(SUFFIX):
        return [(name, PARTS, None)]
    known_name(name, [*BENCHMARKS, *TASK_SETS], "benchmark or task set")
    if name in BENCHMARKS:
        return [(name, PARTS, None)]
    benchmarks, languages = TASK_SETS[name]
    return [(benchmark, PARTS_OF_SETS.get(name, PARTS), languages) for benchmark in benchmarks]


def _title(name: str) -> str:
    return Path(name).stem if name.endswith(SUFFIX) else name


def _read(name: str, selection: Selection, languages: tuple[str, ...] | None) -> list[Item]:
    is_file = name.endswith(SUFFIX)
    items = read_item_file(name) if is_file else read_benchmark(name, selection.root, languages)
    if selection.languages is not None:
        there = list(dict.fromkeys(item.language for item in items))
        items = [item for item in items if item.language in selection.languages]
        if not items:
            raise UserError(f"no item in {', '.join(selection.languages)}; it has {', '.join(there)}")
    if selection.limit is not None:
        items = list(_first(items, selection.limit))
    require_images(items, "where the file is from" if is_file else BENCHMARKS[name].images_origin)
    return items


def _first(items: Iterable[Item], limit: int) -> Iterable[Item]:
    """The first items of each language; whole pairs of those that come in pairs."""
    counts: dict[tuple[str, bool], int] = {}
    for item in items:
        kind = (item.language, item.contrast is not None)
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] <= limit + (limit % 2 if item.contrast is not None else 0):
            yield item


def asked_items(items: Sequence[Item], checksums: RememberedChecksums, *, shuffled: bool) -> list[AskedItem]:
    """Items with the contents of their pictures, and the picture that each is shown."""
    digests = [checksums.sha256(item.image) for item in items]
    own = [AskedItem(item, digest, item.image) for item, digest in zip(items, digests, strict=True)]
    if not shuffled:
        return own
    paths: dict[str, Path] = {}
    for asked in own:
        paths.setdefault(asked.picture_sha256, asked.item.image)
    other = derangement(sorted(paths))
    return [replace(asked, shown=paths[other[asked.picture_sha256]]) for asked in own]


def derangement(names: Sequence[str]) -> dict[str, str]:
    """Each name's other one; all of them in one circle (Sattolo), so that none stays with itself."""
    if len(names) < 2:
        raise UserError(f"--shuffle-images: found {len(names)} picture; at least 2 are needed to exchange them")
    generator = np.random.default_rng([SEED, len(names)])
    places = list(range(len(names)))
    for place in range(len(names) - 1, 0, -1):
        other = int(generator.integers(place))
        places[place], places[other] = places[other], places[place]
    return {name: names[place] for name, place in zip(names, places, strict=True)}


def check_pictures(items: Iterable[Item], where: str) -> None:
    """Every picture can be decoded, or one line says how many cannot and why the first cannot."""
    problems = []
    for image in dict.fromkeys(item.image for item in items):
        try:
            decode_image(image, CHECKED_SIZE_PX)
        except BadSample as error:
            problems.append(f"{image}: {' '.join(str(error).split())}")
    if problems:
        more = f" ({len(problems)} such pictures)" if len(problems) > 1 else ""
        raise UserError(f"{where}: {problems[0]}{more}; get it again")
