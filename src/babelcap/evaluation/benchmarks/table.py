"""The table of benchmarks: adding one is a file with a reader and a row here."""

import difflib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from babelcap.errors import UserError
from babelcap.evaluation.benchmarks import coco_karpathy, commute, docci, image_paragraphs, multi30k, world, xm3600
from babelcap.evaluation.benchmarks.items import Item


@dataclass(frozen=True)
class Benchmark:
    name: str
    read: Callable[[Path], list[Item]]  # from the folder that holds all benchmarks
    languages: tuple[str, ...]
    measures: str  # captioning | translation | ambiguity
    images_origin: str


def _translation(test_set: str) -> Benchmark:
    read = partial(multi30k.read_translation, test_set=test_set)
    name = f"multi30k-{test_set}"
    return Benchmark(name, read, multi30k.TRANSLATION_LANGUAGES, "translation", multi30k.IMAGES_ORIGIN)


_ROWS = (
    *map(_translation, multi30k.TEST_SETS),
    Benchmark(
        "multi30k-captions",
        multi30k.read_captions,
        multi30k.CAPTION_LANGUAGES,
        "captioning",
        multi30k.IMAGES_ORIGIN,
    ),
    Benchmark("coco", coco_karpathy.read_coco, ("en",), "captioning", coco_karpathy.IMAGES_ORIGIN),
    Benchmark("docci", docci.read_docci, ("en",), "captioning", docci.IMAGES_ORIGIN),
    Benchmark(
        "image-paragraphs", image_paragraphs.read_paragraphs, ("en",), "captioning", image_paragraphs.IMAGES_ORIGIN
    ),
    Benchmark("commute", commute.read_commute, tuple(commute.NUM_ITEMS), "ambiguity", commute.IMAGES_ORIGIN),
    Benchmark("xm3600", xm3600.read_xm3600, xm3600.LANGUAGES, "captioning", xm3600.IMAGES_ORIGIN),
)


def _twin(measures: str, languages: tuple[str, ...]) -> Benchmark:
    return Benchmark(f"world-{measures}", partial(world.read_world, kind=measures), languages, measures, world.ORIGIN)


_TWINS = (
    _twin("captioning", world.CAPTION_LANGUAGES),
    _twin("translation", world.TRANSLATION_LANGUAGES),
    _twin("ambiguity", world.TRANSLATION_LANGUAGES),
)
BENCHMARKS = {row.name: row for row in (*_ROWS, *_TWINS)}


def _names(*measures: str) -> tuple[str, ...]:
    return tuple(row.name for row in _ROWS if row.measures in measures)


# name -> (benchmarks, the languages it is restricted to). The world's twins are a set of their own.
TASK_SETS: dict[str, tuple[tuple[str, ...], tuple[str, ...] | None]] = {
    "full": (tuple(row.name for row in _ROWS), None),
    "captioning": (_names("captioning"), None),
    "translation": (_names("translation", "ambiguity"), None),  # CoMMuTE's sentences are translated too
    "ambiguity": (_names("ambiguity"), None),
    "english": (tuple(row.name for row in _ROWS if "en" in row.languages), ("en",)),
    "world": (tuple(row.name for row in _TWINS), None),
}


def task_set(name: str) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    return TASK_SETS[known_name(name, TASK_SETS, "task set")]


def read_benchmark(name: str, root: str | Path, languages: Sequence[str] | None = None) -> list[Item]:
    """The items of a benchmark, in some of its languages or in all."""
    benchmark = BENCHMARKS[known_name(name, BENCHMARKS, "benchmark")]
    for language in languages or ():
        if language not in benchmark.languages:
            raise UserError(f"{name}: no language '{language}' in it; it has {', '.join(benchmark.languages)}")
    items = benchmark.read(Path(root))
    return [item for item in items if languages is None or item.language in languages]


def known_name(name: str, known: Iterable[str], what: str) -> str:
    """The name, or a line with the nearest one."""
    names = list(known)
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean '{near[0]}'?" if near else ""
    raise UserError(f"unknown {what} '{name}'{hint} (known: {', '.join(names)})")
