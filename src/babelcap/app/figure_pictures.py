"""Figures of the report as bytes for a page, in the report's style."""

import io

import matplotlib
from matplotlib.figure import Figure

from babelcap.report.figures.style import STYLE


def figure_png(figure: Figure) -> bytes:
    stream = io.BytesIO()
    with matplotlib.rc_context(STYLE):
        figure.savefig(stream, format="png", metadata={"Software": None})
    return stream.getvalue()
