"""Figures of laws, drawn without a screen and the same byte for byte each time: PNG to look at, SVG to print.

Each function returns a matplotlib Figure; `save` writes it. One style, log axes with units, labels beside the lines.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

from babelcap.laws import Cost, Fit, Law, frontier, iso_loss, plan_for_budget
from babelcap.storage import atomic_file

Array = NDArray[np.float64]
COLOURS = {"UC": "#c8500a", "ST": "#0067a5", "SC": "#00835e"}
OTHER_COLOURS = ("#7a3e9d", "#8c6d1f", "#444444")
GREY, LIGHT = "#6b6b6b", "#d9d9d9"
TARGET_NAMES = {"UC": "unseen captioning", "ST": "seen translation", "SC": "seen captioning"}
AXIS_NAMES = {
    "P": "parameters P",
    "S": "training samples S",
    "T": "cross-entropy before training T (nats)",
    "C": "training compute C (multiply-accumulates)",
}
LOSS = "cross-entropy (nats)"
STYLE = {
    "font.family": "DejaVu Sans",
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": GREY,
    "axes.labelcolor": "#222222",
    "xtick.color": GREY,
    "ytick.color": GREY,
    "xtick.labelcolor": "#222222",
    "ytick.labelcolor": "#222222",
    "axes.grid": True,
    "grid.color": "#ececec",
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "savefig.dpi": 160,
    "svg.hashsalt": "babelcap",
    "svg.fonttype": "path",
}


@contextmanager
def drawing(width: float, height: float) -> Iterator[Figure]:
    """A figure in the common style that needs no screen and leaves no state behind."""
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(width, height), layout="constrained")
        FigureCanvasAgg(figure)
        yield figure


def save(figure: Figure, folder: str | Path, name: str) -> list[Path]:
    """Writes NAME.png and NAME.svg whole, without a date or a version in them."""
    paths = []
    for kind, metadata in (("png", {"Software": None}), ("svg", {"Date": None, "Creator": None})):
        path = Path(folder) / f"{name}.{kind}"
        with matplotlib.rc_context(STYLE), atomic_file(path) as partial:
            figure.savefig(partial, format=kind, metadata=metadata)
        paths.append(path)
    return paths


def number(value: float, _position: Any = None) -> str:
    """1.2e9 -> 1.2 B, 5e5 -> 500 k: how people write sizes and sample counts."""
    for limit, letter in ((1e12, "T"), (1e9, "B"), (1e6, "M"), (1e3, "k")):
        if value >= limit * 0.9995:
            return f"{value / limit:.3g} {letter}" if value < 1e15 else f"{value:.0e}".replace("e+", "e")
    return f"{value:.3g}"


def colour_of(target: str, index: int = 0) -> str:
    return COLOURS.get(target, OTHER_COLOURS[index % len(OTHER_COLOURS)])


def log_axis(axis: Any, values: Array, name: str | None = None, num_ticks: int = 4) -> None:
    """Ticks at round numbers, few enough to read, also where an axis spans less than a decade."""
    low, high = float(np.min(values)), float(np.max(values))
    if name == "C" or high / low > 3e4:
        axis.set_major_locator(LogLocator(numticks=6))
        axis.set_minor_locator(NullLocator())
        return
    for bases in (
        (1,),
        (1, 2, 5),
        (1, 1.5, 2, 3, 4, 5, 7),
        (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 4.5, 5, 6, 7, 8, 9),
    ):
        steps = np.array([base * 10.0**power for power in range(-6, 20) for base in bases])
        inside = steps[(steps >= 0.95 * low) & (steps <= 1.05 * high)]
        if len(inside) >= min(num_ticks, 3):
            break
    else:
        inside = np.asarray(MaxNLocator(num_ticks).tick_values(low, high))
    axis.set_ticks(inside)
    axis.set_minor_formatter(NullFormatter())
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(number))


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
        axes[0].set_ylabel(LOSS)
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


def compute_frontier(fits: Mapping[str, Fit], points: Mapping[str, Mapping[str, Array]]) -> Figure:
    """Loss against compute: all runs, the frontier of the best ones, and the law with its band, a panel a target.

    `points[target]` holds the columns C, P and y of all runs; the fit may have used only those on the frontier.
    """
    with drawing(0.4 + 3.3 * len(fits), 3.5) as figure:
        axes = np.atleast_1d(figure.subplots(1, len(fits)))
        for panel, (name, fitted) in zip(axes, fits.items(), strict=True):
            _frontier_panel(panel, fitted, points[name], colour_of(name))
            panel.set_title(f"{name}: {TARGET_NAMES[name]}" if name in TARGET_NAMES else name)
        axes[0].set_ylabel(LOSS)
    return figure


def _frontier_panel(panel: Axes, fitted: Fit, runs: Mapping[str, Array], colour: str) -> None:
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
    line = np.geomspace(C.min(), C.max(), 80)
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
        0.97, 0.96, f"loss ~ C$^{{{exponent:.3f}}}$, R² {fitted.r2:.3f}\ncoloured: runs on the frontier\n"
        "grey: runs of one model size", transform=panel.transAxes, ha="right", va="top", fontsize=7.5, color=GREY,
    )  # fmt: skip


def residual_panels(fitted: Fit) -> Figure:
    """What the law leaves over, against the prediction and each column: a pattern means that the form is wrong."""
    percent = 100 * np.expm1(fitted.residuals)
    panels = {"predicted cross-entropy (nats)": fitted.points.y * np.exp(-fitted.residuals)}
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


def iso_loss_map(law: Law, *, at: Mapping[str, float] | None = None, cost: Cost | None = None) -> Figure:
    """Curves of equal loss over P and S, the runs behind the law, and dashed lines of equal compute."""
    P_range, S_range = law.ranges.get("P", (1e8, 1e11)), law.ranges.get("S", (1e5, 1e9))
    P_limits, S_limits = (P_range[0] / 3, P_range[1] * 3), (S_range[0] / 3, S_range[1] * 3)
    cost = cost or Cost.from_points(law)
    corners = _corner_losses(law, P_limits, S_limits, at)
    levels = np.asarray(MaxNLocator(9, steps=[1, 2, 2.5, 5, 10]).tick_values(*corners))
    levels = levels[(levels > corners[0]) & (levels < corners[1])]
    P, S = iso_loss(law, levels, at=at, limits=P_limits)
    colour = colour_of(law.target)
    with drawing(5.4, 4.4) as figure:
        panel = figure.subplots()
        _compute_lines(panel, law, cost, P, S_limits, at)
        for level, needed in zip(levels, S, strict=True):
            inside = (needed >= S_limits[0]) & (needed <= S_limits[1])
            if inside.sum() < 2:
                continue
            panel.plot(P[inside], needed[inside], color=colour, linewidth=1.5)
            middle = np.flatnonzero(inside)[inside.sum() // 2]
            panel.annotate(
                f"{level:.3g}", (P[middle], needed[middle]), ha="center", va="center", fontsize=8, color=colour,
                bbox={"boxstyle": "round,pad=0.15", "facecolor": "white", "edgecolor": "none"},
            )  # fmt: skip
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
        name = f"{law.target}: " if law.target else ""
        panel.set_title(
            f"{name}coloured: equal cross-entropy (nats); dots: runs behind the law;\n"
            "dashed: equal compute (multiply-accumulates)",
            fontsize=8, color=GREY,
        )  # fmt: skip
    return figure


def _corner_losses(
    law: Law, P: tuple[float, float], S: tuple[float, float], at: Mapping[str, float] | None
) -> tuple[float, float]:
    others = {name: value for name, value in (at or {}).items() if name in law.form.columns}
    if isinstance(law, Fit):
        others = {n: float(np.median(law.points.columns[n])) for n in law.form.columns if n not in "PS"} | others
    losses = law.predict({"P": np.array(P), "S": np.array(S), **{n: np.full(2, v) for n, v in others.items()}})
    return float(losses.min()), float(losses.max())


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


def law_figures(
    fits: Mapping[str, Fit], folder: str | Path, runs: Mapping[str, Mapping[str, Array]] | None = None
) -> list[Path]:
    """All figures that these fits allow, written to a folder; `runs` holds all points for a fit of the frontier."""
    paths = []
    first = next(iter(fits.values()))
    if first.form.columns == ("C",) and runs is not None:
        paths += save(compute_frontier(fits, runs), folder, "compute_frontier")
    else:
        paths += save(loss_panels(fits), folder, "loss")
    for name, fitted in fits.items():
        ending = f"_{name}" if name else ""
        paths += save(residual_panels(fitted), folder, f"residuals{ending}")
        paths += save(bootstrap_corner(fitted), folder, f"bootstrap{ending}")
        if {"P", "S"} <= set(fitted.form.columns):
            paths += save(iso_loss_map(fitted), folder, f"iso_loss{ending}")
    return paths
