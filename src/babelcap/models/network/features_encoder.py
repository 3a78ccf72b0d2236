"""The encoder over frozen image features: backbones -> grid of features -> small transformer with the prompt.

states = mBART([W_i mean(f); W_i f_1 ... W_i f_n; W_p e_1 ... W_p e_m]): f are the features of the grid's positions,
which never change and can be kept, and e the decoder's own embeddings of the prompt. W_i, W_p and the layers train.
The layers have their norms before them, as mBART's: with BART's, which stand behind, the states of all pictures became
one in the first hundred steps, and what does not tell pictures apart gets no gradient that would.
"""

from typing import Any, ClassVar

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers import MBartConfig, PreTrainedConfig
from transformers.models.mbart.modeling_mbart import MBartEncoder

from babelcap.models.network.backbones import Backbones, check_backbones
from babelcap.models.network.encoder import SPATIAL_MEAN, TEMPORAL_MEAN
from babelcap.models.network.prompted import PromptedEncoder

KIND = "features"


@strict
class FeaturesEncoderConfig(PreTrainedConfig):
    """`text_config` holds mBART's settings of the small transformer; its vocabulary is the decoder's."""

    model_type = "babelcap_features_encoder"
    sub_configs_defaults: ClassVar[dict[str, Any]] = {"text_config": MBartConfig}

    kind: str = KIND
    backbones: list | None = None  # of dicts, see backbones.py
    grid: int = 7  # positions a side
    vocab_size: int = 262144
    embedding_size: int = 640  # of the decoder's embeddings, which the prompt is read with
    text_config: Any = None

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        self.backbones = check_backbones(list(self.backbones or []))
        if self.grid < 1:
            raise ValueError(f"grid is {self.grid}; it must be at least 1")

    @property
    def hidden_size(self) -> int:
        return int(self.text_config.d_model)

    @property
    def image_feature_source(self) -> tuple[str, str]:
        return SPATIAL_MEAN, TEMPORAL_MEAN

    @property
    def tower_settings(self) -> list[Any]:
        """All settings that an image's features depend on."""
        return [self.kind, self.backbones, self.grid]

    def num_image_tokens(self, image_size_px: int) -> int:
        return 1 + self.grid * self.grid


class FeaturesEncoder(PromptedEncoder):
    config_class = FeaturesEncoderConfig
    _no_split_modules: ClassVar[list[str]] = ["MBartEncoderLayer"]

    def __init__(self, config: FeaturesEncoderConfig) -> None:
        super().__init__(config)
        self.vision_tower = Backbones(config.backbones or [], config.grid)
        self.image_projection = nn.Linear(self.vision_tower.num_channels, config.hidden_size)
        self.prompt_projection = nn.Linear(config.embedding_size, config.hidden_size)
        self.text_encoder = MBartEncoder(config.text_config)
        self.text_encoder.embed_tokens = None
        self._shared: tuple[nn.Module, ...] = ()  # no child, or its weights would be saved twice
        self.post_init()

    def share_embedding(self, embedding: nn.Module) -> None:
        """The decoder's: the prompt is read with it."""
        self._shared = (embedding,)

    def get_input_embeddings(self) -> nn.Module:
        return self._shared[0]

    def image_modules(self) -> list[nn.Module]:
        return [self.vision_tower]

    def encode_images(self, pixel_values: Tensor) -> Tensor:
        """[batch, 3, height, width] -> the features of the grid's positions [batch, positions, channels]."""
        return self.vision_tower(pixel_values)

    def image_tokens(self, features: Tensor) -> Tensor:
        return self.image_projection(torch.cat([features.mean(dim=1, keepdim=True), features], dim=1))

    def prompt_tokens(self, input_ids: Tensor) -> Tensor:
        return self.prompt_projection(self.get_input_embeddings()(input_ids))
