"""The map of equal loss over P and S, with lines of equal compute: where a plan looks."""

from collections.abc import Mapping

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from babelcap.laws import Cost, Fit, Law, plan_for_budget
from babelcap.report.figures.style import AXIS_NAMES, GREY, Array, colour_of, drawing, log_axis, loss_name

NUM_STEPS = 120


def iso_loss_map(law: Law, *, at: Mapping[str, float] | None = None, cost: Cost | None = None) -> Figure:
    """Curves of equal loss over P and S, the runs behind the law, and dashed lines of equal compute."""
    P_range, S_range = law.ranges.get("P", (1e8, 1e11)), law.ranges.get("S", (1e5, 1e9))
    P_limits, S_limits = (P_range[0] / 3, P_range[1] * 3), (S_range[0] / 3, S_range[1] * 3)
    cost = cost or Cost.from_points(law)
    P, S = np.geomspace(*P_limits, NUM_STEPS), np.geomspace(*S_limits, NUM_STEPS)
    losses = _losses(law, *np.meshgrid(P, S), at)
    levels = np.asarray(MaxNLocator(9, steps=[1, 2, 2.5, 5, 10]).tick_values(losses.min(), losses.max()))
    levels = levels[(levels > losses.min()) & (levels < losses.max())]
    colour = colour_of(law.target)
    with drawing(5.4, 4.4) as figure:
        panel = figure.subplots()
        _compute_lines(panel, law, cost, P, S_limits, at)
        lines = panel.contour(P, S, losses, levels, colors=colour, linewidths=1.5) if len(levels) else None
        if isinstance(law, Fit):
            panel.plot(law.points.columns["P"], law.points.columns["S"], "o", color="#333333", markersize=3.5)
        panel.set_xscale("log")
        panel.set_yscale("log")
        panel.set_xlim(*P_limits)
        panel.set_ylim(*S_limits)
        panel.set_xlabel(AXIS_NAMES["P"])
        panel.set_ylabel(AXIS_NAMES["S"])
        log_axis(panel.xaxis, np.array(P_limits), num_ticks=6)
        log_axis(panel.yaxis, np.array(S_limits), num_ticks=6)
        if lines is not None:
            panel.clabel(lines, fmt="%.3g", fontsize=8)  # on scaled axes, so that numbers lie along their lines
        name = f"{law.target}: " if law.target else ""
        panel.set_title(
            f"{name}coloured: equal {loss_name(law.target)}; dots: runs behind the law;\n"
            "dashed: equal compute (multiply-accumulates)",
            fontsize=8, color=GREY,
        )  # fmt: skip
    return figure


def _losses(law: Law, P: Array, S: Array, at: Mapping[str, float] | None) -> Array:
    others = {name: value for name, value in (at or {}).items() if name in law.form.columns}
    if isinstance(law, Fit):
        others = {n: float(np.median(law.points.columns[n])) for n in law.form.columns if n not in "PS"} | others
    return law.predict({"P": P, "S": S, **{n: np.full_like(P, v) for n, v in others.items()}})


def _compute_lines(
    panel: Axes, law: Law, cost: Cost, P: Array, S: tuple[float, float], at: Mapping[str, float] | None
) -> None:
    """Lines of equal compute, one a decade, and the best size for each budget where there is one."""
    price = cost.per_sample(P)
    powers = range(int(np.ceil(np.log10(price[0] * S[0]))), int(np.log10(price[-1] * S[1])) + 1)
    best = []
    for power in powers:
        samples = 10.0**power / price
        panel.plot(P, samples, "--", color="#b5b5b5", linewidth=0.8)
        inside = np.flatnonzero((samples > S[0] * 1.3) & (samples < S[1] / 1.3))
        if len(inside) > 1:
            where = inside[-1 - len(inside) // 12]
            panel.annotate(
                f"$10^{{{power}}}$", (P[where], samples[where]), fontsize=7, color=GREY, ha="center", va="center",
                bbox={"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"},
            )  # fmt: skip
        limits = (float(P[0]), float(P[-1]))
        plan = plan_for_budget(law, 10.0**power, cost=cost, at=at, limits=limits, with_intervals=False)
        if P[0] * 1.01 < plan.P < P[-1] / 1.01 and S[0] < plan.S < S[1]:
            best.append((plan.P, plan.S))
    if len(best) > 1:
        sizes, samples = np.array(best).T
        panel.plot(sizes, samples, "-", color="#111111", linewidth=1.1)
        panel.annotate(
            "best for its compute", (sizes[-1], samples[-1]), (6, -3), textcoords="offset points", fontsize=7.5
        )
