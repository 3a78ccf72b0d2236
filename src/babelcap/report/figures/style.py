"""One style for all figures: log axes with units, labels beside the lines, drawn without a screen.

A figure is written whole, as PNG to look at and SVG to print, the same byte for byte each time.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter, NullLocator
from numpy.typing import NDArray

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
CROSS_ENTROPY = "cross-entropy (nats)"
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


def moved_apart(heights: Sequence[float], gap: float) -> list[float]:
    """Heights of labels in their order, no two nearer than the gap, their middle kept where it was."""
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    moved = list(heights)
    for below, above in pairwise(order):
        moved[above] = max(moved[above], moved[below] + gap)
    shift = (sum(moved) - sum(heights)) / max(1, len(moved))
    return [height - shift for height in moved]


def loss_name(*targets: str) -> str:
    """Of our test splits the loss is known; of a user's table only the name of its column."""
    return (
        CROSS_ENTROPY if all(name in TARGET_NAMES for name in targets) else " and ".join(filter(None, targets)) or "y"
    )
