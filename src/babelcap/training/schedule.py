"""Which legs a run has and which learning rate each of its steps takes: pure functions of the configuration.

cosine  rate(k) = warm-up, then half a cosine over the whole budget; every budget is a leg of its own
wsd     rate(k) = warm-up, then stable, then a straight line down over the last `decay_share` of a budget;
        several budgets branch off one trunk, so that they cost little more than the longest one
"""

import math
from typing import NamedTuple

from babelcap.training.config import ScheduleConfig


class Leg(NamedTuple):
    """A stretch of steps with a folder of its own. A leg with a parent starts from the parent's state at `start`."""

    name: str
    start: int
    end: int
    budget: int | None  # None for a trunk, which is not a result
    parent: str | None = None


def decay_start(budget: int, schedule: ScheduleConfig) -> int:
    return budget - max(1, round(budget * schedule.decay_share))


def plan_legs(budgets: tuple[int, ...], schedule: ScheduleConfig) -> list[Leg]:
    names = {budget: f"budget-{budget:06d}" for budget in budgets}
    if schedule.kind == "cosine" or len(budgets) == 1:
        return [Leg(names[budget], 0, budget, budget) for budget in budgets]
    branches = {budget: decay_start(budget, schedule) for budget in budgets}
    trunk = Leg("trunk", 0, max(branches.values()), None)
    return [trunk] + [Leg(names[budget], branches[budget], budget, budget, "trunk") for budget in budgets]


def branch_steps(legs: list[Leg], parent: Leg) -> set[int]:
    """The steps at which the parent's state has to be kept for its branches."""
    return {leg.start for leg in legs if leg.parent == parent.name}


def rate_factor(step: int, leg: Leg, schedule: ScheduleConfig) -> float:
    """What the learning rate is multiplied by in step `step`, counted from 0."""
    if step < schedule.warmup_steps:
        return (step + 1) / (schedule.warmup_steps + 1)
    if leg.budget is None:
        return 1.0
    start = schedule.warmup_steps
    if schedule.kind == "wsd":
        start = max(start, decay_start(leg.budget, schedule))
    if step < start:
        return 1.0
    progress = (step - start) / max(1, leg.budget - start)
    fall = 0.5 * (1 + math.cos(math.pi * progress)) if schedule.kind == "cosine" else 1 - progress
    return schedule.final_share + (1 - schedule.final_share) * fall


def num_trained_steps(legs: list[Leg]) -> int:
    return sum(leg.end - leg.start for leg in legs)
