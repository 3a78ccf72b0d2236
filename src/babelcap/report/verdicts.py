"""What a claim is judged by: conditions with stated limits, and a verdict that follows from them and from nothing else.

holds         every condition holds
partly        some of the deciding conditions hold, or all of them but not every target, or some was not measured
does not      no deciding condition holds
not measured  no deciding condition could be judged
A target says how well a claim should hold at this scale; it cannot make up for a deciding condition. What a model that
says nothing at all would meet, such as "seldom the right language without prefix", is a target for that reason.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from babelcap.report.statistics import Estimate

HOLDS, PARTLY, DOES_NOT, NOT_MEASURED = "holds", "partly", "does not", "not measured"
MAX_DECIMALS = 6
VERDICTS = (HOLDS, PARTLY, DOES_NOT, NOT_MEASURED)


@dataclass(frozen=True)
class Condition:
    what: str
    measured: Estimate | None
    needs: str  # in words, with the limit
    holds: bool | None  # None: not measured, or too few runs to say
    is_deciding: bool = True
    decimals: int = 2
    unit: str = ""  # "%": the value is shown as a percentage


@dataclass(frozen=True)
class Claim:
    key: str
    title: str  # what the paper claims
    conditions: tuple[Condition, ...]
    notes: tuple[str, ...] = ()

    @property
    def verdict(self) -> str:
        return verdict_of(self.conditions)


def verdict_of(conditions: Sequence[Condition]) -> str:
    deciding = [condition.holds for condition in conditions if condition.is_deciding]
    if all(held is None for held in deciding):
        return NOT_MEASURED
    if not any(deciding):
        return DOES_NOT
    return HOLDS if all(condition.holds for condition in conditions) else PARTLY


def _limit(limit: float, unit: str = "") -> str:
    return f"{100 * limit:g} %" if unit == "%" else f"{limit:g}".replace("-", "−")


def at_least(
    what: str, measured: Estimate | None, limit: float, is_deciding: bool = False, *, decimals: int = 2, unit: str = ""
) -> Condition:
    """The value itself reaches a limit."""
    holds = None if measured is None or not measured.is_number else measured.value >= limit
    decimals = _telling_decimals(measured, limit, decimals, unit)
    return Condition(what, measured, f"at least {_limit(limit, unit)}", holds, is_deciding, decimals, unit)


def at_most(
    what: str, measured: Estimate | None, limit: float, is_deciding: bool = False, *, decimals: int = 2, unit: str = ""
) -> Condition:
    holds = None if measured is None or not measured.is_number else measured.value <= limit
    decimals = _telling_decimals(measured, limit, decimals, unit)
    return Condition(what, measured, f"at most {_limit(limit, unit)}", holds, is_deciding, decimals, unit)


def _telling_decimals(measured: Estimate | None, limit: float, decimals: int, unit: str) -> int:
    """As many as show on which side of the limit a value lies: 15.04 %, not 15.0 %, is more than 15 %."""
    if measured is None or not math.isfinite(measured.value) or measured.value == limit:
        return decimals
    scale = 100.0 if unit == "%" else 1.0
    while decimals < MAX_DECIMALS and round(scale * measured.value, decimals) == round(scale * limit, decimals):
        decimals += 1
    return decimals


def interval_above(
    what: str, measured: Estimate | None, limit: float | None, name: str = "", is_deciding: bool = True
) -> Condition:
    """The whole interval lies above a limit, such as chance or zero."""
    holds = None if measured is None or limit is None else measured.above(limit)
    shown = "?" if limit is None else f"{limit:.2f}" if limit else "0"
    return Condition(what, measured, f"interval above {name + ' ' if name else ''}{shown}", holds, is_deciding)


def interval_below(what: str, measured: Estimate | None, limit: float, is_deciding: bool = True) -> Condition:
    holds = None if measured is None else measured.below(limit)
    return Condition(what, measured, f"interval below {_limit(limit)}", holds, is_deciding)
