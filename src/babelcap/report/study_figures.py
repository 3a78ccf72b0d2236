"""Figures of a study's captions and losses, in the style of the law figures: the poster's 3, 4 and 5 in small.

Each function returns a matplotlib Figure, or None where the runs do not have what it shows.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PathCollection
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator, PercentFormatter

from babelcap.report.claims import gap_values
from babelcap.report.figures import AXIS_NAMES, GREY, TARGET_NAMES, colour_of, drawing, log_axis, number
from babelcap.report.law_claims import HELD_OUT_TARGET
from babelcap.report.reading import CONTROLS, FINETUNED, KIND_NAMES, MAIN, Cell, Study, chance, share, value
from babelcap.report.statistics import Estimate, over_seeds
from babelcap.report.study_laws import StudyLaws, held_out_budget

WHITE = {"boxstyle": "round,pad=0.1", "facecolor": "white", "edgecolor": "none"}
SIZE_COLOURS = ("#9ecae1", "#4292c6", "#08519c", "#fdae6b", "#e6550d", "#8c2d04", "#969696", "#525252")


class Series(NamedTuple):
    label: str
    colour: str
    marker: str
    is_filled: bool
    of: Callable[[str], Estimate | None]  # a language's value


def language_names(study: Study) -> dict[str, str]:
    return {language.code: language.name.removeprefix("simplified ") for language in study.coverage.languages}


def prefix_figure(study: Study, main: Cell) -> Figure | None:
    """Captions in the right language, language by language, with and without prefix and shortlist."""

    def of(variant: str) -> Callable[[str], Estimate | None]:
        return lambda code: share(main, "language", variant, f"caption-{code}")

    series = [
        Series("prompt alone", "#777777", "o", False, of("plain")),
        Series("with shortlist", colour_of("ST"), "^", False, of("shortlist")),
        Series("with prefix", colour_of("UC"), "o", True, of("prefix")),
        Series("with both", colour_of("SC"), "D", True, of("prefix+shortlist")),
    ]
    return _rows_figure(study, [("captions in the right language", series, chance(main, "language"))])


def content_figure(study: Study, main: Cell) -> Figure | None:
    """Objects and colours right, language by language: this method, its controls, fine-tuning and chance."""
    panels = []
    for name, title in (("objects", "objects right"), ("colours", "colours right")):
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
        panels.append((title, series, chance(main, name)))
    return _rows_figure(study, panels)


def _content(cell: Cell, name: str, variant: str) -> Callable[[str], Estimate | None]:
    return lambda code: share(cell, name, variant, f"caption-{code}")


def _rows_figure(study: Study, panels: Sequence[tuple[str, Sequence[Series], float | None]]) -> Figure | None:
    """One row a language, seen ones above; one marker a series, with its interval."""
    codes, unseen = study.caption_languages, set(study.unseen_languages)
    if not any(one.of(code) for _, series, _ in panels for one in series for code in codes):
        return None
    names = language_names(study)
    num_seen = sum(code not in unseen for code in codes)
    heights = [-place - (0.6 if code in unseen else 0.0) for place, code in enumerate(codes)]
    with drawing(2.6 + 3.4 * len(panels), 1.5 + 0.56 * len(codes)) as figure:
        axes = np.atleast_1d(figure.subplots(1, len(panels), sharey=True))
        for panel, (title, series, by_chance) in zip(axes, panels, strict=True):
            offsets = np.linspace(0.24, -0.24, len(series)) if len(series) > 1 else [0.0]
            for one, offset in zip(series, offsets, strict=True):
                _draw_series(panel, one, codes, [height + offset for height in heights])
            if by_chance is not None:
                panel.axvline(by_chance, color=GREY, linewidth=0.9, linestyle=":")
                panel.annotate(
                    "chance", (by_chance, heights[-1] - 0.5), (3, 0), textcoords="offset points", fontsize=7.5,
                    color=GREY, va="center",
                )  # fmt: skip
            _share_axis(panel.xaxis, panel.set_xlim)
            panel.set_xlabel(title)
            panel.grid(False, axis="y")
        for height, text, count in (
            (0.55, "captioned in training", num_seen),
            (-num_seen - 0.05, "never captioned", 1),
        ):
            if count:
                axes[0].text(-0.02, height, text, fontsize=7.5, color=GREY, ha="right", va="center",
                             transform=axes[0].get_yaxis_transform())  # fmt: skip
        axes[0].set_yticks(heights, [names[code] for code in codes])
        axes[0].set_ylim(heights[-1] - 0.65, 0.75)
        handles, labels = axes[0].get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside upper left", ncols=2, frameon=False, fontsize=8.5)
    return figure


def _draw_series(panel: Axes, one: Series, codes: Sequence[str], heights: Sequence[float]) -> None:
    found = [(height, part) for height, code in zip(heights, codes, strict=True) if (part := one.of(code)) is not None]
    if not found:
        return
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
        shades = SIZE_COLOURS[3 * (place % 2) : 3 * (place % 2) + 3]
        ordered = sorted(sizes[family], key=lambda size: sizes[family][size], reverse=True)
        for rank, size in enumerate(ordered):
            colours[size] = shades[max(0, 2 - rank)]
    return colours


def budget_figure(study: Study, main: Cell) -> Figure | None:
    """How language and content come with samples, model by model, in unseen languages."""
    panels = (("language", "plain", "right language, prompt alone"), ("language", "prefix", "right language, prefix"),
              ("objects", "prefix", "objects right, prefix"))  # fmt: skip
    cells = _one_base_a_size(study, main)
    if not any(share(cell, name, variant) for cell in cells for name, variant, _ in panels):
        return None
    with drawing(8.2, 3.3) as figure:
        axes = figure.subplots(1, len(panels), sharey=True)
        for panel, (name, variant, title) in zip(axes, panels, strict=True):
            lines = _lines_by_size(study, cells, lambda cell, n=name, v=variant: share(cell, n, v))  # type: ignore[misc]
            _draw_lines(panel, study, lines)
            by_chance = chance(main, name)
            if by_chance is not None:
                panel.axhline(by_chance, color=GREY, linewidth=0.9, linestyle=":")
                panel.annotate("chance", (0.98, by_chance), (0, 3), xycoords=("axes fraction", "data"), ha="right",
                               textcoords="offset points", fontsize=7.5, color=GREY, bbox=WHITE)  # fmt: skip
            panel.set_title(title, fontsize=9)
        _share_axis(axes[0].yaxis, axes[0].set_ylim)
        _size_legend(figure, axes[0])
    return figure


def _one_base_a_size(study: Study, main: Cell) -> list[Cell]:
    """Main cells of the headline's base; of sizes that have no such run, of their first base."""
    chosen: dict[str, str] = {}
    for cell in study.cells(MAIN):
        if cell.key.base == main.key.base or cell.key.size not in chosen:
            chosen[cell.key.size] = cell.key.base
    return [cell for cell in study.cells(MAIN) if chosen[cell.key.size] == cell.key.base]


