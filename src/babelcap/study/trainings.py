"""The one path of training settings: from a study's fragments to the configuration that `babelcap train` takes.

size's defaults <- [training] <- the size's <- the trial's (fine-tuning: the block's <- the size's) <- the study's own
"""

from typing import Any

from babelcap.config import build_config, merge_values
from babelcap.coverage import Coverage
from babelcap.models.sizing.sizes import get_size
from babelcap.study.blocks import FinetuneBlock, SizeSettings
from babelcap.study.config import StudyConfig
from babelcap.training.config import TrainConfig

ELSEWHERE = "set when it is run"  # the model, whose name and place are those of the step before


def train_config(
    config: StudyConfig,
    size: str,
    own: dict[str, Any],
    tried: dict[str, Any] | None = None,
    tuned: FinetuneBlock | None = None,
) -> TrainConfig:
    """`own` is what the study sets: the run's name, seed, budgets, coverage and split, and a control's exchange."""
    of_size = next((found for found in config.sizes if found.size == size), SizeSettings(size=size))
    layers = [
        {"data": {"image_size_px": get_size(size).image_size_px}, "cluster": config.cluster.get("default", {})},
        config.training,
        of_size.training,
        tried or {},
        *([tuned.training, of_size.finetuning] if tuned is not None else []),
        {"model": ELSEWHERE, "output": ELSEWHERE, "data": {"corpus": ELSEWHERE}},
        own,
    ]
    values: dict[str, Any] = {}
    for layer in layers:
        values = merge_values(TrainConfig, values, layer)
    found = build_config(TrainConfig, values, f"training of {own['name']}")
    return _with_present_weights(found, found.coverage)


def _with_present_weights(config: TrainConfig, coverage: Coverage) -> TrainConfig:
    """A table of weights without the pairs that a control leaves out."""
    mixture = config.data.mixture
    if not isinstance(mixture.weights, dict):
        return config
    weights = {pair: weight for pair, weight in mixture.weights.items() if pair in coverage.seen}
    data = config.data.model_copy(update={"mixture": mixture.model_copy(update={"weights": weights})})
    return config.model_copy(update={"data": data})
