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
from transformers import MBartConfig, PreTrainedConfig, PreTrainedModel
from transformers.models.mbart.modeling_mbart import MBartEncoder

from babelcap.errors import UserError
from babelcap.models.network.backbones import Backbones, check_backbones
from babelcap.models.network.encoder import SPATIAL_MEAN, TEMPORAL_MEAN, EncoderOutput

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


class FeaturesEncoder(PreTrainedModel):
    config_class = FeaturesEncoderConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
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
        """All that `encode_images` runs through."""
        return [self.vision_tower]

    def encode_images(self, pixel_values: Tensor) -> Tensor:
        """[batch, 3, height, width] -> the features of the grid's positions [batch, positions, channels]."""
        return self.vision_tower(pixel_values)

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        pixel_values: Tensor | None = None,
        image_features: Tensor | None = None,
    ) -> EncoderOutput:
        """Without pixels and without image features the prompt stands alone."""
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        if image_features is None and pixel_values is not None:
            image_features = self.encode_images(pixel_values)
        states = self.prompt_projection(self.get_input_embeddings()(input_ids))
        if image_features is not None:
            features = image_features.to(states)
            tokens = self.image_projection(torch.cat([features.mean(dim=1, keepdim=True), features], dim=1))
            states = torch.cat([tokens, states], dim=1)
            attention_mask = torch.cat([attention_mask.new_ones(tokens.shape[:2]), attention_mask], dim=1)
        limit = self.config.text_config.max_position_embeddings
        if states.shape[1] > limit:
            raise UserError(
                f"{states.shape[1] - input_ids.shape[1]} image tokens and {input_ids.shape[1]} prompt tokens are more "
                f"than the encoder's {limit} positions; use a shorter text"
            )
        states = self.text_encoder(inputs_embeds=states, attention_mask=attention_mask).last_hidden_state
        return EncoderOutput(last_hidden_state=states, attention_mask=attention_mask, image_features=image_features)
