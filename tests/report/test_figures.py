"""Figures are drawn for every kind of law, written whole, and the same byte for byte each time."""

import re
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from babelcap.laws import Fit, fit, frontier, published
from babelcap.report.figures import law_figures
from babelcap.report.figures.iso_loss import iso_loss_map
from babelcap.report.figures.laws import bootstrap_corner, compute_frontier, loss_panels, residual_panels
from babelcap.report.figures.style import log_axis, number, save


@pytest.fixture(scope="module")
def columns() -> dict[str, np.ndarray]:
    P, S = np.meshgrid([428.8e6, 1039.7e6, 3485e6, 11221.8e6], np.array([500.0, 2000.0, 5000.0, 10000.0]) * 1024)
    generator = np.random.default_rng(1)
    found = {"P": P.ravel(), "S": S.ravel(), "T": generator.uniform(3, 8, 16)}
    return found | {"F": 150 * found["P"], "Pt": found["P"] / 2, "C": found["S"] * 225 * found["P"]}


@pytest.fixture(scope="module")
def fits(columns: dict[str, np.ndarray]) -> dict[str, Fit]:
    generator = np.random.default_rng(2)
    found = {}
    for name, exponents in {"UC": (-0.1, -0.04, 0.5), "ST": (-0.1, -0.2, 0.3), "SC": (-0.12, -0.15, 0.1)}.items():
        y = 50 * columns["P"] ** exponents[0] * columns["S"] ** exponents[1] * columns["T"] ** exponents[2]
        noise = np.exp(0.02 * generator.standard_normal(16))
        found[name] = fit("pst", columns, y * noise, target=name, num_bootstrap=60)
    return found


def texts(figure: object) -> str:
    from matplotlib.text import Text

    return "\n".join(text.get_text() for text in figure.findobj(Text))  # type: ignore[attr-defined]


def test_loss_panels_name_their_axes_and_targets(fits: dict[str, Fit]) -> None:
    figure = loss_panels(fits)
    assert len(figure.axes) == 3
    assert [axes.get_xlabel().split()[0] for axes in figure.axes] == ["parameters", "training", "cross-entropy"]
    shown = texts(figure)
    assert "nats" in shown
    for name in ("UC\nunseen captioning", "ST\nseen translation", "SC\nseen captioning"):
        assert name in shown


def test_figures_of_a_table_bear_the_name_of_its_column(columns: dict[str, np.ndarray]) -> None:
    y = 50 * columns["P"] ** -0.1 * columns["S"] ** -0.04 * np.exp(0.02 * np.random.default_rng(5).standard_normal(16))
    fitted = fit("ps", columns, y, target="error_rate", num_bootstrap=60)
    for figure in (loss_panels({"error_rate": fitted}), residual_panels(fitted), iso_loss_map(fitted)):
        shown = texts(figure)
        assert "error_rate" in shown
        assert "UC" not in shown
        assert "cross-entropy" not in shown


def test_the_law_runs_through_the_moved_points(fits: dict[str, Fit]) -> None:
    """In a panel each point stands above or below the line by its residual, no more."""
    axes = loss_panels({"UC": fits["UC"]}).axes[0]
    line, dots = axes.get_lines()[0], axes.get_lines()[1]
    height = np.exp(np.interp(np.log(dots.get_xdata()), np.log(line.get_xdata()), np.log(line.get_ydata())))
    assert np.log(dots.get_ydata() / height) == pytest.approx(fits["UC"].residuals, abs=1e-3)


def test_every_figure_twice_is_the_same_file(columns: dict[str, np.ndarray], tmp_path: Path) -> None:
    y = 100 * columns["C"] ** -0.1 * np.exp(0.1 * np.random.default_rng(3).standard_normal(16))
    fits = {"UC": fit("compute", columns, y, target="UC", num_bootstrap=60)}
    first, again = law_figures(fits, tmp_path / "a"), law_figures(fits, tmp_path / "b")
    assert [path.name for path in first] == [path.name for path in again]
    assert len(first) == 6
    for left, right in zip(first, again, strict=True):
        assert left.read_bytes() == right.read_bytes()
        if left.suffix == ".svg":
            assert not re.search(r"<dc:date>|matplotlib v", left.read_text(encoding="utf-8"), re.I)
        else:
            with Image.open(left) as image:
                assert image.size[0] > 500
                assert not {"Software", "date"} & set(image.info)


def test_compute_frontier_marks_the_frontier(columns: dict[str, np.ndarray]) -> None:
    y = 100 * columns["C"] ** -0.1 * np.exp(0.1 * np.random.default_rng(3).standard_normal(16))
    y[np.argmax(columns["C"])] *= 1.5
    fitted = fit("compute", columns, y, frontier_only=True, target="UC")
    figure = compute_frontier({"UC": fitted}, {"UC": {"C": columns["C"], "P": columns["P"], "y": y}})
    marked = [line for line in figure.axes[0].get_lines() if line.get_linestyle() == "None"]
    assert len(marked[0].get_xdata()) == len(fitted.points)
    best, last = frontier({"C": columns["C"]}, y), fitted.points.columns["C"].max()
    law = next(line for line in figure.axes[0].get_lines() if line.get_linewidth() == 1.6)
    assert law.get_xdata().max() == pytest.approx(columns["C"][best].max()) == pytest.approx(last)
    assert sorted(marked[1].get_xdata()) == sorted(columns["C"][columns["C"] > last])
    assert len(marked[1].get_xdata()) > 0
    assert "11.2 B" in texts(figure)


def test_laws_with_a_floor_and_published_ones_can_be_drawn(columns: dict[str, np.ndarray], tmp_path: Path) -> None:
    y = (1.8 + 482 / columns["P"] ** 0.35 + 2085 / columns["S"] ** 0.37) * np.exp(
        0.005 * np.random.default_rng(4).standard_normal(16)
    )
    fitted = fit("chinchilla", columns, y, num_bootstrap=60)
    for figure in (residual_panels(fitted), bootstrap_corner(fitted), iso_loss_map(fitted)):
        assert texts(figure)
    assert "equal compute" in texts(iso_loss_map(published("paper-v1", "UC")))
    assert "log10 A" in texts(bootstrap_corner(fitted))


def test_a_failed_save_leaves_nothing(fits: dict[str, Fit], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = residual_panels(fits["UC"])

    def fail(*_arguments: object, **_settings: object) -> None:
        raise OSError("disk")

    monkeypatch.setattr(figure, "savefig", fail)
    with pytest.raises(OSError, match="disk"):
        save(figure, tmp_path, "x")
    assert not list(tmp_path.iterdir())


def test_numbers_as_people_write_them() -> None:
    assert [number(value) for value in (0.7, 512e3, 1.0397e9, 11221.8e6, 1e12)] == [
        "0.7",
        "512 k",
        "1.04 B",
        "11.2 B",
        "1 T",
    ]


@pytest.mark.parametrize("span", [(0.52, 0.7), (2.0, 9.0), (4e8, 1.1e10), (1e5, 1e9), (2.58, 2.61)])
def test_an_axis_has_a_few_ticks(span: tuple[float, float]) -> None:
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    axes.set_xscale("log")
    axes.set_xlim(*span)
    log_axis(axes.xaxis, np.array(span))
    inside = [tick for tick in axes.xaxis.get_majorticklocs() if 0.95 * span[0] <= tick <= 1.05 * span[1]]
    assert 2 <= len(inside) <= 10
