"""Legs and learning rates are pure functions of the configuration."""

import pytest

from babelcap.training.config import ScheduleConfig
from babelcap.training.schedule import Leg, branch_steps, num_trained_steps, plan_legs, rate_factor

WSD = ScheduleConfig(kind="wsd", warmup_steps=10, decay_share=0.2)
COSINE = ScheduleConfig(kind="cosine", warmup_steps=10)


def test_cosine_budgets_are_runs_of_their_own() -> None:
    legs = plan_legs((50, 100), COSINE)
    assert [(leg.start, leg.end, leg.parent) for leg in legs] == [(0, 50, None), (0, 100, None)]


def test_wsd_budgets_branch_off_one_trunk() -> None:
    legs = plan_legs((50, 100, 200), WSD)
    assert legs[0] == Leg("trunk", 0, 160, None)
    assert [(leg.start, leg.end) for leg in legs[1:]] == [(40, 50), (80, 100), (160, 200)]
    assert branch_steps(legs, legs[0]) == {40, 80, 160}
    assert num_trained_steps(legs) == 160 + 10 + 20 + 40  # against 350 for three runs of their own


def test_wsd_branch_and_single_run_take_the_same_rates() -> None:
    single = plan_legs((100,), WSD)[0]
    trunk, *branches = plan_legs((100, 200), WSD)
    branch = branches[0]
    for step in range(100):
        leg = trunk if step < branch.start else branch
        assert rate_factor(step, leg, WSD) == rate_factor(step, single, WSD)


@pytest.mark.parametrize("schedule", [COSINE, WSD], ids=["cosine", "wsd"])
def test_rate_rises_to_one_and_falls_towards_the_end(schedule: ScheduleConfig) -> None:
    leg = plan_legs((100,), schedule)[0]
    rates = [rate_factor(step, leg, schedule) for step in range(100)]
    assert rates[:10] == sorted(rates[:10])
    assert 0 < rates[0] < 0.1
    assert max(rates) == 1.0 == rates[10]
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert 0 < rates[-1] < 0.06


def test_final_share_is_where_the_rate_ends() -> None:
    schedule = ScheduleConfig(kind="cosine", warmup_steps=0, final_share=0.1)
    leg = plan_legs((1000,), schedule)[0]
    assert rate_factor(999, leg, schedule) == pytest.approx(0.1, abs=1e-4)
