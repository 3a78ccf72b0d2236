"""Figures of a study's losses: what the picture is worth, and the largest budget predicted.

Each function returns a matplotlib Figure, or None where the runs do not have what it shows.
"""

import numpy as np
from matplotlib.figure import Figure

from babelcap.measures import TARGETS
from babelcap.report.claims import gap_values
from babelcap.report.figures.captions import draw_lines, lines_by_size, one_base_a_size, size_legend
from babelcap.report.figures.style import GREY, TARGET_NAMES, colour_of, drawing, log_axis
from babelcap.report.law_claims import HELD_OUT_TARGET
from babelcap.report.statistics import over_seeds
from babelcap.report.study_folder import CONTROLS, KIND_NAMES, Cell, Study
from babelcap.report.study_laws import StudyLaws, held_out_budget


def gap_figure(study: Study, main: Cell) -> Figure | None:
    """What another picture costs, in nats: zero means that the model does not look."""
    cells = one_base_a_size(study, main)
    targets = [target for target in ("UC", "SC") if any(gap_values(study, cell, target) for cell in cells)]
    if not targets:
        return None
    with drawing(0.6 + 3.6 * len(targets), 3.3) as figure:
        axes = np.atleast_1d(figure.subplots(1, len(targets), sharey=True))
        for panel, target in zip(axes, targets, strict=True):
            lines = lines_by_size(study, cells, lambda cell, t=target: over_seeds(gap_values(study, cell, t)))  # type: ignore[misc]
            draw_lines(panel, study, lines)
            for kind, marker in zip(CONTROLS, ("s", "v"), strict=True):
                pair = study.beside(kind, main)
                found = None if pair is None else over_seeds(gap_values(study, pair[0], target))
                if pair is not None and found is not None:
                    panel.plot(pair[0].key.S, found.value, marker, color="#333333", markerfacecolor="white",
                               markersize=6, zorder=4, label=KIND_NAMES[kind])  # fmt: skip
            panel.axhline(0, color=GREY, linewidth=0.9)
            panel.set_title(f"{target}: {TARGET_NAMES[target]}", fontsize=9)
        axes[0].set_ylabel("loss with another picture\nless loss with the own (nats)")
        size_legend(figure, axes[0])
    return figure


def held_out_figure(laws: StudyLaws) -> Figure | None:
    """The largest budget, left out of the fit: what the smaller budgets predict against what was measured."""
    found = {}
    for target in TARGETS:
        law = laws.headline(target)
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
                       label=f"{target} {TARGET_NAMES[target]}: off by {100 * error:.1f} %")  # fmt: skip
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
