"""What the tab Law shows of laws: predictions with intervals, the map of equal loss, and a plan, as pieces of HTML."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from babelcap.app.context import state_html
from babelcap.app.figure_pictures import figure_png
from babelcap.app.law_sources import Laws, ordered_targets
from babelcap.errors import UserError
from babelcap.laws import Cost, Fit, Law, plan_for_budget, plan_for_loss
from babelcap.laws.published import PublishedLaw
from babelcap.pages import render
from babelcap.report.figures.iso_loss import iso_loss_map
from babelcap.report.figures.style import AXIS_NAMES, TARGET_NAMES, colour_of, number

BUDGET, LOSS = "budget", "loss"


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
