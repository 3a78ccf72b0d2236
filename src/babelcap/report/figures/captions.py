"""Figures of a study's captions: their language and content, language by language and by samples.

Each function returns a matplotlib Figure, or None where the runs do not have what it shows.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from babelcap.laws.runs import MAIN
from babelcap.report.claims import BLIND_GUESS, relation_measure
from babelcap.report.figures.style import AXIS_NAMES, GREY, colour_of, drawing, moved_apart, number
from babelcap.report.statistics import NOTHING_NAMED, Estimate
from babelcap.report.study_folder import CONTROLS, FINETUNED, KIND_NAMES, Cell, Study, chance, share

WHITE = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"}
# Light to dark: told apart by their lightness, whatever colours a reader sees.
SHADES = (
    ("#8fc1e3", "#5aa0d0", "#2f7ebc", "#135a9c", "#06336b"),
    ("#f5b07a", "#ea8a44", "#d0641a", "#a34509", "#6b2c04"),
)
FEW_SEEDS = 5  # so many are drawn as dots


class Series(NamedTuple):
    label: str
    colour: str
    marker: str
    is_filled: bool
    of: Callable[[str], Estimate | None]  # a language's value


class Panel(NamedTuple):
    title: str  # of its axis
    series: Sequence[Series]
    chance: float | None = None
    is_share: bool = True
    heading: str = ""


def prefix_figure(study: Study, main: Cell) -> Figure | None:
    """Captions in the right language, language by language, with and without prefix."""

    def of(variant: str) -> Callable[[str], Estimate | None]:
        return lambda code: share(main, "language", variant, f"caption-{code}")

    series = [
        Series("prompt alone", "#555555", "o", False, of("plain")),
        Series("with prefix", colour_of("UC"), "o", True, of("prefix")),
    ]
    return rows_figure(study, [Panel("captions in the right language", series, chance(main, "language"))])


def content_figure(study: Study, main: Cell) -> Figure | None:
    """Objects, colours and relations right, language by language: this method, its controls, fine-tuning and chance."""
    panels = []
    for name in ("objects", "colours", relation_measure(main)):
        series = []
        for kind, colour, marker in zip(CONTROLS, ("#777777", "#8c6d1f"), ("s", "v"), strict=True):
            pair = study.beside(kind, main)
            if pair is not None:
                series.append(Series(KIND_NAMES[kind], colour, marker, False, _content(pair[0], name, "prefix")))
        series.append(Series(KIND_NAMES[MAIN], colour_of("UC"), "o", True, _content(main, name, "prefix")))
        tuned = study.finetuned(main)
        if tuned is not None:
            label = f"{KIND_NAMES[FINETUNED]}, no prefix"
            series.append(Series(label, colour_of("SC"), "D", True, _content(tuned[0], name, "plain")))
        by_chance = chance(main, name) if name in ("objects", "colours") else BLIND_GUESS
        panels.append(Panel(f"{name} right", series, by_chance))
    return rows_figure(study, panels)


def _content(cell: Cell, name: str, variant: str) -> Callable[[str], Estimate | None]:
    return lambda code: share(cell, name, variant, f"caption-{code}")


def rows_figure(study: Study, panels: Sequence[Panel]) -> Figure | None:
    """One row a language, seen ones above; one marker a series, with its interval."""
    codes, unseen = study.caption_languages, set(study.unseen_languages)
    found = [part for panel in panels for one in panel.series for code in codes if (part := one.of(code)) is not None]
    if not found:
        return None
    end = max((part.value if part.high is None else part.high for part in found if part.is_number), default=0) or 1.0
    num_seen = sum(code not in unseen for code in codes)
    heights = [-place - (0.6 if code in unseen else 0.0) for place, code in enumerate(codes)]
    width = 6.0 if len(panels) == 1 else 1.6 + 2.7 * len(panels)
    with drawing(width, 1.5 + 0.56 * len(codes)) as figure:
        axes = np.atleast_1d(figure.subplots(1, len(panels), sharey=True))
        for panel, (title, series, by_chance, is_share, heading) in zip(axes, panels, strict=True):
            reach = min(0.24, 0.07 * len(series)) if len(series) > 1 else 0.0
            offsets = np.linspace(reach, -reach, len(series))
            for one, offset in zip(series, offsets, strict=True):
                _draw_series(panel, one, codes, [height + offset for height in heights])
            if by_chance is not None:
                panel.axvline(by_chance, color=GREY, linewidth=0.9, linestyle=":")
                panel.annotate(
                    "chance", (by_chance, heights[-1] - 0.5), (3, 0), textcoords="offset points", fontsize=7.5,
                    color=GREY, va="center",
                )  # fmt: skip
            if is_share:
                _share_axis(panel.xaxis, panel.set_xlim)
            else:
                panel.set_xlim(-0.02 * end, 1.04 * end)
            panel.set_xlabel(title)
            panel.set_title(heading, fontsize=9)
            panel.grid(False, axis="y")
        for height, text, count in (
            (0.55, "captioned in training", num_seen),
            (-num_seen - 0.05, "never captioned", 1),
        ):
            if count:
                axes[0].text(-0.02, height, text, fontsize=7.5, color=GREY, ha="right", va="center",
                             transform=axes[0].get_yaxis_transform())  # fmt: skip
        axes[0].set_yticks(heights, [study.language_name(code) for code in codes])
        axes[0].set_ylim(heights[-1] - 0.65, 0.75)
        handles, labels = axes[0].get_legend_handles_labels()
        colours = [one.colour for one in panels[0].series]
        figure.legend(handles, labels, loc="outside upper left", ncols=2, frameon=False, labelcolor=colours)
    return figure


def _draw_series(panel: Axes, one: Series, codes: Sequence[str], heights: Sequence[float]) -> None:
    found = [(height, part) for height, code in zip(heights, codes, strict=True) if (part := one.of(code)) is not None]
    for height in [height for height, part in found if not part.is_number]:
        panel.text(0.01, height, NOTHING_NAMED, fontsize=6.5, color=one.colour, va="center")
    found = [(height, part) for height, part in found if part.is_number]
    if not found:
        return  # no line without points: the layout would look for its place in vain
    for height, part in found:
        if part.low is not None and part.high is not None:
            panel.plot([part.low, part.high], [height, height], color=one.colour, linewidth=1.1, alpha=0.6)
    panel.plot(
        [part.value for _, part in found], [height for height, _ in found], one.marker, color=one.colour, markersize=5,
        markerfacecolor=one.colour if one.is_filled else "white", label=one.label, linestyle="none", clip_on=False,
        zorder=3,
    )  # fmt: skip


def _share_axis(axis: object, limits: Callable[[float, float], object]) -> None:
    limits(-0.02, 1.02)
    axis.set_ticks([0, 0.25, 0.5, 0.75, 1])  # type: ignore[attr-defined]
    axis.set_major_formatter(PercentFormatter(1, decimals=0))  # type: ignore[attr-defined]


def size_colours(study: Study) -> dict[str, str]:
    """Blue for one family, brown for the other, darker for larger."""
    sizes: dict[str, dict[str, int]] = {}
    for record in study.records:
        sizes.setdefault(record.family, {})[record.size] = record.P
    colours = {}
    for place, family in enumerate(sorted(sizes, key=lambda family: -max(sizes[family].values()))):
        ordered = sorted(sizes[family], key=lambda size: sizes[family][size], reverse=True)
        shades = SHADES[place % 2]
        step = 2 if len(ordered) <= 3 else 1
        for rank, size in enumerate(ordered):
            colours[size] = shades[max(0, len(shades) - 1 - step * rank)]
    return colours


BUDGET_PANELS = (
    ("language", "plain", "right language, prompt alone"),
    ("language", "prefix", "right language, prefix"),
    ("objects", "prefix", "objects right, prefix"),
    ("found", "prefix", "own photograph in the first ten"),
)


def budget_figure(study: Study, main: Cell) -> Figure | None:
    """How language and content come with samples, model by model, in unseen languages."""
    cells = one_base_a_size(study, main)
    panels = [panel for panel in BUDGET_PANELS if any(share(cell, *panel[:2]) for cell in cells)]
    if not panels:
        return None
    with drawing(1.0 + 2.6 * len(panels), 3.2) as figure:
        axes = np.atleast_1d(figure.subplots(1, len(panels), sharey=True))
        for panel, (name, variant, title) in zip(axes, panels, strict=True):
            lines = lines_by_size(study, cells, lambda cell, n=name, v=variant: share(cell, n, v))  # type: ignore[misc]
            draw_lines(panel, study, lines)
            by_chance = chance(main, name)
            if by_chance is not None:
                panel.axhline(by_chance, color=GREY, linewidth=0.9, linestyle=":")
                panel.annotate("chance", (0.98, by_chance), (0, 3), xycoords=("axes fraction", "data"), ha="right",
                               textcoords="offset points", fontsize=7.5, color=GREY, bbox=WHITE)  # fmt: skip
            panel.set_title(title, fontsize=9)
        _share_axis(axes[0].yaxis, axes[0].set_ylim)
        _label_ends(axes[-1], study)
    return figure


def _label_ends(panel: Axes, study: Study) -> None:
    """The sizes' names beside their lines, moved apart where they would touch."""
    parameters = {record.size: record.P for record in study.records}
    lines = [line for line in panel.get_lines() if not str(line.get_label()).startswith("_")]
    ends = sorted((float(np.asarray(line.get_ydata())[-1]), str(line.get_label())) for line in lines)
    colours, heights = size_colours(study), moved_apart([height for height, _ in ends], 0.085)
    for height, (_, label) in zip(heights, ends, strict=True):
        size = next(name for name in parameters if label.startswith(name.removeprefix("micro-") + " "))
        panel.annotate(label.removesuffix(" parameters)").replace("(", "") , (1.02, height),
                       xycoords=("axes fraction", "data"), color=colours[size], fontsize=8.5, va="center",
                       annotation_clip=False)  # fmt: skip


