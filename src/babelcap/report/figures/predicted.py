"""Predicted against measured, and the skill of the laws against guesses that need none."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

from babelcap.laws.ahead import Predicted
from babelcap.laws.judged import measured_since
from babelcap.measures import TRUE_CAPTIONS, loss_measure
from babelcap.report.figures.style import GREY, drawing, log_axis
from babelcap.report.skill import judged_measures, pooled_skill, rows_of
from babelcap.report.study_folder import Study
from babelcap.report.study_laws import StudyLaws

NEW_SIZE, NEW_BUDGET = "#d55e00", "#0072b2"
NO_SKILL = -1.0  # what is worse is drawn at the edge


def predicted_figure(study: Study) -> Figure | None:
    """Runs that were predicted before they were run; a line is a 95 % interval."""
    if study.prediction is None:
        return None
    panels = [(f"loss of UC, {name}", loss_measure(name)) for name in ("content", "raw")]
    panels.append(("objects right in UC", TRUE_CAPTIONS[0]))
    pairs = measured_since(study.prediction.predicted, study.records)
    found = [
        (title, rows)
        for title, measure in panels
        if (rows := [(row, value) for row, value in pairs if (row.measure, row.target) == (measure, "UC")])
    ]
    if not found:
        return None
    with drawing(0.5 + 3.1 * len(found), 3.7) as figure:
        axes = np.atleast_1d(figure.subplots(1, len(found)))
        for panel, (title, rows) in zip(axes, found, strict=True):
            _draw_pairs(panel, rows)
            panel.set_title(title, fontsize=10)
            panel.set_xlabel("predicted")
        axes[0].set_ylabel("measured afterwards")
        for place, (text, colour) in enumerate((("a larger size", NEW_SIZE), ("a larger budget", NEW_BUDGET))):
            axes[0].text(0.04, 0.95 - 0.08 * place, text, color=colour, transform=axes[0].transAxes, fontsize=9,
                         va="top")  # fmt: skip
    return figure


def _draw_pairs(panel: Axes, rows: Sequence[tuple[Predicted, float]]) -> None:
    everything = np.array([number for row, value in rows for number in (row.value, value)])
    is_rate = rows[0][0].is_rate
    for row, value in rows:
        colour = NEW_SIZE if row.last_budget is None else NEW_BUDGET
        panel.plot([row.low, row.high], [value, value], color=colour, linewidth=1, alpha=0.4)
        panel.plot(row.value, value, "o", color=colour, markersize=5, alpha=0.85, markeredgewidth=0)
    if is_rate:
        ends = np.array([0.0, 1.0])
        for axis in (panel.xaxis, panel.yaxis):
            axis.set_major_formatter(PercentFormatter(1, decimals=0))
    else:
        ends = np.array([everything.min() / 1.25, everything.max() * 1.25])
        panel.set_xscale("log")
        panel.set_yscale("log")
        log_axis(panel.xaxis, ends)
        log_axis(panel.yaxis, ends)
    panel.plot(ends, ends, color=GREY, linewidth=0.9)
    panel.set_xlim(*ends)
    panel.set_ylim(*ends)


def skill_figure(study: Study, laws: StudyLaws) -> Figure | None:
    """A small dot is a cut-off, the large one all of them together; right of zero the law beats the better guess."""
    rows = []
    for name, measure, target in judged_measures(study):
        judged = [row.judged for row in rows_of(laws.rolled, laws.family, measure, target)]
        skills = [row.skill for row in judged if row.skill is not None]
        if skills and (together := pooled_skill(judged)) is not None:
            rows.append((name, skills, together))
    if not rows:
        return None
    with drawing(6.4, 0.9 + 0.38 * len(rows)) as figure:
        panel = figure.subplots()
        for place, (_, skills, together) in enumerate(rows):
            colour = NEW_BUDGET if together > 0 else NEW_SIZE
            panel.plot(np.maximum(skills, NO_SKILL), [-place] * len(skills), ".", color=colour, alpha=0.45)
            panel.plot(max(together, NO_SKILL), -place, "o", color=colour, markersize=7)
        panel.axvline(0, color=GREY, linewidth=0.9)
        panel.set_yticks([-place for place in range(len(rows))], [name for name, _, _ in rows])
        panel.set_xlim(NO_SKILL - 0.06, 1.04)
        panel.set_ylim(0.6 - len(rows), 0.6)
        panel.set_xlabel("← a guess is better          skill          the law is better →")
        panel.grid(False, axis="y")
    return figure
