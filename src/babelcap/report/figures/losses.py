"""Figures of a study's losses: what the picture is worth, loss against content, and the largest budget predicted.

Each function returns a matplotlib Figure, or None where the runs do not have what it shows.
"""

import numpy as np
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from babelcap.laws.runs import MAIN
from babelcap.measures import TARGETS, loss_measure
from babelcap.report.claims import OBJECTS, gap_values
from babelcap.report.figures.captions import draw_lines, lines_by_size, one_base_a_size, size_colours, size_legend
from babelcap.report.figures.style import GREY, TARGET_NAMES, colour_of, drawing, log_axis, number
from babelcap.report.law_claims import HELD_OUT_TARGET
from babelcap.report.statistics import over_seeds
from babelcap.report.study_folder import CONTROLS, KIND_NAMES, Cell, Study, chance, value
from babelcap.report.study_laws import StudyLaws, held_out_budget


def gap_figure(study: Study, main: Cell) -> Figure | None:
    """What another picture costs, in nats: zero means that the model does not look."""
    cells = one_base_a_size(study, main)
    targets = [target for target in ("UC", "SC") if any(gap_values(cell, target) for cell in cells)]
    if not targets:
        return None
    with drawing(0.6 + 3.6 * len(targets), 3.3) as figure:
        axes = np.atleast_1d(figure.subplots(1, len(targets), sharey=True))
        for panel, target in zip(axes, targets, strict=True):
            lines = lines_by_size(study, cells, lambda cell, t=target: over_seeds(gap_values(cell, t)))  # type: ignore[misc]
            draw_lines(panel, study, lines)
            for kind, marker in zip(CONTROLS, ("s", "v"), strict=True):
                pair = study.beside(kind, main)
                found = None if pair is None else over_seeds(gap_values(pair[0], target))
                if pair is not None and found is not None:
                    panel.plot(pair[0].key.S, found.value, marker, color="#333333", markerfacecolor="white",
                               markersize=6, zorder=4, label=KIND_NAMES[kind])  # fmt: skip
            panel.axhline(0, color=GREY, linewidth=0.9)
            panel.set_title(f"{target}: {TARGET_NAMES[target]}", fontsize=9)
        axes[0].set_ylabel("loss with another picture\nless loss with the own (nats)")
        size_legend(figure, axes[0])
    return figure


def content_against_loss(study: Study) -> Figure | None:
    """Every run of the grid: objects right against the loss of unseen captioning, prefix given."""
    colours, shown = size_colours(study), set()
    points = []
    for record in study.records:
        if record.kind != MAIN:
            continue
        loss, content = value(record, loss_measure("conditioned"), "UC"), value(record, OBJECTS, "UC")
        if loss is not None and content is not None and np.isfinite(content) and 0 < loss < np.inf:
            points.append((record, loss, content))
    if len(points) < 2:
        return None
    budgets = sorted({record.S for record, _, _ in points})
    with drawing(6.2, 4.0) as figure:
        panel = figure.subplots()
        for record, loss, content in sorted(points, key=lambda point: (point[0].family, point[0].P, point[0].run)):
            area = 14 + 46 * (budgets.index(record.S) / max(1, len(budgets) - 1))
            label = record.size.removeprefix("micro-") if record.size not in shown else None
            shown.add(record.size)
            panel.scatter(loss, content, s=area, color=colours[record.size], alpha=0.75, linewidths=0, label=label)
        by_chance = next((found for cell in study.cells(MAIN) if (found := chance(cell, "objects")) is not None), None)
        if by_chance is not None:
            panel.axhline(by_chance, color=GREY, linewidth=0.9, linestyle=":")
            panel.annotate("chance", (0.01, by_chance), (0, 3), xycoords=("axes fraction", "data"),
                           textcoords="offset points", fontsize=7.5, color=GREY)  # fmt: skip
        panel.set_xscale("log")
        log_axis(panel.xaxis, np.array([loss for _, loss, _ in points]))
        panel.set_xlabel("UC cross-entropy after the prefix (nats)")
        panel.set_ylabel("objects right, with prefix")
        panel.set_ylim(0, 1.02)
        panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
        panel.set_title(f"a dot: one run; the larger, the more samples ({number(budgets[0])} to {number(budgets[-1])})",
                        fontsize=8, color=GREY)  # fmt: skip
        legend = panel.legend(frameon=False, fontsize=8, loc="upper right")
        for handle in legend.legend_handles:
            if isinstance(handle, PathCollection):
                handle.set_sizes([32])
    return figure


def held_out_figure(laws: StudyLaws) -> Figure | None:
    """The largest budget, left out of the fit: what the smaller budgets predict against what was measured."""
    found = {}
    for target in TARGETS:
        law = laws.best("conditioned", target)
        parts = held_out_budget(law.fitted) if law is not None and law.fitted is not None else None
        if law is not None and parts is not None and law.largest_budget is not None:
            found[target] = (*parts, law.largest_budget.relative)
    if not found:
        return None
    everything = np.concatenate([np.concatenate(parts[:2]) for parts in found.values()])
    ends = np.array([everything.min() / 1.1, everything.max() * 1.1])
    with drawing(4.8, 4.2) as figure:
        panel = figure.subplots()
        panel.fill_between(
            ends, ends / (1 + HELD_OUT_TARGET), ends * (1 + HELD_OUT_TARGET), color="#eeeeee", linewidth=0
        )
        panel.plot(ends, ends, color=GREY, linewidth=0.9)
        for target, (measured, predicted, error) in found.items():
            panel.plot(predicted, measured, "o", color=colour_of(target), markersize=5, alpha=0.75, markeredgewidth=0,
                       label=f"{target} {TARGET_NAMES[target]}: off by {100 * error:.2g} %")  # fmt: skip
        for axis, name in ((panel.xaxis, "x"), (panel.yaxis, "y")):
            getattr(panel, f"set_{name}scale")("log")
            log_axis(axis, ends)
        panel.set_xlim(*ends)
        panel.set_ylim(*ends)
        panel.set_xlabel("predicted from smaller budgets (nats)")
        panel.set_ylabel("measured at the largest budget (nats)")
        panel.legend(frameon=False, fontsize=8, loc="upper left")
        panel.set_title(f"grey: within {100 * HELD_OUT_TARGET:g} %", fontsize=8, color=GREY)
    return figure
