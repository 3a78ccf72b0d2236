"""bench/limits.py and what bench/measure.py calls a share: against sums by hand."""

from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from torch import nn

from babelcap.models.sizing.flops import count_forward, meta_captioner
from babelcap.models.sizing.sizes import size_config

BENCH = Path(__file__).parent.parent / "bench"


@pytest.fixture
def limits(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(BENCH))
    return import_module("limits")


@pytest.fixture
def measure(limits: ModuleType) -> ModuleType:
    return import_module("measure")


def test_state_is_weights_and_for_what_trains_a_gradient_and_two_moments(
    limits: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = nn.Sequential(nn.Linear(10, 3, bias=False), nn.Linear(3, 2, bias=False))  # 30 and 6 weights
    model[0].requires_grad_(False)
    monkeypatch.setattr(limits, "apply_policy", lambda model, policy: model)
    assert limits.state_bytes(model) == 30 * 4 + 6 * (4 + 4 + 8)
    assert limits.state_bytes(model, 4) == 30 * 4 + 6 * (4 + 4 + 4)


def test_operations_are_three_passes_but_one_of_what_is_frozen_and_none_where_it_is_cached(limits: ModuleType) -> None:
    config = size_config("micro-florence-s")
    macs = count_forward(meta_captioner(config), config.image_size_px, 8, 12).macs
    frozen = macs["vision tower"] + macs["projector"]
    trained = macs["total"] - frozen
    assert limits.operations_of_a_step(config, 5, 8, 12) == 2 * 5 * (3 * trained + frozen)
    assert limits.operations_of_a_step(config, 5, 8, 12, cached=True) == 2 * 5 * 3 * trained
    assert frozen > 0


def test_the_nearest_limit_is_the_one_with_the_largest_share(measure: ModuleType) -> None:
    assert measure.nearest_limit({"memory": 0.25, "products": 0.5}) == {"share of limit": 0.5, "limit": "products"}
    assert measure.share_of("memory", 1 / 3) == {"share of limit": 0.333, "limit": "memory"}


def test_a_product_is_held_against_what_it_moves_or_what_it_multiplies(limits: ModuleType) -> None:
    native = import_module("native")
    rates = native.Rates(copied_bytes=1e9, float32=1e9, int8=1e12)
    # one row: 100 x 50 weights of four bytes, 50 numbers read and 100 written, and 10,000 operations: 10 us of a second
    found = native.nearest(rates, 41.2e-6, 100, 50, 1, int8=False)
    assert found == {"share of limit": 0.5, "limit": "copy bandwidth"}
    found = native.nearest(rates, 0.02, 100, 50, 1000, int8=False)  # 1e7 operations are half of 20 ms at 1e9 a second
    assert found == {"share of limit": 0.5, "limit": "plain product of float32"}
