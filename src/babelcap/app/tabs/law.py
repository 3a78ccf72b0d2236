"""The tab Law: what a law predicts, where that leaves the runs behind the law, and what to train next."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import gradio as gr
import numpy as np

from babelcap.app.context import AppContext, in_place, in_words, state_html
from babelcap.app.law_sources import FORMS, OWN, PAPER, STUDY, Laws, find_laws, ordered_targets
from babelcap.app.tabs.law_parts import BUDGET, LOSS, map_html, plan_html, predictions_html
from babelcap.errors import UserError
from babelcap.laws import Cost
from babelcap.laws.forms import form_of
from babelcap.report.figures.style import AXIS_NAMES

READINGS = [("after the prefix", "conditioned"), ("raw, prefix included", "raw")]
WIDER = 1.0  # decades that a slider goes beyond the points
STARTS = {"P": 3.5e9, "S": 5e6, "T": 4.0}
EMPTY_PLAN = state_html("empty", "No plan yet", "Give a budget or a loss to reach, and press Plan.")


@dataclass(frozen=True)
class LawControls:
    """What the page asks of its user, in the order in which the functions behind it take the values."""

    source: gr.Radio
    form: gr.Dropdown
    reading: gr.Radio
    table: gr.File
    names: gr.Textbox
    sliders: list[gr.Slider]  # P, S, T

    @property
    def which(self) -> list[Any]:
        """What decides which laws are shown."""
        return [self.source, self.form, self.reading, self.table, self.names]


def law_tab(context: AppContext) -> None:
    with gr.Row(equal_height=False):
        with gr.Column(scale=1, min_width=300):
            controls = law_controls(context)
        with gr.Column(scale=2, min_width=300):
            shown = gr.HTML(state_html("loading", "Fitting ..."), elem_id="law-results", padding=False)
            target = gr.Radio(["UC", "ST", "SC"], value="UC", label="Map of", elem_id="law-target")
            picture = gr.HTML(elem_id="law-map", padding=False)
            with gr.Group():
                with gr.Row():
                    aim = gr.Radio(
                        [("a budget in multiply-accumulates", BUDGET), ("a loss to reach", LOSS)],
                        value=BUDGET,
                        label="Plan for",
                        elem_id="law-aim",
                    )
                    amount = gr.Textbox("1e13", label="How much", max_length=20, elem_id="law-amount")
                plan_button = gr.Button("Plan", variant="primary", elem_id="law-plan")
            plan = gr.HTML(EMPTY_PLAN, elem_id="law-plan-results", padding=False)
    renew, predict = (in_words(partial(function, context)) for function in (renewed_parts, predicted_parts))
    make_plan = in_place(partial(planned_html, context))
    inputs = [*controls.which, *controls.sliders, target]
    outputs = [shown, target, picture]
    others = (controls.source, controls.form, controls.reading, controls.table)
    page = gr.context.Context.root_block
    # One event a change, not two in a row: Gradio may close the stream of answers after the first before it knows of
    # the second, whose answer is lost then, and the page would say "Fitting ..." for ever.
    for event in [*(component.change for component in others), controls.names.submit, page.load]:
        event(
            renew,
            [*controls.which, target],
            [*controls.sliders, amount, *outputs],
            api_name=False,
            show_progress="hidden" if event is page.load else "minimal",
        )
    for event in [slider.input for slider in controls.sliders] + [target.input]:  # by pointer and by keyboard
        event(predict, inputs, outputs, api_name=False, show_progress="hidden", trigger_mode="always_last")
    plan_button.click(make_plan, [*inputs, aim, amount], plan, api_name=False)


def law_controls(context: AppContext) -> LawControls:
    sources = [("The paper's laws (v1)", PAPER)]
    if context.study is not None:
        sources.insert(0, (f"The study {context.study.resolve().name}", STUDY))
    sources.append(("Your own runs", OWN))
    source = gr.Radio(sources, value=sources[0][1], label="Laws of", elem_id="law-source")
    form = gr.Dropdown(
        [(f"{name}: {form_of(name).formula}", name) for name in FORMS],
        value="ps" if context.study is None else "pst",
        label="Form (of the paper's laws, ps is known)",
        elem_id="law-form",
        filterable=False,
    )
    reading = gr.Radio(
        READINGS,
        value="conditioned",
        label="Loss of the study's runs",
        visible=context.study is not None,
        elem_id="law-reading",
    )
    with gr.Accordion("Your own runs: a CSV file", open=False):
        table = gr.File(
            label="CSV, TSV, Parquet or runs.jsonl; columns P, S, T and a loss",
            file_types=[".csv", ".tsv", ".parquet", ".jsonl"],
            type="filepath",
            height=130,
            elem_id="law-table",
        )
        names = gr.Textbox(
            label="Names of its columns, where they are others",
            placeholder="P=params,S=samples,y=loss",
            max_length=400,
            elem_id="law-names",
        )
    ends = {"P": (0, 15, math.log10(STARTS["P"])), "S": (0, 15, math.log10(STARTS["S"])), "T": (0, 12, STARTS["T"])}
    sliders = [
        gr.Slider(low, high, value=value, step=0.01, label=_slider_label(name), elem_id=f"law-{name}")
        for name, (low, high, value) in ends.items()
    ]
    return LawControls(source, form, reading, table, names, sliders)


def laws_of(context: AppContext, which: tuple[Any, ...]) -> Laws:
    kind, form, reading, file, names = which
    path = context.study if kind == STUDY else Path(file) if file else None
    return find_laws(kind, form, reading, path if kind != PAPER else None, names or "")


def predicted_parts(context: AppContext, *values: Any) -> tuple[Any, ...]:
    """The table of predictions, the targets that there are, and the map of one, where the sliders are."""
    try:
        laws = laws_of(context, values[:5])
    except UserError as error:
        return _no_law(error)
    return _shown_parts(laws, dict(zip("PST", values[5:8], strict=True)), values[8])


def renewed_parts(context: AppContext, *values: Any) -> tuple[Any, ...]:
    """When the laws are others: sliders over their points and somewhat more, a budget, and what is predicted there."""
    try:
        laws = laws_of(context, values[:5])
    except UserError as error:
        return (*[gr.skip()] * 4, *_no_law(error))
    law = next(iter(laws.laws.values()))
    largest = Cost.from_points(law).per_sample(np.array(laws.range_of("P")[1])) * laws.range_of("S")[1]
    scales = {name: _scale(laws, name) for name in "PST"}
    sliders = [_slider(laws, name, scale) for name, scale in scales.items()]
    at = {name: scale.value for name, scale in scales.items()}
    return *sliders, f"{4 * float(largest):.1g}", *_shown_parts(laws, at, values[5])


def _no_law(error: UserError) -> tuple[Any, ...]:
    return state_html("error", "No law here", str(error)), gr.skip(), ""


def _shown_parts(laws: Laws, at: Mapping[str, float], wanted: str) -> tuple[Any, ...]:
    """`at` is as the sliders have it: P and S as powers of ten."""
    values = {"P": 10 ** at["P"], "S": 10 ** at["S"], "T": at["T"]}
    targets = ordered_targets(laws)
    chosen = wanted if wanted in targets else targets[0]
    map_of_one = map_html(laws.laws[chosen], values)
    return predictions_html(laws, values), gr.Radio(choices=targets, value=chosen), map_of_one


def planned_html(context: AppContext, *values: Any) -> str:
    laws = laws_of(context, values[:5])
    chosen = values[8] if values[8] in laws.laws else ordered_targets(laws)[0]
    return plan_html(laws.laws[chosen], {"T": values[7]}, values[9], values[10])


def _slider_label(name: str) -> str:
    return f"{AXIS_NAMES[name]}" + ("" if name == "T" else ", as a power of ten")


class _Scale(NamedTuple):
    low: float
    high: float
    value: float


def _scale(laws: Laws, name: str) -> _Scale:
    low, high = laws.range_of(name)
    if name == "T":
        return _Scale(round(low / 2, 2), round(high * 2, 2), round(math.sqrt(low * high), 2))
    ends = math.log10(low), math.log10(high)
    return _Scale(round(ends[0] - WIDER, 1), round(ends[1] + WIDER, 1), round(ends[1], 2))


def _slider(laws: Laws, name: str, scale: _Scale) -> Any:
    is_used = name in laws.columns
    label = _slider_label(name) + ("" if is_used or name != "T" else ": not in this law")
    return gr.Slider(minimum=scale.low, maximum=scale.high, value=scale.value, interactive=is_used, label=label)
