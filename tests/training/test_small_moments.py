"""Moments in bfloat16: steps by hand, rounding that is right in the mean, and runs that are resumed to the bit."""

import copy
import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from babelcap.config import build_config
from babelcap.training.config import OptimiserConfig, TrainConfig
from babelcap.training.cost import run_cost
from babelcap.training.run import train
from babelcap.training.small_moments import MOMENTS, SmallMomentsAdamW, round_by_chance_

MakeConfig = Callable[..., TrainConfig]
FORK = multiprocessing.get_context("fork")
CHANCES = torch.arange(2**16, dtype=torch.int32)  # each that there is, once


def made(values: list[float], **settings: Any) -> tuple[nn.Parameter, SmallMomentsAdamW]:
    parameter = nn.Parameter(torch.tensor(values))
    given = {"lr": 0.1, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.0} | settings
    return parameter, SmallMomentsAdamW([parameter], **given)


def stepped(parameter: nn.Parameter, optimiser: torch.optim.Optimizer, gradient: Tensor) -> None:
    parameter.grad = gradient
    optimiser.step()


@pytest.mark.parametrize(("value", "share"), [(1.0, 0.0), (1 + 2**-9, 0.25), (1 + 2**-8, 0.5), (-1 - 3 * 2**-9, 0.75)])
def test_a_number_goes_to_its_neighbours_as_likely_as_it_is_near(value: float, share: float) -> None:
    """Between 1 and 2 bfloat16 knows steps of 2^-7."""
    found = round_by_chance_(torch.full((2**16,), value), CHANCES)
    assert torch.equal(found.bfloat16().float(), found)
    sign = 1 if value > 0 else -1
    assert set(found.tolist()) <= {sign * 1.0, sign * (1 + 2**-7)}
    assert (found.abs() > 1).float().mean().item() == share
    assert found.double().mean().item() == value


def test_the_first_step_by_hand() -> None:
    """m / (1 - b1) = g and v / (1 - b2) = g^2: a step of the rate against the gradient's sign, after the decay."""
    parameter, optimiser = made([1.0, -2.0, 3.0], weight_decay=0.5)
    stepped(parameter, optimiser, torch.tensor([0.5, -4.0, 0.0]))
    assert parameter.tolist() == pytest.approx([0.95 - 0.1, -1.9 + 0.1, 2.85], abs=1e-6)
    state = optimiser.state[parameter]
    assert [state[name].dtype for name in MOMENTS] == [torch.bfloat16] * 2
    assert state["exp_avg"].tolist() == pytest.approx([0.05, -0.4, 0.0], rel=2**-8)
    assert state["exp_avg_sq"].tolist() == pytest.approx([0.00025, 0.016, 0.0], rel=2**-7)


def test_it_follows_adamw() -> None:
    """Over many steps with drawn gradients, in parts that end within a tensor."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(700, 500, generator=generator)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    settings: dict[str, Any] = {"lr": 1e-2, "betas": (0.9, 0.99), "eps": 1e-8, "weight_decay": 0.1}
    optimisers = SmallMomentsAdamW([ours], **settings), torch.optim.AdamW([theirs], **settings)
    for _ in range(30):
        gradient = torch.randn(start.shape, generator=generator) + start
        for parameter, optimiser in zip((ours, theirs), optimisers, strict=True):
            stepped(parameter, optimiser, gradient.clone())
    moved = (theirs - start).norm()
    assert moved > 10
    assert (ours - theirs).norm() < 0.005 * moved


def test_the_second_moment_does_not_stand_still() -> None:
    """Gradients fall to a tenth: v has to follow, by .1 % a step, which rounding to the nearest would never let it."""
    parameter, optimiser = made([0.0] * 4096)
    nearest = torch.tensor(1.0, dtype=torch.bfloat16)
    exact = 1.0
    stepped(parameter, optimiser, torch.ones(4096))
    optimiser.state[parameter]["exp_avg_sq"].fill_(1.0)
    for _ in range(1500):
        stepped(parameter, optimiser, torch.full((4096,), 0.1))
        nearest = (nearest.float() * 0.999 + 0.001 * 0.01).bfloat16()
        exact = exact * 0.999 + 0.001 * 0.01
    assert exact == pytest.approx(0.2307, abs=1e-4)
    assert optimiser.state[parameter]["exp_avg_sq"].double().mean().item() == pytest.approx(exact, rel=0.01)
    assert nearest.item() == 1.0


def test_what_is_loaded_goes_on_to_the_bit() -> None:
    parameter, optimiser = made([1.0] * 500)
    for number in range(3):
        stepped(parameter, optimiser, torch.linspace(-1, 1, 500) + number)
    other, loaded = made(parameter.tolist())
    loaded.load_state_dict(copy.deepcopy(optimiser.state_dict()))
    for one, its in ((parameter, optimiser), (other, loaded)):
        stepped(one, its, torch.linspace(-1, 2, 500))
    assert torch.equal(parameter, other)
    for name in MOMENTS:
        assert loaded.state[other][name].dtype == torch.bfloat16
        assert torch.equal(loaded.state[other][name], optimiser.state[parameter][name])


def test_a_closure_is_refused() -> None:
    with pytest.raises(ValueError, match="takes no closure"):
        made([1.0])[1].step(lambda: 0.0)


def outcome(config: TrainConfig) -> tuple[list[float], dict[str, Tensor]]:
    folder = config.output / "budget-000020"
    lines = (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["loss"] for line in lines], load_file(folder / "model" / "model.safetensors")


@pytest.mark.parametrize("kind", ["bart", "gemma2"])
def test_a_run_in_two_parts_is_the_whole_run(make_config: MakeConfig, tmp_path: Path, kind: str) -> None:
    exact = make_config(kind)
    train(exact)
    whole = make_config(kind, output=str(tmp_path / "whole"), optimiser__moments="bfloat16")
    train(whole)
    halves = build_config(TrainConfig, whole.model_dump(mode="json") | {"output": str(tmp_path / "halves")})
    halves = halves.model_copy(update={"checkpoint": halves.checkpoint.model_copy(update={"every_steps": 7})})

    def train_and_die() -> None:
        class Died(BaseException):
            pass

        def die(step: int) -> None:
            if step == 9:
                raise Died

        with pytest.raises(Died):
            train(halves, after_step=die)

    process = FORK.Process(target=train_and_die)
    process.start()
    process.join(120)
    assert process.exitcode == 0
    train(halves)
    losses, weights = outcome(whole)
    again, weights_again = outcome(halves)
    assert losses == again
    assert all(torch.equal(weights[name], weights_again[name]) for name in weights)
    assert losses != outcome(exact)[0]
    assert losses == pytest.approx(outcome(exact)[0], rel=0.01)


def test_runs_in_float32_keep_their_hash_and_the_others_have_their_own() -> None:
    assert "moments" not in OptimiserConfig().model_dump()
    assert OptimiserConfig(moments="bfloat16").model_dump()["moments"] == "bfloat16"


def test_the_cost_knows(make_config: MakeConfig) -> None:
    full, small = (
        run_cost(make_config(optimiser__moments=name), 1)["memory_bytes_per_process"]
        for name in ("float32", "bfloat16")
    )
    assert small["optimiser"] * 2 == full["optimiser"]
    assert small["total"] == full["total"] - small["optimiser"]
