"""Frozen image backbones of the `features` encoder: pixels -> maps [batch, channels, height, width], side by side.

A backbone is a row of `BACKBONES` by its `kind`: EfficientNet-Lite0, or any vision model of transformers, whose own
configuration stands under `config`. Pixels come normalised as everywhere here, by ImageNet's mean and deviation; each
backbone has a mean and deviation of its own, and gets its pixels by these.
"""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, AutoModel, PreTrainedConfig

from babelcap.data.feed.images import IMAGENET_MEAN, IMAGENET_STD
from babelcap.models.network.lite_backbone import IMAGE_MEAN, IMAGE_STD, LiteBackbone

LITE, TRANSFORMERS = "efficientnet_lite0", "transformers"


class TransformersBackbone(nn.Module):
    """A vision model of transformers: convolutional, whose last state is a map, or of patches, whose tokens are one."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__()
        self.model = AutoModel.from_config(vision_config(settings["config"]))
        self.num_channels = num_channels(self.model.config)

    def forward(self, pixels: Tensor) -> Tensor:
        states = self.model(pixel_values=pixels).last_hidden_state
        if states.ndim == 4:
            return states
        side = math.isqrt(states.shape[1])  # what stands before the patches are tokens of class and registers
        return states[:, states.shape[1] - side * side :].transpose(1, 2).unflatten(2, (side, side))


class Backbone(NamedTuple):
    module: type[nn.Module]
    takes_settings: bool
    image_mean: tuple[float, ...]
    image_std: tuple[float, ...]


BACKBONES: dict[str, Backbone] = {
    LITE: Backbone(LiteBackbone, False, IMAGE_MEAN, IMAGE_STD),
    TRANSFORMERS: Backbone(TransformersBackbone, True, IMAGENET_MEAN, IMAGENET_STD),
}


def vision_config(values: dict[str, Any]) -> PreTrainedConfig:
    """Of a vision model, or the vision part of one that has text too, such as SigLIP."""
    values = dict(values.get("vision_config", values))
    kind = values.pop("model_type", None)
    if kind is None:
        raise ValueError(
            "a backbone's config has no model_type; take the config.json of a vision model of transformers"
        )
    return AutoConfig.for_model(kind, **values)


def num_channels(config: PreTrainedConfig) -> int:
    """Of the last map: the last stage's width where there are stages, else that of all layers."""
    widths = getattr(config, "hidden_sizes", None) or getattr(config, "embed_dim", None)
    if isinstance(widths, list | tuple):
        return int(widths[-1])
    return int(getattr(config, "hidden_dim", None) or config.hidden_size)


def check_backbones(backbones: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """With the mean and deviation that each kind has where none are given."""
    found = []
    for settings in backbones:
        kind = settings.get("kind")
        if kind not in BACKBONES:
            raise ValueError(f"backbones: kind is '{kind}'; known are {', '.join(BACKBONES)}")
        row = BACKBONES[kind]
        found.append({"image_mean": list(row.image_mean), "image_std": list(row.image_std), **settings})
    return found


class Backbones(nn.Module):
    """All backbones over the same pixels; what each gives is averaged to one grid, and channels stand side by side."""

    def __init__(self, backbones: list[dict[str, Any]], grid: int) -> None:
        super().__init__()
        if not backbones:
            raise ValueError("backbones: none is given; the encoder needs one or more")
        rows = [(BACKBONES[settings["kind"]], settings) for settings in backbones]
        made = [row.module(settings) if row.takes_settings else row.module() for row, settings in rows]
        self.models = nn.ModuleList(made)
        self.statistics = [(settings["image_mean"], settings["image_std"]) for settings in backbones]
        self.grid = grid
        for module in self.modules():
            if isinstance(module, nn.BatchNorm2d):
                module.num_batches_tracked = None  # of training, which never happens here; weights are numbers only

    @property
    def num_channels(self) -> int:
        return int(sum(model.num_channels for model in self.models))  # type: ignore[misc]

    def forward(self, pixels: Tensor) -> Tensor:
        """[batch, 3, height, width] -> [batch, grid * grid, channels of all]."""
        unit = pixels * _column(IMAGENET_STD, pixels) + _column(IMAGENET_MEAN, pixels)
        maps = []
        for model, (mean, deviation) in zip(self.models, self.statistics, strict=True):
            found = model((unit - _column(mean, pixels)) / _column(deviation, pixels))
            maps.append(functional.adaptive_avg_pool2d(found, self.grid))
        return torch.cat(maps, dim=1).flatten(2).transpose(1, 2)


def _column(values: Any, like: Tensor) -> Tensor:
    return torch.tensor(values, dtype=like.dtype, device=like.device).view(1, 3, 1, 1)
