"""Figures of benchmarks: scores against the loss, task by task, and what the prefix is worth, language by language.

Each function returns a matplotlib Figure, or None where the runs do not have what it shows.
"""

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import PercentFormatter

from babelcap.laws.runs import MAIN
from babelcap.measures import UNSEEN, Variant
from babelcap.report.downstream import (
    BLIND_GUESS,
    VARIANT_NAMES,
    Point,
    Score,
    Task,
    caption_scores,
    chosen_score,
    correlation_text,
    score_estimate,
    task_correlation,
    task_points,
    tasks_of,
)
from babelcap.report.figures.captions import WHITE, Panel, Series, rows_figure, size_colours
from babelcap.report.figures.style import GREY, colour_of, drawing, log_axis, number
from babelcap.report.statistics import Estimate
from babelcap.report.study_folder import FINETUNED, KIND_NAMES, Cell, Study

MARKERS = {MAIN: "o", "no-translation": "s", "unfit-translation": "v", FINETUNED: "D"}


def downstream_figure(study: Study) -> Figure | None:
    """Every run's score against its loss, a panel for each kind of task that was measured."""
    found = [(task, *parts) for task in tasks_of(study) if (parts := task_points(study, task)) is not None]
    if not found:
        return None
    num_rows = (len(found) + 1) // 2
    with drawing(7.8, 0.8 + 2.9 * num_rows) as figure:
        axes = figure.subplots(num_rows, min(2, len(found)), squeeze=False).ravel()
        for panel, (task, score, points) in zip(axes, found, strict=False):
            _draw_task(panel, study, task, score, points)
        for panel in axes[len(found) :]:
            panel.set_axis_off()
        shown = [point.record for _, _, points in found for point in points]
        sizes = {record.size: record for record in sorted(shown, key=lambda record: (record.family, record.P))}
        colours = size_colours(study)
        handles = [
            Line2D([], [], marker="o", linestyle="none", color=colours[size], markersize=5,
                   label=f"{size.removeprefix('micro-')} ({number(record.P)} parameters)")
            for size, record in sizes.items()
        ]  # fmt: skip
        kinds = [kind for kind in MARKERS if kind in {record.kind for record in shown}]
        handles += [
            Line2D([], [], marker=MARKERS[kind], linestyle="none", color=GREY, markersize=5,
                   markerfacecolor=GREY if kind == MAIN else "white", label=KIND_NAMES[kind])
            for kind in kinds
        ]  # fmt: skip
        figure.legend(handles=handles, loc="outside upper left", ncols=2, frameon=False, fontsize=8)
    return figure


def _draw_task(panel: Axes, study: Study, task: Task, score: Score, points: Sequence[Point]) -> None:
    colours, budgets = size_colours(study), sorted({point.record.S for point in points})
    for kind, marker in MARKERS.items():
        of_kind, is_main = [point for point in points if point.record.kind == kind], kind == MAIN
        if not of_kind:
            continue
        shades = [colours[point.record.size] for point in of_kind]
        areas = [14 + 40 * budgets.index(point.record.S) / max(1, len(budgets) - 1) for point in of_kind]
        panel.scatter(
            [point.loss for point in of_kind], [point.score for point in of_kind], s=areas if is_main else 30,
            marker=marker, alpha=0.8, facecolors=shades if is_main else "white", edgecolors=shades,
            linewidths=0 if is_main else 1.1, zorder=2 if is_main else 3,
        )  # fmt: skip
    panel.set_xscale("log")
    log_axis(panel.xaxis, np.array([point.loss for point in points]))
    panel.set_xlabel(f"cross-entropy of {task.loss_axis} (nats)")
    panel.set_ylabel(score.axis)
    if score.is_share:
        panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    if task.has_blind_guess:
        panel.axhline(BLIND_GUESS, color=GREY, linewidth=0.9, linestyle=":")
        panel.annotate("blind guess", (0.99, BLIND_GUESS), (0, 3), xycoords=("axes fraction", "data"), ha="right",
                       textcoords="offset points", fontsize=7.5, color=GREY, bbox=WHITE)  # fmt: skip
    else:
        panel.set_ylim(bottom=0)
    panel.set_title(f"{task.title}\n", fontsize=9)
    panel.annotate(correlation_text(task_correlation(points)), (0, 1), (0, 5), xycoords="axes fraction",
                   textcoords="offset points", fontsize=7.5, color=GREY)  # fmt: skip


def prefix_score_figure(study: Study, main: Cell) -> Figure | None:
    """Scores of captions with and without prefix, language by language, before and after fine-tuning."""
    tuned = study.finetuned(main)
    cells = [("before fine-tuning", main if tuned is None else tuned[1])]
    cells += [] if tuned is None else [("after fine-tuning", tuned[0])]
    variants: tuple[Variant, ...] = ("plain", "prefix")
    scores = {variant: chosen_score(main.records, caption_scores(variant), UNSEEN) for variant in variants}
    if scores["plain"] is None or scores["prefix"] is None:
        return None
    looks = {"plain": ("#777777", False), "prefix": (colour_of("UC"), True)}

    def of(cell: Cell, score: Score) -> Callable[[str], Estimate | None]:
        return lambda code: score_estimate(cell, score, f"caption-{code}")

    panels = []
    for title, cell in cells:
        series = [
            Series(VARIANT_NAMES[variant], looks[variant][0], "o", looks[variant][1], of(cell, score))
            for variant, score in scores.items()
            if score is not None
        ]
        panels.append(Panel(scores["plain"].axis, series, None, scores["plain"].is_share, title))
    return rows_figure(study, panels)