def one_base_a_size(study: Study, main: Cell) -> list[Cell]:
    """Main cells of the headline's base; of sizes that have no such run, of their first base."""
    chosen: dict[str, str] = {}
    for cell in study.cells(MAIN):
        if cell.key.base == main.key.base or cell.key.size not in chosen:
            chosen[cell.key.size] = cell.key.base
    return [cell for cell in study.cells(MAIN) if chosen[cell.key.size] == cell.key.base]


def lines_by_size(
    study: Study, cells: Sequence[Cell], of: Callable[[Cell], Estimate | None]
) -> dict[str, list[tuple[int, Estimate]]]:
    lines: dict[str, list[tuple[int, Estimate]]] = {}
    for cell in cells:
        found = of(cell)
        if found is not None and found.is_number:
            lines.setdefault(cell.key.size, []).append((cell.key.S, found))
    return {size: sorted(points, key=lambda point: point[0]) for size, points in lines.items()}


def draw_lines(panel: Axes, study: Study, lines: dict[str, list[tuple[int, Estimate]]]) -> None:
    colours, samples = size_colours(study), [S for points in lines.values() for S, _ in points]
    spread = np.linspace(-0.03, 0.03, len(lines)) if len(lines) > 1 else [0.0]
    parameters = {record.size: record.P for record in study.records}
    for (size, points), shift in zip(lines.items(), spread, strict=True):
        # Side by side, so that intervals at one budget do not hide each other.
        x = np.array([S * np.exp(shift) for S, _ in points])
        for place, (_, found) in zip(x, points, strict=True):
            if found.low is not None and found.high is not None:
                panel.plot([place, place], [found.low, found.high], color=colours[size], linewidth=1, alpha=0.45)
            draw_seeds(panel, float(place), found, colours[size])
        label = f"{size.removeprefix('micro-')} ({number(parameters[size])} parameters)"
        panel.plot(x, [found.value for _, found in points], "-o", color=colours[size], markersize=4.5, label=label)
    panel.set_xscale("log")
    panel.set_xlabel(AXIS_NAMES["S"])
    budget_ticks(panel, sorted(set(samples)))


def draw_seeds(panel: Axes, place: float, found: Estimate, colour: str) -> None:
    """Each seed as a small dot, where there are few."""
    if 1 < len(found.seeds) <= FEW_SEEDS:
        panel.plot([place] * len(found.seeds), found.seeds, ".", color=colour, markersize=4, alpha=0.6)


def budget_ticks(panel: Axes, budgets: Sequence[int]) -> None:
    """The budgets themselves, but for those so near the next that the labels would touch."""
    kept: list[int] = []
    for budget in reversed(budgets):
        if not kept or kept[-1] / budget > 1.55:
            kept.append(budget)
    panel.set_xticks(kept, [number(budget) for budget in kept])
    panel.xaxis.set_minor_locator(NullLocator())


def size_legend(figure: Figure, panel: Axes) -> None:
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=3, frameon=False, fontsize=8)
