"""The parts of a caption's loss against samples: what is said, how it is worded, and in which language.

Languages never captioned in stand beside those that training captions in: the same model, the same scenes.
"""

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from babelcap.measures import Part
from babelcap.report.figures.captions import budget_ticks, draw_seeds, one_base_a_size
from babelcap.report.figures.style import AXIS_NAMES, drawing, moved_apart
from babelcap.report.study_folder import Cell, Study, loss

LOOKS: dict[Part, tuple[str, str, str]] = {
    "content": ("what is said", "#0072b2", "o"),
    "wording": ("how it is worded", "#d55e00", "s"),
    "language": ("which language", "#767676", "^"),
}
TITLES = {"UC": "captions in languages\nnever captioned in", "SC": "captions in languages\ncaptioned in training"}


def parts_figure(study: Study, main: Cell) -> Figure | None:
    """Of the model that is shown, at each of its budgets."""
    cells = [cell for cell in one_base_a_size(study, main) if cell.key.size == main.key.size]
    cells = [cell for cell in cells if loss(cell, "content", "UC") is not None]
    if len(cells) < 2:
        return None
    with drawing(7.4, 3.5) as figure:
        axes = figure.subplots(1, len(TITLES), sharey=True)
        for panel, (target, title) in zip(axes, TITLES.items(), strict=True):
            _draw(panel, cells, target)
            panel.set_title(title, fontsize=10)
            panel.set_xlabel(AXIS_NAMES["S"])
        axes[0].set_ylabel("share of the loss\n(nats a token of the caption)")
        axes[0].set_ylim(bottom=0)
    return figure


def _draw(panel: Axes, cells: list[Cell], target: str) -> None:
    samples = [cell.key.S for cell in cells]
    panel.set_xscale("log")
    labels: list[tuple[float, str, str]] = []
    for part, (label, colour, marker) in LOOKS.items():
        found = [(cell.key.S, known) for cell in cells if (known := loss(cell, part, target)) is not None]
        if not found:
            continue
        for place, known in found:
            if known.low is not None and known.high is not None:
                panel.plot([place, place], [known.low, known.high], color=colour, linewidth=1, alpha=0.45)
            draw_seeds(panel, place, known, colour)
        panel.plot([S for S, _ in found], [known.value for _, known in found], f"-{marker}", color=colour, markersize=5)
        labels.append((found[-1][1].value, label, colour))
    gap = 0.1 * panel.get_ylim()[1]
    for height, (_, label, colour) in zip(moved_apart([label[0] for label in labels], gap), labels, strict=True):
        panel.annotate(label, (max(samples), height), (8, 0), textcoords="offset points", color=colour, fontsize=9,
                       va="center")  # fmt: skip
    panel.margins(x=0.28)
    panel.set_xlim(min(samples) / 1.15, max(samples) * 2.6)
    budget_ticks(panel, sorted(samples))
