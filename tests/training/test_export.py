"""A captioner out of a training that was stopped: what its last checkpoint holds."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from babelcap.errors import UserError
from babelcap.models.checkpoints.loading import load_model
from babelcap.training.config import TrainConfig
from babelcap.training.export import export_checkpoint
from babelcap.training.run import train


class Stopped(Exception):
    pass


def stop_after(number: int) -> Callable[[int], None]:
    def after_step(step: int) -> None:
        if step == number:
            raise Stopped

    return after_step


def test_a_stopped_training_gives_what_it_had_learnt(make_config: Callable[..., TrainConfig], tmp_path: Path) -> None:
    config = make_config(budgets=[4], checkpoint__every_steps=2)
    with pytest.raises(UserError, match="has no checkpoint"):
        export_checkpoint(config, tmp_path / "none")
    with pytest.raises(Stopped):
        train(config, after_step=stop_after(3))
    assert export_checkpoint(config, tmp_path / "model") == 2
    before, after = load_model(config.model).state_dict(), load_model(tmp_path / "model").state_dict()
    assert any(not torch.equal(before[name], after[name]) for name in before)
    assert load_model(tmp_path / "model").config.coverage is not None  # what it was taught is told with it
