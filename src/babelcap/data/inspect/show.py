"""A contact sheet: images drawn at random with their texts, as a PNG to glance at and an HTML file to read."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from babelcap.coverage import Pair
from babelcap.data.feed.images import decode_image
from babelcap.data.store.format import ImageRow
from babelcap.data.store.index import TarReader
from babelcap.data.store.store import Corpus
from babelcap.errors import BadSample, UserError
from babelcap.records import Annotation
from babelcap.storage import atomic_file, write_text


class Card(NamedTuple):
    """One image of a sheet. A bad image has none, and its reason instead."""

    row: ImageRow
    image: Image.Image | None
    reason: str
    annotations: list[Annotation]  # in the order of the coverage


def write_sheets(
    corpus: Corpus, output: str | Path, *, num_images: int = 24, seed: int = 0, split: str | None = None
) -> list[Path]:
    """Writes OUTPUT.png and OUTPUT.html; their paths."""
    from babelcap.data.inspect.sheet_html import render_html
    from babelcap.data.inspect.sheet_png import render_png

    base = Path(output)
    if base.suffix in {".png", ".html"}:
        base = base.with_suffix("")
    cards = list(draw_cards(corpus, num_images, seed, split))
    title = corpus.folder.resolve().name
    total = corpus.num_images(split)
    images = f"all {total:,} images" if len(cards) == total else f"{len(cards)} of {total:,} images, seed {seed}"
    subtitle = f"{f'split {split}' if split else 'all splits'}  ·  {images}  ·  content {corpus.content_hash}"
    picture = render_png(cards, corpus.coverage, title, subtitle)
    paths = [base.with_name(base.name + ending) for ending in (".png", ".html")]
    with atomic_file(paths[0]) as partial:
        picture.save(partial, format="PNG", optimize=True)
    write_text(paths[1], render_html(cards, corpus.coverage, title, subtitle))
    return paths


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
        return Card(row, decode_image(reader.read(0, row.offset, row.length), size_px=384), "", annotations)
    except BadSample as error:
        return Card(row, None, error.reason, annotations)
