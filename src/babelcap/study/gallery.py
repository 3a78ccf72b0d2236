"""Pictures of the eval split with captions in all languages, right and wrong ones: gallery.json.

The pictures are spread evenly over the order of how well the shown run captions them in unseen languages, so that the
choice flatters nobody and is the same every time. Of photographs it is every n-th one.
"""

import base64
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from babelcap.coverage import CAPTION, Pair
from babelcap.data.store.index import CorpusIndex
from babelcap.measures import EVAL, Variant
from babelcap.models.sizing.flops import meta_captioner
from babelcap.models.sizing.sizes import size_config
from babelcap.storage import write_json
from babelcap.study.graph import CAPTIONS
from babelcap.study.grid import FINETUNED, GridRun, StudyGraph

GALLERY = "gallery.json"
SHOWN: tuple[Variant, ...] = ("plain", "prefix")
BESIDE = (FINETUNED, "no-translation", "unfit-translation")  # in this order; trials have a table and a figure


def shown_runs(graph: StudyGraph) -> list[GridRun]:
    """The main run of most samples of the largest model, with its fine-tuned one and its controls; one seed.

    A larger model that has none of these beside it is passed over: the others are what it would be compared with.
    """
    settings = graph.config.report
    main = [run for run in graph.runs if run.kind == "main" and run.captions is not None]
    if settings.gallery_size is not None:
        main = [run for run in main if run.size == settings.gallery_size]
    if not main:
        return []
    parameters = {size: meta_captioner(size_config(size)).num_parameters() for size in {run.size for run in main}}
    beside: dict[tuple[str, str, int], list[GridRun]] = {}
    for run in graph.runs:
        if run.kind in BESIDE and run.captions is not None:
            beside.setdefault((run.size, run.base, run.seed), []).append(run)
    best = max(
        main,
        key=lambda run: (
            (run.size, run.base, run.seed) in beside, parameters[run.size], run.leg, -run.seed, run.base == "balanced",
        ),
    )  # fmt: skip
    others = beside.get((best.size, best.base, best.seed), [])
    return [best, *sorted(others, key=lambda run: (BESIDE.index(run.kind), run.name))]


def make_gallery(graph: StudyGraph, study: Path) -> dict[str, Any]:
    runs = shown_runs(graph)
    if not runs or not graph.config.report.num_pictures:
        return {"pictures": []}
    captions = {run.name: _read_captions(run, study) for run in runs}
    keys = _choose(captions[runs[0].name], graph)
    index = CorpusIndex.open(graph.pictures.place(study))
    numbers = {index.key(number): number for number in range(index.num_images)}
    return {"pictures": [_picture(key, numbers[key], index, captions) for key in keys]}


def _read_captions(run: GridRun, study: Path) -> list[dict[str, Any]]:
    assert run.captions is not None
    path = study / run.captions.folder / CAPTIONS
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line["split"] == EVAL and line["variant"] in SHOWN]


def _choose(captions: Sequence[dict[str, Any]], graph: StudyGraph) -> list[str]:
    """Keys spread over the order of objects named with their colour, with prefix, in the languages of the hole."""
    num_pictures = graph.config.report.num_pictures
    if graph.config.evaluation.texts is not None:  # photographs: every n-th, whatever is said of them
        keys = list(dict.fromkeys(line["key"] for line in captions))
        return keys[:: max(1, len(keys) // num_pictures)][:num_pictures]
    unseen = graph.config.coverage.caption_languages(seen=False)
    points: dict[str, float] = {}
    for line in captions:
        if line["variant"] == "prefix" and line["language"] in unseen:
            share = line["score"]["num_colours_right"] / max(1, line["score"]["num_objects"])
            points[line["key"]] = points.get(line["key"], 0.0) + share
    ranked = sorted(points, key=lambda key: (-points[key], key))
    num = min(num_pictures, len(ranked))
    places = [round(place * (len(ranked) - 1) / max(1, num - 1)) for place in range(num)]
    return [ranked[place] for place in dict.fromkeys(places)]


def _picture(key: str, number: int, index: CorpusIndex, captions: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    english = Pair(CAPTION, index.corpus.coverage.source_language)
    truth = next(index.annotation(row).target for row in index.image_rows(number) if index.pair(row) == english)
    return {
        "key": key,
        "png_base64": base64.b64encode(index.read_image(number)).decode("ascii"),
        "truth": truth,
        "captions": [
            shown_caption(run, line) for run, lines in captions.items() for line in lines if line["key"] == key
        ],
    }


def shown_caption(run: str, line: dict[str, Any]) -> dict[str, Any]:
    """The whole caption, whether all of it is right, and the words of it that are not: [start, end, what].

    Right is what names something of the picture, in the language asked for and well formed, and says nothing wrong.
    """
    score, marks = line["score"], line.get("marks")
    kept = {name: line[name] for name in ("language", "variant", "text")}
    kept |= {"run": run, "language_right": score["right_language"]}
    if marks is None:
        return kept
    marks = [list(mark.values()) if isinstance(mark, dict) else list(mark) for mark in marks]
    right = line["right"] and not marks and score["well_formed"] and score["num_objects_right"] > 0
    return kept | {"marks": marks, "right": bool(right)}


def write_gallery(graph: StudyGraph, study: Path) -> None:
    write_json(study / GALLERY, make_gallery(graph, study))
