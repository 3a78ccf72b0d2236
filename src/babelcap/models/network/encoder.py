"""The encoder of Florence-2: DaViT vision tower, projector and BART's text encoder, all of them transformers' own.

encoder states = BART([image tokens; prompt tokens]): the image tokens stand in front of the prompt.
"""

import math
from typing import Any, ClassVar

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers import BartConfig, Florence2VisionConfig, PreTrainedConfig
from transformers import initialization as init
from transformers.models.bart.modeling_bart import BartEncoder
from transformers.models.florence2.modeling_florence2 import (
    Florence2MultiModalProjector,
    Florence2VisionBackbone,
    Florence2VisionPositionalEmbeddingCosine1D,
)

from babelcap.errors import UserError
from babelcap.models.network.channel_attention import use_lean_channels
from babelcap.models.network.prompted import PromptedEncoder
from babelcap.models.network.window_attention import use_lean_windows

SPATIAL_MEAN = "spatial_avg_pool"  # one token: the mean over all positions
TEMPORAL_MEAN = "temporal_avg_pool"  # one token for each position: the mean over frames, and an image is one frame
LAST_FRAME = "last_frame"  # the same as the mean over frames where there is one


@strict
class FlorenceEncoderConfig(PreTrainedConfig):
    """`text_config` holds BART's settings, of which only the encoder's are used."""

    model_type = "babelcap_florence2_encoder"
    sub_configs_defaults: ClassVar[dict[str, Any]] = {"vision_config": Florence2VisionConfig, "text_config": BartConfig}

    kind: str = "florence2"
    vision_config: Any = None
    text_config: Any = None
    image_feature_source: list[str] | tuple[str, ...] = (SPATIAL_MEAN, TEMPORAL_MEAN)

    def __post_init__(self, **kwargs: Any) -> None:
        super().__post_init__(**kwargs)
        unknown = set(self.image_feature_source) - {SPATIAL_MEAN, TEMPORAL_MEAN, LAST_FRAME}
        if unknown or not self.image_feature_source:
            raise ValueError(
                f"image_feature_source: found {list(self.image_feature_source)}; "
                f"known are {SPATIAL_MEAN}, {TEMPORAL_MEAN} and {LAST_FRAME}"
            )
        if self.vision_config.projection_dim != self.text_config.d_model:
            raise ValueError(
                f"vision_config.projection_dim is {self.vision_config.projection_dim}, text_config.d_model is "
                f"{self.text_config.d_model}; image tokens and prompt tokens need the same width"
            )

    @property
    def hidden_size(self) -> int:
        return int(self.text_config.d_model)

    @property
    def vocab_size(self) -> int:
        return int(self.text_config.vocab_size)

    @property
    def tower_settings(self) -> list[Any]:
        """All settings that an image's tokens depend on."""
        values = self.to_dict()
        return [self.kind, values["vision_config"], values["image_feature_source"]]

    def num_image_tokens(self, image_size_px: int) -> int:
        positions = math.ceil(image_size_px / math.prod(self.vision_config.patch_stride)) ** 2
        return sum(1 if source == SPATIAL_MEAN else positions for source in self.image_feature_source)


class FlorenceProjector(Florence2MultiModalProjector):
    """transformers gives [mean; positions]; the order and the choice of the two follow the configuration here."""

    def __init__(self, config: FlorenceEncoderConfig) -> None:
        super().__init__(config)
        self.sources = tuple(config.image_feature_source)

    def forward(self, image_features: Tensor) -> Tensor:
        tokens = super().forward(image_features)
        if self.sources == (SPATIAL_MEAN, TEMPORAL_MEAN):
            return tokens
        parts = [tokens[:, :1] if source == SPATIAL_MEAN else tokens[:, 1:] for source in self.sources]
        return torch.cat(parts, dim=1)


class FlorenceEncoder(PromptedEncoder):
    config_class = FlorenceEncoderConfig
    _no_split_modules: ClassVar[list[str]] = ["BartEncoderLayer", "Florence2VisionBlock"]

    def __init__(self, config: FlorenceEncoderConfig) -> None:
        super().__init__(config)
        self.vision_tower = Florence2VisionBackbone(config.vision_config)
        use_lean_windows(self.vision_tower)
        use_lean_channels(self.vision_tower)
        self.projector = FlorenceProjector(config)
        self.text_encoder = BartEncoder(config.text_config)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, Florence2VisionPositionalEmbeddingCosine1D):
            sine, cosine = module.get_sinusoid_embeddings(module.max_seq_len, module.embed_dim)
            init.copy_(module.pos_idx_to_embed, torch.stack([sine, cosine], dim=-1).flatten(1))

    def get_input_embeddings(self) -> nn.Module:
        return self.text_encoder.embed_tokens

    def image_modules(self) -> list[nn.Module]:
        return [self.vision_tower, self.projector]

    def encode_images(self, pixel_values: Tensor) -> Tensor:
        """[batch, 3, height, width] -> the projected image tokens [batch, tokens, hidden_size]."""
        features = self.vision_tower(pixel_values).last_hidden_state
        if max(features.shape[-2:]) > self.config.vision_config.max_position_embeddings:
            raise UserError(
                f"images of {pixel_values.shape[-2]}x{pixel_values.shape[-1]} px give more than the "
                f"{self.config.vision_config.max_position_embeddings} positions a side that this model knows"
            )
        return self.projector(features)

    def image_tokens(self, features: Tensor) -> Tensor:
        return features

    def prompt_tokens(self, input_ids: Tensor) -> Tensor:
        return self.text_encoder.embed_tokens(input_ids)
