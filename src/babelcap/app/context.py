"""What all tabs share: the engine, the chosen model, the folders that may be looked at, and how mistakes are shown."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar

import gradio as gr

from babelcap.app.engine import Engine
from babelcap.app.limits import Limits
from babelcap.app.model_choice import Chosen
from babelcap.coverage import Coverage
from babelcap.errors import UserError
from babelcap.pages import render

Result = TypeVar("Result")


@dataclass(frozen=True)
class AppContext:
    engine: Engine
    chosen: Chosen
    study: Path | None
    corpus: Path | None
    samples: list[Path]  # pictures to start with

    @property
    def coverage(self) -> Coverage:
        return self.engine.pipeline.coverage

    @property
    def limits(self) -> Limits:
        return self.engine.limits

    def language_choices(self, codes: tuple[str, ...]) -> list[tuple[str, str]]:
        return [(shown_name(self.coverage, code), code) for code in codes]


def shown_name(coverage: Coverage, code: str) -> str:
    name = coverage.language(code).name.removeprefix("simplified ")
    return name[:1].upper() + name[1:]


def in_words(function: Callable[..., Result]) -> Callable[..., Result]:
    """A user's mistake as a message on the page; anything else is logged by Gradio and shown as a fault of ours."""

    @wraps(function)
    def called(*values: Any) -> Result:
        try:
            return function(*values)
        except UserError as error:
            raise gr.Error(str(error), print_exception=False, title="This did not work") from None

    return called


def in_place(function: Callable[..., Any], num_outputs: int = 1) -> Callable[..., Any]:
    """A user's mistake where the result would stand, in place of an older one: the first output is HTML."""

    @wraps(function)
    def called(*values: Any) -> Any:
        try:
            return function(*values)
        except UserError as error:
            words = str(error)
            told = state_html("error", "This did not work", words[:1].upper() + words[1:])
            return told if num_outputs == 1 else (told, *[gr.skip()] * (num_outputs - 1))

    return called


def state_html(kind: str, title: str, words: str = "", commands: tuple[str, ...] = ()) -> str:
    """An empty, loading or error state: what is missing, and what to do or to type."""
    return render("app/tabs/state.html.jinja", kind=kind, title=title, words=words, commands=commands)


def _path_of_upload(component: gr.Image, payload: Any) -> str | None:
    """In the place of Gradio's own reader, which opens pictures without our limits and refuses bad ones without a word.

    Set on the class: Gradio makes components anew while a page is used, and beside the source of a class of our own it
    would write a file.
    """
    return None if payload is None else payload.path


gr.Image.preprocess = _path_of_upload


def picture_input(context: AppContext, label: str, height_px: int, tab: str) -> gr.Image:
    """A place for a picture, with samples below it. What comes of it is the path of what was uploaded."""
    picture = gr.Image(
        label=label,
        sources=["upload", "clipboard", "webcam"],
        height=height_px,
        buttons=[],
        elem_id=f"{tab}-picture",
    )
    gr.Examples([[str(path)] for path in context.samples], [picture], label="Samples", elem_id=f"{tab}-samples")
    return picture
