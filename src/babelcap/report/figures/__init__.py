"""Figures of laws and of studies. Imports without torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from babelcap.laws import Fit
from babelcap.laws.points import with_compute
from babelcap.report.figures.iso_loss import iso_loss_map
from babelcap.report.figures.laws import bootstrap_corner, compute_frontier, loss_panels, residual_panels
from babelcap.report.figures.style import save


def law_figures(
    fits: Mapping[str, Fit], folder: str | Path, runs: Mapping[str, Mapping[str, Any]] | None = None
) -> list[Path]:
    """All figures that these fits allow, written to a folder; `runs` holds all points for a fit of the frontier."""
    paths = []
    first = next(iter(fits.values()))
    points = {name: with_compute(dict(columns)) for name, columns in (runs or {}).items()}
    if first.form.columns == ("C",) and points and all({"C", "P"} <= set(columns) for columns in points.values()):
        paths += save(compute_frontier(fits, points), folder, "compute_frontier")
    else:
        paths += save(loss_panels(fits), folder, "loss")
    for name, fitted in fits.items():
        ending = f"_{name}" if name else ""
        paths += save(residual_panels(fitted), folder, f"residuals{ending}")
        paths += save(bootstrap_corner(fitted), folder, f"bootstrap{ending}")
        if {"P", "S"} <= set(fitted.form.columns):
            paths += save(iso_loss_map(fitted), folder, f"iso_loss{ending}")
    return paths
