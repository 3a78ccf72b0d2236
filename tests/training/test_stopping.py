"""Early stopping: which budgets are trained, which is the best, and that nothing else changes by it."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from babelcap.config import build_config
from babelcap.coverage import Coverage
from babelcap.errors import UserError
from babelcap.measures import LOSS
from babelcap.models.checkpoints.processor import CaptionProcessor
from babelcap.models.network.captioner import Captioner
from babelcap.records import EvalResult
from babelcap.storage import read_json
from babelcap.training.config import ScheduleConfig, TrainConfig
from babelcap.training.run import Evaluate, train
from babelcap.training.schedule import plan_legs
from babelcap.training.stopping import best_budget, in_turn, is_over, seen_caption_loss

MakeConfig = Callable[..., TrainConfig]


def losses_in_turn(losses: Sequence[float]) -> Evaluate:
    """Of the model before training, then of each budget; French captions, which nobody trains on, would say more."""
    left = iter([9.0, *losses])

    def evaluate(model: Captioner, processor: CaptionProcessor) -> list[EvalResult]:
        loss = next(left)
        per_pair = {"caption-en": loss + 0.1, "caption-de": loss - 0.1, "caption-fr": -loss}
        return [EvalResult(measure=LOSS, split="eval", per_pair=per_pair, per_split={}, num_samples={}, signature={})]

    return evaluate


@pytest.fixture
def config(make_config: MakeConfig) -> TrainConfig:
    settings = make_config(budgets=[2, 4, 6, 8], schedule__kind="wsd", schedule__decay_share=0.5)
    return build_config(TrainConfig, settings.model_dump(mode="json") | {"stopping": {"split": "eval"}})


def test_a_budget_is_trained_as_soon_as_it_can_be() -> None:
    legs = plan_legs((50, 100), ScheduleConfig(kind="wsd", warmup_steps=10, decay_share=0.2))
    assert [(leg.name, leg.end) for leg in in_turn(legs)] == [
        ("trunk", 40), ("budget-000050", 50), ("trunk", 80), ("budget-000100", 100)
    ]  # fmt: skip
    alone = plan_legs((50, 100), ScheduleConfig(kind="cosine"))
    assert in_turn(alone) == alone


def test_when_it_is_over() -> None:
    assert not is_over({1: 3.0}, 1)
    assert not is_over({1: 3.0, 2: 2.0}, 1)
    assert is_over({1: 2.0, 2: 2.0}, 1)  # no better: the shorter one is taken
    assert best_budget({1: 2.0, 2: 2.0}) == 1
    assert not is_over({1: 3.0, 2: 2.0, 3: 2.5}, 2)
    assert is_over({1: 3.0, 2: 2.0, 3: 2.5, 4: 2.1}, 2)


def test_only_seen_captions_count() -> None:
    """(1 + 4) / 2 of English and German; neither French, which is unseen, nor a translation."""
    per_pair = {"caption-en": 1.0, "caption-de": 4.0, "caption-fr": 100.0, "translation-de": 100.0}
    result = EvalResult(measure=LOSS, split="dev", per_pair=per_pair, per_split={}, num_samples={}, signature={})
    assert seen_caption_loss([result], Coverage(), "dev") == 2.5
    with pytest.raises(UserError, match=r"no loss of caption-en, caption-de on split 'val'"):
        seen_caption_loss([result], Coverage(), "val")


def test_longer_budgets_are_left_out(config: TrainConfig, tmp_path: Path) -> None:
    records = train(config, losses_in_turn([3.0, 2.0, 2.5]))
    assert [record.num_steps for record in records] == [2, 4, 6]
    found = read_json(config.output / "best.json")
    assert found == {"split": "eval", "best": 4, "losses": {"2": 3.0, "4": 2.0, "6": 2.5}}
    again = train(config, losses_in_turn([]))  # nothing is left to train or to measure
    assert again == records

    whole = config.model_copy(update={"stopping": None, "output": tmp_path / "whole"})
    train(whole)
    for steps in (2, 4, 6):
        name = f"budget-{steps:06d}/model/model.safetensors"
        left, right = load_file(config.output / name), load_file(whole.output / name)
        assert all(torch.equal(left[key], right[key]) for key in right)


def test_asked_for_what_cannot_be(config: TrainConfig) -> None:
    with pytest.raises(UserError, match="nothing is evaluated: leave --no-evaluate or stopping out"):
        train(config)
    values = config.model_dump(mode="json") | {"stopping": {"split": "dev"}}
    with pytest.raises(UserError, match=r"has no split 'dev' .it has: "):
        train(build_config(TrainConfig, values), losses_in_turn([1.0]))
    assert not list(config.output.rglob("metrics.jsonl"))
