"""The tab Law: what a law predicts, where that leaves the runs behind the law, and what to train next."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gradio as gr
import numpy as np

from babelcap.app.context import AppContext, in_words, state_html
from babelcap.app.figure_pictures import figure_png
from babelcap.app.law_sources import FORMS, OWN, PAPER, STUDY, Laws, find_laws, ordered_targets
from babelcap.errors import UserError
from babelcap.laws import Cost, Fit, Law, plan_for_budget, plan_for_loss
from babelcap.laws.forms import form_of
from babelcap.laws.published import PublishedLaw
from babelcap.pages import render
from babelcap.report.figures.iso_loss import iso_loss_map
from babelcap.report.figures.style import AXIS_NAMES, TARGET_NAMES, colour_of, number

READINGS = [("after the prefix", "conditioned"), ("raw, prefix included", "raw")]
BUDGET, LOSS = "budget", "loss"
WIDER = 1.0  # decades that a slider goes beyond the points
STARTS = {"P": 3.5e9, "S": 5e6, "T": 4.0}
EMPTY_PLAN = state_html("empty", "No plan yet", "Give a budget or a loss to reach, and press Plan.")


def law_tab(context: AppContext) -> None:
    sources = [("The paper's laws (v1)", PAPER)]
    if context.study is not None:
        sources.insert(0, (f"The study {context.study.name}", STUDY))
    sources.append(("Your own runs", OWN))
    with gr.Row(equal_height=False):
        with gr.Column(scale=1, min_width=300):
            source = gr.Radio(sources, value=sources[0][1], label="Laws of", elem_id="law-source")
            form = gr.Dropdown(
                [(f"{name}: {form_of(name).formula}", name) for name in FORMS],
                value="pst",
                label="Form (of the paper's laws, ps is known)",
                elem_id="law-form",
                filterable=False,
            )
            reading = gr.Radio(READINGS, value="conditioned", label="Loss of the study's runs", elem_id="law-reading")
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
            sliders = [
                gr.Slider(0, 15, value=math.log10(STARTS[name]), step=0.01, label=_slider_label(name),
                          elem_id=f"law-{name}")
                for name in ("P", "S")
            ]  # fmt: skip
            sliders.append(gr.Slider(0, 12, value=STARTS["T"], step=0.01, label=_slider_label("T"), elem_id="law-T"))
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

    def laws_of(values: tuple[Any, ...]) -> Laws:
        kind, shape, read, file, column_names = values
        path = context.study if kind == STUDY else Path(file) if file else None
        return find_laws(kind, shape, read, path if kind != PAPER else None, column_names or "")

    def predict(*values: Any) -> tuple[Any, ...]:
        try:
            laws = laws_of(values[:5])
        except UserError as error:
            return state_html("error", "No law here", str(error)), gr.skip(), ""
        at = dict(zip("PST", (10 ** values[5], 10 ** values[6], values[7]), strict=True))
        targets = ordered_targets(laws)
        chosen = values[8] if values[8] in targets else targets[0]
        return (
            predictions_html(laws, at),
            gr.Radio(choices=targets, value=chosen),
            map_html(laws.laws[chosen], at),
        )

    def rescale(*values: Any) -> list[Any]:
        """Sliders over the range of the points and somewhat more, when the laws are others."""
        try:
            laws = laws_of(values[:5])
        except UserError:
            return [gr.skip()] * 4
        law = next(iter(laws.laws.values()))
        largest = Cost.from_points(law).per_sample(np.array(laws.range_of("P")[1])) * laws.range_of("S")[1]
        return [*(_slider(laws, name) for name in "PST"), f"{4 * float(largest):.1g}"]

    def make_plan(*values: Any) -> str:
        laws = laws_of(values[:5])
        chosen = values[8] if values[8] in laws.laws else ordered_targets(laws)[0]
        return plan_html(laws.laws[chosen], {"T": values[7]}, values[9], values[10])

    which = [source, form, reading, table, names]
    inputs = [*which, *sliders, target]
    outputs = [shown, target, picture]
    changed = [component.change for component in (source, form, reading, table)] + [names.submit]
    for event in changed:
        event(in_words(rescale), which, [*sliders, amount], api_name=False, show_progress="hidden").then(
            in_words(predict), inputs, outputs, api_name=False, show_progress="minimal"
        )
    for event in [slider.input for slider in sliders] + [target.input]:  # by pointer and by keyboard
        event(in_words(predict), inputs, outputs, api_name=False, show_progress="hidden", trigger_mode="always_last")
    plan_button.click(in_words(make_plan), [*inputs, aim, amount], plan, api_name=False)
    context_load = gr.context.Context.root_block
    context_load.load(in_words(rescale), which, [*sliders, amount], api_name=False, show_progress="hidden").then(
        in_words(predict), inputs, outputs, api_name=False, show_progress="hidden"
    )


def _slider_label(name: str) -> str:
    return f"{AXIS_NAMES[name]}" + ("" if name == "T" else ", as a power of ten")


def _slider(laws: Laws, name: str) -> Any:
    is_used = name in laws.columns
    low, high = laws.range_of(name)
    if name == "T":
        value = math.sqrt(low * high)
        label = _slider_label(name) + ("" if is_used else ": not in this law")
        span = round(low / 2, 2), round(high * 2, 2)
        return gr.Slider(minimum=span[0], maximum=span[1], value=round(value, 2), interactive=is_used, label=label)
    ends = math.log10(low), math.log10(high)
    return gr.Slider(
        minimum=round(ends[0] - WIDER, 1),
        maximum=round(ends[1] + WIDER, 1),
        value=round(ends[1], 2),
        interactive=is_used,
    )


def predictions_html(laws: Laws, at: Mapping[str, float]) -> str:
    rows: list[dict[str, Any]] = []
    notes: list[str] = []
    for target in ordered_targets(laws):
        law = laws.laws[target]
        here = {name: at[name] for name in law.form.columns if name in at}
        low, high, kind = _interval(law, here)
        rows.append(
            {
                "target": target,
                "name": TARGET_NAMES.get(target, ""),
                "colour": colour_of(target),
                "loss": float(law.predict(here)),
                "low": low,
                "high": high,
                "kind": kind,
                "is_beyond": bool(law.extrapolations(here)),
                "formula": law.form.formula,
                "coefficients": ", ".join(f"{name} {value:.3g}" for name, value in law.coefficients.items()),
            }
        )
        notes += [*law.extrapolations(here), *law.warnings]
    most = max(row["high"] if math.isfinite(row["high"]) else row["loss"] for row in rows) * 1.1
    return render(
        "app/tabs/law.html.jinja",
        rows=rows,
        most=most,
        at=[(AXIS_NAMES[name], number(at[name])) for name in laws.columns if name in at],
        beyond=list(dict.fromkeys(line for row in laws.laws.values() for line in _beyond(row, at))),
        notes=[note for note in dict.fromkeys(notes) if " times " not in note],
        taken=laws.taken,
        refused=laws.refused,
    )


def _beyond(law: Law, at: Mapping[str, float]) -> list[str]:
    return law.extrapolations({name: at[name] for name in law.form.columns if name in at})


def _interval(law: Law, here: dict[str, float]) -> tuple[float, float, str]:
    if isinstance(law, Fit):
        low, high = law.prediction_interval(here)
        return float(low), float(high), "95 %, a new run"
    if isinstance(law, PublishedLaw):
        return (*law.rounding_interval(**here), "what the printed digits allow")
    return math.nan, math.nan, ""


def map_html(law: Law, at: Mapping[str, float]) -> str:
    if not {"P", "S"} <= set(law.form.columns):
        return state_html("empty", "No map", "A map of equal loss needs a law with P and S.")
    others = {name: value for name, value in at.items() if name in law.form.columns and name not in "PS"}
    figure = iso_loss_map(law, at=others)
    panel = figure.axes[0]
    limits = panel.get_xlim(), panel.get_ylim()
    panel.plot([at["P"]], [at["S"]], "*", color="#111111", markersize=13, markeredgecolor="white", zorder=9)
    panel.set_xlim(limits[0])
    panel.set_ylim(limits[1])
    where = f"P {number(at['P'])}, S {number(at['S'])}"
    inside = limits[0][0] <= at["P"] <= limits[0][1] and limits[1][0] <= at["S"] <= limits[1][1]
    words = f"The star is at {where}." if inside else f"{where} lies outside of this map."
    alt = f"Map of equal loss of {law.target} over parameters and samples, with lines of equal compute. {words}"
    return render("app/tabs/figure.html.jinja", png=figure_png(figure), alt=alt, caption=words, title="")


def plan_html(law: Law, at: Mapping[str, float], aim: str, amount: str) -> str:
    others = {name: value for name, value in at.items() if name in law.form.columns}
    cost = Cost.from_points(law)
    try:
        number_wanted = float(amount)
    except (TypeError, ValueError):
        raise UserError(f"how much: found '{amount}'; write a number, such as 1e19 or 1.5") from None
    make = plan_for_budget if aim == BUDGET else plan_for_loss
    plan = make(law, number_wanted, cost=cost, at=others)
    values = {"P": plan.P, "S": plan.S, "C": plan.C, "loss": plan.loss}
    names = {"P": "parameters", "S": "samples", "C": "multiply-accumulates", "loss": f"loss of {law.target}"}
    rows = [
        {
            "name": names[name],
            "value": _shown(name, value),
            "interval": [_shown(name, end) for end in plan.intervals[name]] if name in plan.intervals else None,
        }
        for name, value in values.items()
    ]
    return render("app/tabs/plan.html.jinja", rows=rows, notes=plan.notes, cost=cost)


def _shown(name: str, value: float) -> str:
    if not np.isfinite(value):
        return "no bound"
    return f"{value:.3g}" if name in ("loss", "C") else number(value)
