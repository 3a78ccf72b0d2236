"""How numbers are written in the report's page; tables in CSV keep all digits."""

import math

from babelcap.report.statistics import NOTHING_NAMED, Estimate

MISSING = "not measured"


def decimal(value: float | None, decimals: int = 2) -> str:
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "no bound"
    text = f"{value:.{decimals}f}"
    return text.lstrip("-") if float(text) == 0 else text.replace("-", "−")


def estimate(found: Estimate | None, decimals: int = 2, unit: str = "") -> str:
    """0.92 [0.85, 0.96], or what stands in its place."""
    if found is None:
        return MISSING
    if not found.is_number:
        return NOTHING_NAMED
    scale, ending = (100.0, " %") if unit == "%" else (1.0, "")
    text = decimal(scale * found.value, decimals) + ending
    if found.low is None or found.high is None:
        return text
    return f"{text} [{decimal(scale * found.low, decimals)}, {decimal(scale * found.high, decimals)}]"
