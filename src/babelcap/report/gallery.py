"""Pictures with captions in every language, right and wrong ones marked: HTML from gallery.json."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from babelcap.coverage import Coverage
from babelcap.errors import UserError
from babelcap.report.reading import KIND_NAMES, MAIN, Study, kind_of

RIGHT, SOME, WRONG = "right", "partly", "wrong"
MARKS = {RIGHT: ("✓", "holds"), SOME: ("≈", "partly"), WRONG: ("✗", "does-not")}
COLUMNS = {"prefix": "with prefix", "plain": "prompt alone"}
BASE64 = re.compile(r"[A-Za-z0-9+/=]+")


def mark_of(caption: Mapping[str, Any]) -> str:
    """right: the language, every object and every stated colour; wrong: another language, or no object at all."""
    if not caption["language_right"] or caption["objects_right"] <= 0:
        return WRONG
    return RIGHT if caption["objects_right"] >= 1 and caption["colours_right"] >= 1 else SOME


def gallery_html(study: Study) -> str:
    if not study.pictures:
        return '<p class="not-measured">No pictures with captions were kept by this study.</p>'
    kinds = {record.run: kind_of(record) for record in study.records}
    try:
        cards = "\n".join(_card(picture, study, kinds) for picture in study.pictures)
    except (KeyError, TypeError) as error:
        raise UserError(f"gallery.json: a picture or caption lacks {error}; build it again with the study") from None
    return f'{_counts(study, kinds)}\n<div class="cards">\n{cards}\n</div>'


def _counts(study: Study, kinds: Mapping[str, str]) -> str:
    unseen = set(study.unseen_languages)
    shown = [
        mark_of(caption)
        for picture in study.pictures
        for caption in picture["captions"]
        if kinds.get(caption["run"], MAIN) == MAIN and caption["variant"] == "prefix" and caption["language"] in unseen
    ]
    marks = ", ".join(
        f'<span class="{MARKS[mark][1]}">{MARKS[mark][0]} {mark}</span> {shown.count(mark)}' for mark in MARKS
    )
    return (
        f"<p>Of the {len(shown)} captions below with prefix in never-captioned languages: {marks}. "
        "Right means the right language, every object and every stated colour; wrong means another language or no "
        "object.</p>"
    )


def _card(picture: Mapping[str, Any], study: Study, kinds: Mapping[str, str]) -> str:
    if not BASE64.fullmatch(picture["png_base64"]):
        raise UserError(f"gallery.json: png_base64 of picture {picture['key']} is not base64")
    runs = list(dict.fromkeys(caption["run"] for caption in picture["captions"]))
    runs.sort(key=lambda run: kinds.get(run, MAIN) != MAIN)  # stable: main first
    parts = []
    for place, run in enumerate(runs):
        captions = [caption for caption in picture["captions"] if caption["run"] == run]
        table = _captions(captions, study)
        if place == 0:
            parts.append(table)
        else:
            name = KIND_NAMES.get(kinds.get(run, MAIN), run)
            parts.append(f"<details><summary>The same picture: {escape(name)}</summary>{table}</details>")
    return (
        f'<article class="card"><div><img alt="picture {escape(str(picture["key"]))}" '
        f'src="data:image/png;base64,{picture["png_base64"]}">'
        f'<p class="soft" lang="{escape(study.coverage.source_language)}">Truth: {escape(picture["truth"])}</p></div>'
        f"<div>{''.join(parts)}</div></article>"
    )


def _captions(captions: Sequence[Mapping[str, Any]], study: Study) -> str:
    by_place = {(caption["language"], caption["variant"]): caption for caption in captions}
    unseen = set(study.unseen_languages)
    rows = []
    for code in study.caption_languages:
        cells = "".join(
            f'<td data-label="{title}">{_caption(by_place.get((code, variant)), study.coverage)}</td>'
            for variant, title in COLUMNS.items()
        )
        name = escape(study.coverage.language(code).name.removeprefix("simplified "))
        label = f'<b>{name}</b><br><span class="soft">never captioned</span>' if code in unseen else f"<b>{name}</b>"
        rows.append(f"<tr><td>{label}</td>{cells}</tr>")
    head = "".join(f"<th>{title}</th>" for title in COLUMNS.values())
    return f"<table><thead><tr><th></th>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _caption(caption: Mapping[str, Any] | None, coverage: Coverage) -> str:
    if caption is None:
        return '<span class="soft">–</span>'
    mark = mark_of(caption)
    sign, look = MARKS[mark]
    text, start = str(caption["text"]), ""
    if caption["variant"] == "prefix":
        language = coverage.language(caption["language"])
        start = f'<span class="prefix">{escape(language.prefix)}</span>'
    share = (
        "other language"
        if not caption["language_right"]
        else f"objects {100 * caption['objects_right']:.0f} %, colours {100 * caption['colours_right']:.0f} %"
    )
    words = escape(text) or '<span class="soft">(nothing)</span>'
    return (
        f'<span class="caption" lang="{escape(caption["language"])}">{start}{words}</span><br>'
        f'<span class="score {look}" title="{mark}">{sign} {share}</span>'
    )
