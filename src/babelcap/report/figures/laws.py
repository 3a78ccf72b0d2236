"""Figures of fitted laws: loss against each column, the compute frontier, residuals, and the bootstrap.

Each function returns a matplotlib Figure.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from babelcap.laws import Fit, frontier
from babelcap.report.figures.style import (
    AXIS_NAMES,
    GREY,
    TARGET_NAMES,
    Array,
    colour_of,
    drawing,
    log_axis,
    loss_name,
    number,
)


def _at_middle(fitted: Fit, column: str, values: Array) -> dict[str, Array]:
    """The law's columns with one running and the others at the middle of the points."""
    middle = {name: np.full_like(values, np.median(fitted.points.columns[name])) for name in fitted.form.columns}
    return middle | {column: values}


def loss_panels(fits: Mapping[str, Fit], columns: Sequence[str] | None = None) -> Figure:
    """Loss against each column, one colour a target, with the law and its 95 % band.

    The law has several columns and a panel has one, so each point is moved along the law to the middle of the others.
    """
    first = next(iter(fits.values()))
    columns = list(columns or first.form.columns)
    with drawing(0.6 + 3.1 * len(columns), 3.5) as figure:
        axes = np.atleast_1d(figure.subplots(1, len(columns), sharey=True))
        everything = np.concatenate([_draw_target(axes, columns, name, fits[name], i) for i, name in enumerate(fits)])
        for panel, column in zip(axes, columns, strict=True):
            shown = np.concatenate([fitted.points.columns[column] for fitted in fits.values()])
            panel.set_xscale("log")
            panel.set_yscale("log")
            panel.set_xlabel(AXIS_NAMES.get(column, column))
            log_axis(panel.xaxis, shown, column)
        log_axis(axes[0].yaxis, everything)
        axes[0].set_ylabel(loss_name(*fits))
        moved = "; points are moved along it to the median of the columns not shown" if len(columns) > 1 else ""
        figure.suptitle(
            f"Lines: the law {first.form.formula}, with its 95 % band{moved}",
            x=0.01, ha="left", fontsize=8, color=GREY, wrap=True,
        )  # fmt: skip
    return figure


def _draw_target(axes: NDArray[Any], columns: Sequence[str], name: str, fitted: Fit, index: int) -> Array:
    colour, heights = colour_of(name, index), []
    for panel, column in zip(axes, columns, strict=True):
        shown = fitted.points.columns[column]
        line = np.geomspace(shown.min(), shown.max(), 80)
        at = _at_middle(fitted, column, line)
        low, high = fitted.prediction_interval(at, of_mean=True)
        panel.fill_between(line, low, high, color=colour, alpha=0.16, linewidth=0)
        law = fitted.predict(at)
        panel.plot(line, law, color=colour, linewidth=1.6)
        moved = fitted.predict(_at_middle(fitted, column, shown)) * np.exp(fitted.residuals)
        panel.plot(shown, moved, "o", color=colour, markersize=3.4, alpha=0.75, markeredgewidth=0)
        heights += [moved, law]
        if panel is axes[-1]:
            label = f"{name}\n{TARGET_NAMES[name]}" if name in TARGET_NAMES else name
            panel.annotate(
                label, (line[-1], law[-1]), (6, 0), textcoords="offset points", color=colour, va="center", fontsize=8,
            )  # fmt: skip
    return np.concatenate(heights)


def compute_frontier(fits: Mapping[str, Fit], points: Mapping[str, Mapping[str, Any]]) -> Figure:
    """Loss against compute: all runs, the frontier of the best ones, and the law with its band as far as it reaches.

    `points[target]` holds the columns C, P and y of all runs; the fit may have used only those on the frontier.
    """
    with drawing(0.4 + 3.3 * len(fits), 3.5) as figure:
        axes = np.atleast_1d(figure.subplots(1, len(fits)))
        for panel, (name, fitted) in zip(axes, fits.items(), strict=True):
            _frontier_panel(panel, fitted, points[name], colour_of(name))
            panel.set_title(f"{name}: {TARGET_NAMES[name]}" if name in TARGET_NAMES else name)
        axes[0].set_ylabel(loss_name(*fits))
        figure.suptitle(
            "Coloured: runs on the frontier, the law and its 95 % band; grey: runs of one model size; "
            "×: more compute than the frontier's last run, no lower loss",
            x=0.01, ha="left", fontsize=8, color=GREY, wrap=True,
        )  # fmt: skip
    return figure


