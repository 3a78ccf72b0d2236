"""The tab Study: a study's progress, claims, curves, runs and pictures; it follows a study that runs meanwhile."""

from pathlib import Path
from typing import Any

import gradio as gr

from babelcap.app.context import AppContext, in_place, in_words, state_html
from babelcap.app.figure_pictures import figure_png
from babelcap.app.study_state import (
    StudyState,
    _modified,
    drawing_png,
    drawings_of,
    read_state,
    report_of,
    training_curves,
)
from babelcap.errors import UserError
from babelcap.pages import render
from babelcap.report.cards import picture_cards
from babelcap.report.page import claim_values, page_table
from babelcap.report.study_folder import RUNS
from babelcap.report.tables import runs_table
from babelcap.report.verdicts import VERDICTS

REFRESH_SECONDS = 5
NO_STUDY = state_html(
    "empty",
    "No study here",
    "Run one (a quarter of an hour on two cores), then start the app with its folder:",
    ("babelcap study run configs/study/micro.toml", "babelcap app --study studies/micro"),
)
NOT_YET = state_html("empty", "Not yet", "This comes when the first runs of the study have ended.")
TRAINING = "training now"


def study_tab(context: AppContext) -> None:
    folder = context.study
    if folder is None:
        gr.HTML(NO_STUDY, elem_id="study-status", padding=False)
        return
    seen = gr.State(())
    status = gr.HTML(state_html("loading", "Reading the study ..."), elem_id="study-status", padding=False)
    with gr.Tabs(elem_id="study-parts"):
        with gr.Tab("Claims"):
            claims = gr.HTML(NOT_YET, elem_id="study-claims", padding=False)
        with gr.Tab("Curves"):
            which = gr.Dropdown([], label="Figure", elem_id="study-figure", filterable=False, allow_custom_value=False)
            curve = gr.HTML(NOT_YET, elem_id="study-curve", padding=False)
        with gr.Tab("Runs"):
            runs = gr.HTML(NOT_YET, elem_id="study-runs", padding=False)
        with gr.Tab("Pictures"):
            gallery = gr.HTML(NOT_YET, elem_id="study-gallery", padding=False)
    outputs = [status, claims, which, curve, runs, gallery, seen]

    def refresh(before: tuple[int, ...], chosen: str | None) -> list[Any]:
        """Nothing is sent where nothing has changed since the last look."""
        try:
            state = read_state(folder)
        except UserError as error:
            return [state_html("error", "This study cannot be read", str(error)), *[gr.skip()] * 6]
        if tuple(before) == state.stamp:
            return [gr.skip()] * 7
        return [*study_parts(folder, state, chosen), state.stamp]

    def draw(chosen: str | None) -> str:
        return curve_html(folder, chosen)

    page = gr.context.Context.root_block
    page.load(in_words(refresh), [seen, which], outputs, api_name=False, show_progress="hidden")
    gr.Timer(REFRESH_SECONDS).tick(
        in_words(refresh), [seen, which], outputs, api_name=False, show_progress="hidden", queue=True
    )
    which.input(in_place(draw), which, curve, api_name=False)


def study_parts(folder: Path, state: StudyState, chosen: str | None) -> list[Any]:
    """Status, claims, choice of figures, a figure, runs and gallery."""
    if not state.has_runs:
        figures = [("Training now", TRAINING)]
        return [_status(state, None), NOT_YET, gr.Dropdown(figures, value=TRAINING), curve_html(folder, TRAINING),
                NOT_YET, NOT_YET]  # fmt: skip
    try:
        report = report_of(folder)
    except UserError as error:
        return [state_html("error", "This study cannot be read", str(error)), *[gr.skip()] * 5]
    counts = {verdict: sum(claim.verdict == verdict for claim in report.claims) for verdict in VERDICTS}
    figures = [(one.title.rstrip("."), one.name) for one in drawings_of(folder) if one.figure is not None]
    if training_curves(folder) is not None:
        figures.append(("Training losses", TRAINING))
    kept = chosen if chosen in {name for _, name in figures} else figures[0][1] if figures else None
    return [
        _status(state, {"num_runs": len(report.study.records), "counts": counts}),
        render("app/tabs/claims.html.jinja", claims=[claim_values(claim) for claim in report.claims]),
        gr.Dropdown(figures, value=kept),
        curve_html(folder, kept),
        render("app/tabs/table.html.jinja", table=page_table(runs_table(report.study))),
        gallery_html(report.study),
    ]


def gallery_html(study: Any) -> str:
    if not study.pictures:
        return state_html("empty", "No pictures", "This study kept no pictures with captions.")
    return render("app/tabs/gallery.html.jinja", gallery=picture_cards(study))


def _status(state: StudyState, results: dict[str, Any] | None) -> str:
    return render("app/tabs/status.html.jinja", state=state, results=results)


def curve_html(folder: Path, name: str | None) -> str:
    if name is None:
        return NOT_YET
    if name == TRAINING:
        figure = training_curves(folder)
        if figure is None:
            return state_html("empty", "No curve yet", "Losses appear when a training has taken its first steps.")
        png, title, caption = figure_png(figure), "Training losses.", "The trainings that were written to last."
    else:
        found = next((one for one in drawings_of(folder) if one.name == name), None)
        png_or_none = drawing_png(str(folder), _modified(folder / RUNS), name)
        if found is None or png_or_none is None:
            return state_html("empty", "Not measured", found.missing if found is not None else "")
        png, title, caption = png_or_none, found.title, found.caption
    return render("app/tabs/figure.html.jinja", png=png, alt=title, title=title, caption=caption)
