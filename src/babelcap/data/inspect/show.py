"""A contact sheet: images drawn at random with their texts in all languages, as one HTML file."""

import base64
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from babelcap.coverage import Coverage, Pair
from babelcap.data.feed.images import decode_image
from babelcap.data.store.format import ImageRow
from babelcap.data.store.index import TarReader
from babelcap.data.store.store import Corpus
from babelcap.errors import BadSample, UserError
from babelcap.pages import render
from babelcap.records import Annotation
from babelcap.storage import write_text

IMAGE_SIZE_PX = 384


class Card(NamedTuple):
    """One image of a sheet. A bad image has none, and its reason instead."""

    row: ImageRow
    image: Image.Image | None
    reason: str
    annotations: list[Annotation]  # in the order of the coverage


def write_sheet(
    corpus: Corpus, output: str | Path, *, num_images: int = 24, seed: int = 0, split: str | None = None
) -> Path:
    """Writes OUTPUT.html; its path."""
    path = Path(output)
    path = path if path.suffix == ".html" else path.with_name(f"{path.name}.html")
    cards = list(draw_cards(corpus, num_images, seed, split))
    total = corpus.num_images(split)
    images = f"all {total:,} images" if len(cards) == total else f"{len(cards)} of {total:,} images, seed {seed}"
    page = render(
        "data/inspect/sheet.html.jinja",
        title=corpus.folder.resolve().name,
        subtitle=[f"split {split}" if split else "all splits", images, f"content {corpus.content_hash}"],
        source_language=corpus.coverage.source_language,
        cards=[_values(card, corpus.coverage) for card in cards],
    )
    write_text(path, page)
    return path


def _values(card: Card, coverage: Coverage) -> dict[str, Any]:
    """What the template shows of a card."""
    texts = []
    for annotation in card.annotations:
        remarks = [annotation.style.replace("_", " ") if annotation.style else "", annotation.origin]
        remarks += [f"score {annotation.score:.3f}"] if annotation.score is not None else []
        texts.append(
            {
                "pair": f"{annotation.task} {annotation.language}",
                "language": annotation.language,
                "remarks": [remark for remark in remarks if remark],
                "unseen": not coverage.is_seen(annotation.pair),
                "source": annotation.source,
                "target": annotation.target,
            }
        )
    row = card.row
    picture = None if card.image is None else inline_picture(card.image)
    return {
        "key": row.key,
        "split": row.split,
        "tar": row.tar,
        "picture": picture,
        "reason": card.reason,
        "texts": texts,
    }


def inline_picture(image: Image.Image) -> str:
    """The address of a small copy inside a page."""
    small = image.copy()
    small.thumbnail((IMAGE_SIZE_PX, IMAGE_SIZE_PX), Image.Resampling.LANCZOS)
    stream = io.BytesIO()
    small.save(stream, format="JPEG", quality=85)
    return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode("ascii")


def draw_cards(corpus: Corpus, num_images: int, seed: int, split: str | None) -> Iterator[Card]:
    """A seeded draw without repeats, in storage order; reads only the shards that it needs."""
    total = corpus.num_images(split)
    if total == 0:
        raise UserError(f"{corpus.folder}: there is no image to show")
    generator = np.random.default_rng([seed, total])
    chosen = np.sort(generator.choice(total, size=min(num_images, total), replace=False))
    start = 0
    for shard in corpus.manifest.shards:
        number = sum(counts.num_images for name, counts in shard.splits.items() if split in (None, name))
        wanted = {int(place) - start for place in chosen if start <= place < start + number}
        start += number
        if not wanted:
            continue
        reader = TarReader([corpus.tar_path(shard.tar)])
        rows = (row for row in corpus.shard_rows(shard) if split in (None, row.split))
        for place, row in enumerate(rows):
            if place in wanted:
                yield _card(row, reader, corpus)


def _card(row: ImageRow, reader: TarReader, corpus: Corpus) -> Card:
    order: dict[Pair, int] = {pair: place for place, pair in enumerate(corpus.coverage.all_pairs)}
    annotations = sorted(row.annotations, key=lambda annotation: order.get(annotation.pair, len(order)))
    try:
        return Card(row, decode_image(reader.read(0, row.offset, row.length), size_px=IMAGE_SIZE_PX), "", annotations)
    except BadSample as error:
        return Card(row, None, error.reason, annotations)