def _frontier_panel(panel: Axes, fitted: Fit, runs: Mapping[str, Any], colour: str) -> None:
    C, y = np.asarray(runs["C"], dtype=float), np.asarray(runs["y"], dtype=float)
    sizes = np.asarray(runs["P"], dtype=float)
    for size in np.unique(sizes):
        mine = np.flatnonzero(sizes == size)
        mine = mine[np.argsort(C[mine])]
        panel.plot(C[mine], y[mine], "-o", color="#a9a9a9", linewidth=0.8, markersize=3)
        panel.annotate(
            number(size), (C[mine[0]], y[mine[0]]), (4, 4), textcoords="offset points", fontsize=7, color=GREY
        )  # fmt: skip
    best = frontier({"C": C}, y)
    panel.plot(C[best], y[best], "o", color=colour, markersize=5, markeredgewidth=0)
    # Beyond the last point of the frontier no run was as good as the law: it ends there, and the misses are marked.
    missed = np.flatnonzero(C[best].max() < C)
    panel.plot(C[missed], y[missed], "x", color="#222222", markersize=6, markeredgewidth=1.3)
    line = np.geomspace(C[best].min(), C[best].max(), 80)
    low, high = fitted.prediction_interval({"C": line}, of_mean=True)
    panel.fill_between(line, low, high, color=colour, alpha=0.16, linewidth=0)
    panel.plot(line, fitted.predict({"C": line}), color=colour, linewidth=1.6)
    panel.set_xscale("log")
    panel.set_yscale("log")
    panel.set_xlabel(AXIS_NAMES["C"])
    panel.margins(x=0.12)
    log_axis(panel.xaxis, C, "C")
    log_axis(panel.yaxis, y)
    exponent = fitted.coefficients[fitted.form.coefficients[1]]
    panel.text(
        0.97, 0.96, f"loss ~ C$^{{{exponent:.3f}}}$, R² {fitted.r2:.3f}", transform=panel.transAxes, ha="right",
        va="top", fontsize=7.5, color=GREY,
    )  # fmt: skip


def residual_panels(fitted: Fit) -> Figure:
    """What the law leaves over, against the prediction and each column: a pattern means that the form is wrong."""
    percent = 100 * np.expm1(fitted.residuals)
    panels = {f"predicted {loss_name(fitted.target)}": fitted.points.y * np.exp(-fitted.residuals)}
    panels |= {AXIS_NAMES.get(name, name): fitted.points.columns[name] for name in fitted.form.columns}
    colour = colour_of(fitted.target)
    with drawing(0.6 + 2.5 * len(panels), 2.8) as figure:
        axes = np.atleast_1d(figure.subplots(1, len(panels), sharey=True))
        for panel, (name, values) in zip(axes, panels.items(), strict=True):
            panel.axhline(0, color=GREY, linewidth=0.9)
            panel.plot(values, percent, "o", color=colour, markersize=4, alpha=0.8, markeredgewidth=0)
            panel.set_xscale("log")
            panel.set_xlabel(name)
            log_axis(panel.xaxis, values, "C" if name == AXIS_NAMES["C"] else None)
        axes[0].set_ylabel("measured above the law (%)")
        reach = 1.15 * max(float(np.abs(percent).max()), 0.1)
        axes[0].set_ylim(-reach, reach)
        spread = 100 * fitted.noise
        figure.suptitle(
            f"{fitted.target + ': ' if fitted.target else ''}{fitted.form.formula}; "
            f"standard deviation {spread:.2g} %", x=0.01, ha="left", fontsize=8, color=GREY,
        )  # fmt: skip
    return figure


def bootstrap_corner(fitted: Fit) -> Figure:
    """How the bootstrap's coefficients spread and hang together; the lines mark the fit."""
    form = fitted.form
    natural = fitted.replicates.copy()
    centre = fitted.problem.to_natural(fitted.theta[None])[0]
    names = []
    for index, name in enumerate(form.coefficients):
        logged = name in form.prefactors and name != form.floor
        names.append(f"log10 {name}" if logged else name)
        if logged:
            natural[:, index] /= np.log(10)
            centre[index] /= np.log(10)
    size, colour = len(names), colour_of(fitted.target)
    with drawing(1.0 + 1.55 * size, 0.8 + 1.45 * size) as figure:
        axes = figure.subplots(size, size, sharex="col", squeeze=False)
        for row in range(size):
            for column in range(size):
                _corner_panel(axes[row, column], natural, centre, row, column, colour)
                if row == size - 1:
                    axes[row, column].set_xlabel(names[column])
                if column == 0 and row > 0:
                    axes[row, column].set_ylabel(names[row])
        figure.align_labels()
        target = f"{fitted.target}: " if fitted.target else ""
        figure.suptitle(f"{target}{form.formula}, {len(natural)} bootstrap replicates", fontsize=8, color=GREY)
    return figure


def _corner_panel(panel: Axes, drawn: Array, centre: Array, row: int, column: int, colour: str) -> None:
    if column > row:
        panel.set_axis_off()
        return
    panel.grid(False)
    low, high = np.quantile(drawn, [0.003, 0.997], axis=0)
    pad = np.maximum(0.08 * (high - low), 1e-9)
    low, high = np.minimum(low, centre) - pad, np.maximum(high, centre) + pad
    panel.axvline(centre[column], color=GREY, linewidth=0.8)
    panel.set_xlim(low[column], high[column])
    if row == column:
        panel.hist(drawn[:, row], bins=list(np.linspace(low[row], high[row], 31)), color=colour, alpha=0.75)
        panel.set_yticks([])
    else:
        panel.plot(drawn[:, column], drawn[:, row], ".", color=colour, markersize=1.6, alpha=0.35, markeredgewidth=0)
        panel.axhline(centre[row], color=GREY, linewidth=0.8)
        panel.set_ylim(low[row], high[row])
        panel.yaxis.set_major_locator(MaxNLocator(3))
        panel.tick_params(labelleft=column == 0)
    panel.xaxis.set_major_locator(MaxNLocator(3))
