"""The tab Dataset: the hole of a corpus as a table with counts, and its texts with their pictures, filtered."""

import math
from typing import Any

import gradio as gr

from babelcap.app.browse import BEST, MAX_LOOKED_AT, STORED, WORST, Filter, Found, FoundText, find_texts, origins_of
from babelcap.app.context import AppContext, in_place, shown_name, state_html
from babelcap.coverage import Coverage, Pair
from babelcap.data.feed.images import decode_image
from babelcap.data.inspect.show import IMAGE_SIZE_PX, inline_picture
from babelcap.data.store.index import TarReader
from babelcap.data.store.store import Corpus
from babelcap.errors import BadSample, UserError
from babelcap.measures import TRAIN
from babelcap.pages import render

TEXTS_A_PAGE = 12
ANY = "any"
NO_CORPUS = state_html(
    "empty",
    "No corpus here",
    "Make one (a minute), then start the app with its folder:",
    ("babelcap world make -o corpora/world --images 1000", "babelcap app --corpus corpora/world"),
)


def dataset_tab(context: AppContext) -> None:
    if context.corpus is None:
        gr.HTML(NO_CORPUS, elem_id="dataset-table", padding=False)
        return
    try:
        corpus = Corpus.open(context.corpus)
        origins = origins_of(corpus)
    except UserError as error:
        gr.HTML(state_html("error", "This corpus cannot be read", str(error)), elem_id="dataset-table", padding=False)
        return
    coverage = corpus.coverage
    first_split = TRAIN if TRAIN in corpus.splits else corpus.splits[0]
    languages = [(shown_name(coverage, language.code), language.code) for language in coverage.languages]
    gr.HTML(hole_html(corpus), elem_id="dataset-table", padding=False)
    with gr.Row():
        split = gr.Dropdown([ANY, *corpus.splits], value=first_split, label="Split", elem_id="dataset-split")
        task = gr.Dropdown(
            [ANY, *(task.name for task in coverage.tasks)], value=ANY, label="Task", elem_id="dataset-task"
        )
        language = gr.Dropdown([(ANY, ANY), *languages], value=ANY, label="Language", elem_id="dataset-language")
        origin = gr.Dropdown([ANY, *origins], value=ANY, label="Origin", elem_id="dataset-origin")
    with gr.Row():
        order = gr.Dropdown(
            [("as stored", STORED), ("worst aligned first", WORST), ("best aligned first", BEST)],
            value=STORED,
            label="Order",
            elem_id="dataset-order",
        )
        low = gr.Textbox("", label="Score from", max_length=20, placeholder="any", elem_id="dataset-low")
        high = gr.Textbox("", label="Score to", max_length=20, placeholder="any", elem_id="dataset-high")
        words = gr.Textbox("", label="Text contains", max_length=200, elem_id="dataset-words")
    shown = gr.HTML(state_html("loading", "Reading ..."), elem_id="dataset-texts", padding=False)
    start = gr.State(0)
    with gr.Row():
        back = gr.Button("Previous", elem_id="dataset-back")
        further = gr.Button("Next", elem_id="dataset-next")

    def look(*values: Any) -> tuple[str, int]:
        wanted, by, place = _filter(values), values[7], max(0, values[8])
        found = find_texts(corpus, wanted, by, TEXTS_A_PAGE, place)
        if not found.texts and place:
            place = 0
            found = find_texts(corpus, wanted, by, TEXTS_A_PAGE)
        return texts_html(corpus, found, place, by), place

    def first(*values: Any) -> tuple[str, int]:
        return look(*values[:8], 0)

    def moved(step: int) -> Any:
        return lambda *values: look(*values[:8], values[8] + step)

    inputs = [split, task, language, origin, low, high, words, order, start]
    for event in [box.input for box in (split, task, language, origin, order)] + [
        box.submit for box in (low, high, words)
    ]:
        event(in_place(first, 2), inputs, [shown, start], api_name=False, concurrency_limit=2)
    further.click(in_place(moved(TEXTS_A_PAGE), 2), inputs, [shown, start], api_name=False, concurrency_limit=2)
    back.click(in_place(moved(-TEXTS_A_PAGE), 2), inputs, [shown, start], api_name=False, concurrency_limit=2)
    gr.context.Context.root_block.load(
        in_place(first, 2), inputs, [shown, start], api_name=False, show_progress="hidden", concurrency_limit=2
    )


def _filter(values: tuple[Any, ...]) -> Filter:
    split, task, language, origin = (None if value in (ANY, None) else str(value) for value in values[:4])
    low, high = _number(values[4]), _number(values[5])
    score = (-math.inf if low is None else low, math.inf if high is None else high)
    is_bounded = low is not None or high is not None
    return Filter(split, task, language, origin, (values[6] or "").strip(), score if is_bounded else None)


def _number(text: str | None) -> float | None:
    try:
        return float(text) if text and text.strip() else None
    except ValueError:
        raise UserError(f"score: found '{text}'; write a number, such as 0.25") from None


def hole_html(corpus: Corpus) -> str:
    """Tasks x languages with counts, a table for each split; what training never sees is marked."""
    coverage = corpus.coverage
    return render(
        "app/tabs/hole.html.jinja",
        name=corpus.folder.resolve().name,
        num_images=corpus.num_images(),
        languages=[shown_name(coverage, language.code) for language in coverage.languages],
        splits=[
            {
                "name": split,
                "num_images": corpus.num_images(split),
                "rows": [_row(coverage, corpus.counts(split), task.name) for task in coverage.tasks],
            }
            for split in corpus.splits
        ],
    )


def _row(coverage: Coverage, counts: dict[Pair, int], task: str) -> dict[str, Any]:
    cells = []
    for language in coverage.languages:
        pair = Pair(task, language.code)
        is_possible = pair in coverage.all_pairs
        cells.append(
            {
                "count": counts.get(pair, 0),
                "look": "none" if not is_possible else "seen" if coverage.is_seen(pair) else "hole",
            }
        )
    return {"task": task, "cells": cells}


def texts_html(corpus: Corpus, found: Found, start: int, order: str) -> str:
    if not found.texts:
        if order != STORED and found.num_matches and not found.has_scores:
            words = "These texts have no score, so that there is no order by it. Corpora that were aligned have scores."
            return state_html("empty", "No scores", words)
        return state_html("empty", "Nothing found", "No text is as you asked for. Choose less.")
    readers: dict[str, TarReader] = {}
    return render(
        "app/tabs/dataset.html.jinja",
        start=start + 1,
        end=start + len(found.texts),
        num_matches=found.num_matches,
        looked=None if found.is_all else f"the first {MAX_LOOKED_AT:,}",
        texts=[_card(corpus, text, readers) for text in found.texts],
    )


def _card(corpus: Corpus, text: FoundText, readers: dict[str, TarReader]) -> dict[str, Any]:
    reader = readers.setdefault(text.tar, TarReader([corpus.tar_path(text.tar)]))
    picture, reason = None, ""
    try:
        image = decode_image(reader.read(0, text.offset, text.length), size_px=IMAGE_SIZE_PX)
        picture = inline_picture(image)
    except BadSample as error:
        reason = str(error)
    annotation = text.annotation
    pair = Pair(annotation["task"], annotation["language"])
    return {
        "key": text.key,
        "split": text.split,
        "picture": picture,
        "reason": reason,
        "pair": f"{pair.task} {shown_name(corpus.coverage, pair.language)}",
        "is_hole": not corpus.coverage.is_seen(pair),
        "language": pair.language,
        "source_language": corpus.coverage.source_language,
        **{name: annotation[name] for name in ("source", "target", "style", "origin", "score")},
    }
