"""The tab Translate: a text into several languages, with its picture and without, and what the picture changed."""

from dataclasses import replace
from typing import Any

import gradio as gr

from babelcap.app.context import AppContext, in_place, picture_input, shown_name, state_html
from babelcap.app.differences import marked_differences
from babelcap.app.pictures import model_square, read_upload, shown_picture
from babelcap.app.tabs.caption import caption_values
from babelcap.coverage import TRANSLATION
from babelcap.data.inspect.show import inline_picture
from babelcap.errors import UserError
from babelcap.models import GenerationResult, GenerationSettings
from babelcap.models.inference import translation_requests
from babelcap.pages import render

MAX_NEW_TOKENS = 128
EMPTY = state_html(
    "empty",
    "No translations yet",
    "Write a sentence. With a picture beside it you see both translations, and the words that the picture changed.",
)
SAMPLE_TEXT = "A big red apple on the grass."


def translate_tab(context: AppContext) -> None:
    codes = tuple(pair.language for pair in context.coverage.pairs_of(TRANSLATION))
    source = shown_name(context.coverage, context.coverage.source_language)
    with gr.Row(equal_height=False):
        with gr.Column(scale=1, min_width=300):
            text = gr.Textbox(
                label=f"Text in {source}",
                lines=3,
                placeholder=SAMPLE_TEXT,
                max_length=context.limits.max_text_characters,
                elem_id="translate-text",
            )
            picture = picture_input(context, "Picture (may be left out)", 220, "translate")
            languages = gr.CheckboxGroup(
                context.language_choices(codes), value=list(codes), label="Into", elem_id="translate-languages"
            )
            button = gr.Button("Translate", variant="primary", elem_id="translate-run")
        with gr.Column(scale=2, min_width=300):
            shown = gr.HTML(EMPTY, elem_id="translate-results", padding=False)

    def run(words: str, path: str | None, wanted: list[str]) -> str:
        return translate_html(context, words, path, wanted)

    button.click(in_place(run), [text, picture, languages], shown, concurrency_limit=4, api_name=False)


def translate_html(context: AppContext, text: str, path: str | None, codes: list[str]) -> str:
    if not text or not text.strip():
        raise UserError("write a text to translate first")
    if len(text) > context.limits.max_text_characters:
        raise UserError(f"the text has more than {context.limits.max_text_characters} characters; give it in pieces")
    if not codes:
        raise UserError("choose at least one language")
    picture, square = None, None
    if path is not None:
        content = read_upload(path, context.limits)
        picture = inline_picture(shown_picture(content, context.limits))
        square = model_square(content, context.limits, context.engine.size_px)
    settings = GenerationSettings(max_new_tokens=MAX_NEW_TOKENS, tokens=True, attention=True)
    plain = [replace(r, settings=settings, key="plain") for r in translation_requests(None, text.strip(), codes)]
    seen = [] if square is None else [replace(request, image=square, key="picture") for request in plain]
    results = {(result.request.language, result.request.key): result for result in context.engine.run([*seen, *plain])}
    num_cut = max(result.num_tokens_cut for result in results.values())
    return render(
        "app/tabs/translate.html.jinja",
        picture=picture,
        num_cut=num_cut,
        languages=[
            {
                "code": code,
                "name": shown_name(context.coverage, code),
                **_values(context, results.get((code, "picture")), results[code, "plain"]),
            }
            for code in codes
        ],
    )


def _values(context: AppContext, seen: GenerationResult | None, plain: GenerationResult) -> dict[str, Any]:
    """Both translations; the words of the one with the picture can be looked at, differences are marked in both."""
    without = caption_values(context, plain)
    if seen is None:
        return {"seen": None, "plain": without, "is_changed": None, "seen_parts": [], "plain_parts": []}
    seen_parts, plain_parts = marked_differences(seen.text, plain.text)
    return {
        "seen": caption_values(context, seen),
        "plain": without,
        "is_changed": seen.text != plain.text,
        "seen_parts": seen_parts,
        "plain_parts": plain_parts,
    }
