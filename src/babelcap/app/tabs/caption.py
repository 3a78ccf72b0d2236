"""The tab Caption: one picture in many languages and ways of decoding, side by side, each word to be looked at."""

import math
from dataclasses import dataclass, replace
from typing import Any

import gradio as gr

from babelcap.app.context import AppContext, in_place, picture_input, shown_name, state_html
from babelcap.app.pictures import model_square, read_upload, shown_picture
from babelcap.app.words import words_of
from babelcap.coverage import CAPTION, Style
from babelcap.data.inspect.show import inline_picture
from babelcap.errors import UserError
from babelcap.languages import PrefixMode
from babelcap.models import GenerationRequest, GenerationResult, GenerationSettings
from babelcap.models.generation.shortlist import FOLDER as SHORTLISTS
from babelcap.pages import render

MAX_NEW_TOKENS = 96


@dataclass(frozen=True)
class Way:
    """A way of decoding, a column of the page."""

    name: str
    prefix: PrefixMode
    shortlist: bool

    @property
    def allowed_tokens(self) -> str | None:
        return "language" if self.shortlist else None


WAYS = {
    "prefix": Way("With the language's prefix", "always", False),
    "plain": Way("Prompt alone", "none", False),
    "shortlist": Way("Prompt alone, shortlist of the language", "none", True),
    "prefix+shortlist": Way("Prefix and shortlist", "always", True),
}
EMPTY = state_html(
    "empty",
    "No captions yet",
    "Choose a picture or a sample and press Caption. Point at a word, or move to it with Tab, to see how sure the "
    "model was of it and where it looked.",
)


def caption_tab(context: AppContext) -> None:
    codes = context.coverage.caption_languages()
    ways = {key: way for key, way in WAYS.items() if not way.shortlist or has_shortlists(context)}
    with gr.Row(equal_height=False):
        with gr.Column(scale=1, min_width=300):
            picture = picture_input(context, "Picture: drop, paste, camera or upload", 260, "caption")
            languages = gr.CheckboxGroup(
                context.language_choices(codes), value=list(codes), label="Languages", elem_id="caption-languages"
            )
            chosen_ways = gr.CheckboxGroup(
                [(way.name, key) for key, way in ways.items()],
                value=["prefix", "plain"],
                label="Ways of decoding, side by side",
                elem_id="caption-ways",
            )
            style = gr.Radio(
                [(name.replace("_", " "), name) for name in map(str, Style)],
                value=str(Style.SHORT),
                label="Style",
                elem_id="caption-style",
            )
            button = gr.Button("Caption", variant="primary", elem_id="caption-run")
        with gr.Column(scale=2, min_width=300):
            shown = gr.HTML(EMPTY, elem_id="caption-results", padding=False)

    def run(path: str | None, wanted: list[str], keys: list[str], look: str) -> str:
        return caption_html(context, path, wanted, keys, look)

    button.click(
        in_place(run),
        [picture, languages, chosen_ways, style],
        shown,
        concurrency_limit=4,
        api_name=False,
        show_progress="full",
    )


def has_shortlists(context: AppContext) -> bool:
    folder = context.engine.pipeline.model.folder
    return folder is not None and any((folder / SHORTLISTS).glob("*.json"))


def caption_html(context: AppContext, path: str | None, codes: list[str], keys: list[str], style: str) -> str:
    if path is None:
        raise UserError("choose a picture first, or one of the samples")
    if not codes or not keys:
        raise UserError("choose at least one language and one way of decoding")
    content = read_upload(path, context.limits)
    large = shown_picture(content, context.limits)
    square = model_square(content, context.limits, context.engine.size_px)
    settings = GenerationSettings(max_new_tokens=MAX_NEW_TOKENS, tokens=True, attention=True)
    template = GenerationRequest(language="", image=square, style=style, settings=settings)
    ways = {key: WAYS[key] for key in WAYS if key in keys}
    requests = [
        replace(template, language=code, prefix=way.prefix, allowed_tokens=way.allowed_tokens, key=key)
        for code in codes
        for key, way in ways.items()
    ]
    results = {(result.request.language, result.request.key): result for result in context.engine.run(requests)}
    unseen = context.coverage.caption_languages(seen=False)
    return render(
        "app/tabs/caption.html.jinja",
        picture=inline_picture(large),
        languages=[
            {
                "code": code,
                "name": shown_name(context.coverage, code),
                "is_unseen": code in unseen,
                "captions": [
                    {"way": way.name, **caption_values(context, results[code, key])} for key, way in ways.items()
                ],
            }
            for code in codes
        ],
    )


def caption_values(context: AppContext, result: GenerationResult) -> dict[str, Any]:
    """What the page shows of a caption: its words, and whether it is in the language that was asked for."""
    score = result.score
    found = result.language_found
    return {
        "words": words_of(result.texts[0]),
        "text": result.text,
        "is_wrong": result.is_in_language is False,
        "is_unsure": result.is_in_language is None and result.request.task == CAPTION,
        "found": shown_name(context.coverage, found) if found in _codes(context) else (found or "no language"),
        "mean": None if score is None else round(100 * math.exp(score.mean)),
    }


def _codes(context: AppContext) -> list[str]:
    return [language.code for language in context.coverage.languages]