def _lines_by_size(
    study: Study, cells: Sequence[Cell], of: Callable[[Cell], Estimate | None]
) -> dict[str, list[tuple[int, Estimate]]]:
    lines: dict[str, list[tuple[int, Estimate]]] = {}
    for cell in cells:
        found = of(cell)
        if found is not None:
            lines.setdefault(cell.key.size, []).append((cell.key.S, found))
    return {size: sorted(points, key=lambda point: point[0]) for size, points in lines.items()}


def _draw_lines(panel: Axes, study: Study, lines: dict[str, list[tuple[int, Estimate]]]) -> None:
    colours, samples = size_colours(study), [S for points in lines.values() for S, _ in points]
    spread = np.linspace(-0.03, 0.03, len(lines)) if len(lines) > 1 else [0.0]
    parameters = {record.size: record.P for record in study.records}
    for (size, points), shift in zip(lines.items(), spread, strict=True):
        # Side by side, so that intervals at one budget do not hide each other.
        x = np.array([S * np.exp(shift) for S, _ in points])
        for place, (_, found) in zip(x, points, strict=True):
            if found.low is not None and found.high is not None:
                panel.plot([place, place], [found.low, found.high], color=colours[size], linewidth=1, alpha=0.55)
        label = f"{size.removeprefix('micro-')} ({number(parameters[size])} parameters)"
        panel.plot(x, [found.value for _, found in points], "-o", color=colours[size], markersize=4, label=label)
    panel.set_xscale("log")
    panel.set_xlabel(AXIS_NAMES["S"])
    _budget_ticks(panel, sorted(set(samples)))


def _budget_ticks(panel: Axes, budgets: Sequence[int]) -> None:
    """The budgets themselves, but for those so near the next that the labels would touch."""
    kept: list[int] = []
    for budget in reversed(budgets):
        if not kept or kept[-1] / budget > 1.55:
            kept.append(budget)
    panel.set_xticks(kept, [number(budget) for budget in kept])
    panel.xaxis.set_minor_locator(NullLocator())


def _size_legend(figure: Figure, panel: Axes) -> None:
    handles, labels = panel.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper left", ncols=3, frameon=False, fontsize=8)


def gap_figure(study: Study, main: Cell) -> Figure | None:
    """What another picture costs, in nats: zero means that the model does not look."""
    cells = _one_base_a_size(study, main)
    targets = [target for target in ("UC", "SC") if any(gap_values(cell, target) for cell in cells)]
    if not targets:
        return None
    with drawing(0.6 + 3.6 * len(targets), 3.3) as figure:
        axes = np.atleast_1d(figure.subplots(1, len(targets), sharey=True))
        for panel, target in zip(axes, targets, strict=True):
            lines = _lines_by_size(study, cells, lambda cell, t=target: over_seeds(gap_values(cell, t)))  # type: ignore[misc]
            _draw_lines(panel, study, lines)
            for kind, marker in zip(CONTROLS, ("s", "v"), strict=True):
                pair = study.beside(kind, main)
                found = None if pair is None else over_seeds(gap_values(pair[0], target))
                if pair is not None and found is not None:
                    panel.plot(pair[0].key.S, found.value, marker, color="#333333", markerfacecolor="white",
                               markersize=6, zorder=4, label=KIND_NAMES[kind])  # fmt: skip
            panel.axhline(0, color=GREY, linewidth=0.9)
            panel.set_title(f"{target}: {TARGET_NAMES[target]}", fontsize=9)
        axes[0].set_ylabel("loss with another picture\nless loss with the own (nats)")
        _size_legend(figure, axes[0])
    return figure


def content_against_loss(study: Study) -> Figure | None:
    """Every run of the grid: objects right against the loss of unseen captioning, prefix given."""
    colours, shown = size_colours(study), set()
    points = []
    for record in study.records:
        if record.extra.get("kind", MAIN) != MAIN:
            continue
        loss = value(record, "cross_entropy/sample_mean/conditioned", "UC")
        content = value(record, "captions/objects/prefix", "UC")
        if loss is not None and content is not None:
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
    for target in ("UC", "ST", "SC"):
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
