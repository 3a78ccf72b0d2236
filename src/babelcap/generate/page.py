"""The page that shows a build: what came out, what was dropped and why, how well texts fit, and some images."""

import hashlib
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from babelcap.data.feed.images import decode_image
from babelcap.data.inspect.show import IMAGE_SIZE_PX, inline_picture
from babelcap.data.store.format import ImageRow
from babelcap.data.store.index import TarReader
from babelcap.data.store.store import Corpus
from babelcap.errors import BadSample
from babelcap.generate.pipeline import Build
from babelcap.generate.schemas import SCORES
from babelcap.generate.summary import stage_rows
from babelcap.generate.translate import PUBLISHED_YIELD
from babelcap.measures import TRAIN
from babelcap.pages import render
from babelcap.records import Annotation
from babelcap.storage import parquet_errors, write_json, write_text

STAGES = "stages.json"
NUM_IMAGES = 24
NUM_BINS = 40
PLACES = {"best": 0.0, "median": 0.5, "worst": 1.0}  # among an image's aligned texts, best first


def write_page(build: Build, corpus: Corpus, aligned: Mapping[str, Path]) -> Path:
    """Its path: <work>/page/index.html; what stages made is in <work>/stages.json too. The same build gives the same
    bytes.
    """
    config = build.config
    stages = stage_rows(build)
    scores = read_scores(aligned, config.text)
    low, high = score_range(scores, config.align.select.min_score)
    page = render(
        "generate/page.html.jinja",
        title=config.name,
        num_images=corpus.num_images(),
        num_annotations=corpus.manifest.num_annotations,
        content_hash=corpus.content_hash,
        splits={
            split: {
                "num_images": corpus.num_images(split),
                "pairs": [
                    (str(pair), number, corpus.coverage.is_seen(pair)) for pair, number in _sorted(corpus, split)
                ],
            }
            for split in sorted(corpus.splits, key=lambda name: name != TRAIN)
        },
        licences=corpus.manifest.provenance["licences"],
        stages=stages,
        left_out=sum((Counter(shard.skipped) for shard in corpus.manifest.shards), Counter()).most_common(),
        yields=list(yields(build)),
        histograms=[histogram(language, values, low, high) for language, values in scores.items()],
        min_score=config.align.select.min_score,
        threshold=round(100 * (config.align.select.min_score - low) / (high - low), 2),
        cards=[card(corpus, row) for row in draw_rows(corpus)],
    )
    path = build.work / "page" / "index.html"
    write_text(path, page)
    # For scripts; without what differs between a build that was stopped and one that was not.
    told = [{name: value for name, value in row.items() if name != "num_made"} for row in stages]
    write_json(build.work / STAGES, {"content_hash": corpus.content_hash, "stages": told})
    return path


def _sorted(corpus: Corpus, split: str) -> list[tuple[Any, int]]:
    order = {pair: place for place, pair in enumerate(corpus.coverage.all_pairs)}
    return sorted(corpus.counts(split).items(), key=lambda item: order.get(item[0], len(order)))


def yields(build: Build) -> Iterator[dict[str, Any]]:
    """How many English captions have a translation, by language, beside what was published."""
    for stage in ("translate", "translate_eval"):
        total: dict[str, list[int]] = {}
        for receipt in build.receipts.get(stage, {}).values():
            for language, counts in receipt.extra["by_language"].items():
                sums = total.setdefault(language, [0, 0])
                sums[:] = [before + number for before, number in zip(sums, counts, strict=True)]
        for language, (num_in, num_out) in total.items():
            share = num_out / num_in if num_in else None
            yield {
                "language": language,
                "num_in": num_in,
                "num_out": num_out,
                "share": None if share is None else f"{share:.3f}",
                "published": f"{PUBLISHED_YIELD[language]:.3f}" if language in PUBLISHED_YIELD else None,
                "held_out": stage != "translate",
            }


def read_scores(aligned: Mapping[str, Path], languages: Mapping[str, Any]) -> dict[str, NDArray[np.float64]]:
    found: dict[str, list[NDArray[np.float64]]] = {language: [] for language in languages}
    names = {SCORES.format(language=language): language for language in languages}
    for path in aligned.values():
        with parquet_errors(path):
            table = pq.read_table(path, columns=list(names))
        for name, language in names.items():
            found[language].append(table[name].combine_chunks().flatten().to_numpy())
    return {language: np.concatenate(parts) for language, parts in found.items()}


def score_range(scores: Mapping[str, NDArray[np.float64]], min_score: float) -> tuple[float, float]:
    """One for all languages, in tenths: it holds the threshold, with room before it, and every score."""
    found = np.concatenate([[min_score, min_score + 0.1], *scores.values()])
    return math.floor(10 * found.min() - 0.01) / 10, math.ceil(10 * found.max()) / 10


def histogram(language: str, scores: NDArray[np.float64], low: float, high: float) -> dict[str, Any]:
    """Bars in hundredths of the highest."""
    counts, _ = np.histogram(scores, NUM_BINS, (low, high))
    most = max(1, int(counts.max()))
    return {
        "language": language,
        "number": len(scores),
        "median": f"{np.median(scores):.3f}" if len(scores) else "none",
        "bars": [round(100 * int(count) / most, 1) for count in counts],
        "low": low,
        "high": high,
    }


def draw_rows(corpus: Corpus) -> list[ImageRow]:
    """Images with aligned texts: those whose keys have the smallest hashes, which is as good as drawing them."""
    rows: list[tuple[str, ImageRow]] = []
    for row in corpus.rows():
        digest = hashlib.sha256(row.key.encode("utf-8", "surrogatepass")).hexdigest()
        if (len(rows) < NUM_IMAGES or digest < rows[-1][0]) and any(
            entry.score is not None for entry in row.annotations
        ):
            rows = sorted([*rows, (digest, row)], key=lambda item: item[0])[:NUM_IMAGES]
    return [row for _, row in rows]


def card(corpus: Corpus, row: ImageRow) -> dict[str, Any]:
    """An image, its captions, and of its aligned texts the best, the median and the worst."""
    aligned = sorted(
        (entry for entry in row.annotations if entry.score is not None),
        key=lambda entry: (-(entry.score or 0.0), entry.language, entry.target),
    )
    chosen: dict[int, str] = {}
    for name, share in PLACES.items():
        chosen.setdefault(round(share * (len(aligned) - 1)), name)
    try:
        reader = TarReader([corpus.tar_path(row.tar)])
        picture = inline_picture(decode_image(reader.read(0, row.offset, row.length), size_px=IMAGE_SIZE_PX))
    except BadSample:
        picture = ""
    captions = [entry for entry in row.annotations if entry.source is None]
    return {
        "key": row.key,
        "split": row.split,
        "picture": picture,
        "num_aligned": len(aligned),
        "captions": [(entry.language, entry.target) for entry in _longest(captions)],
        "texts": [(name, f"{aligned[place].score:.3f}", aligned[place]) for place, name in sorted(chosen.items())],
    }


def _longest(captions: list[Annotation]) -> list[Annotation]:
    """One a language."""
    found: dict[str, Annotation] = {}
    for entry in captions:
        if entry.language not in found or len(entry.target) > len(found[entry.language].target):
            found[entry.language] = entry
    return list(found.values())
