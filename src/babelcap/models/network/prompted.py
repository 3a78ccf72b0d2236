"""What the encoders share: image tokens stand in front of the prompt's, and a small text encoder reads both."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.modeling_outputs import ModelOutput

from babelcap.errors import UserError


@dataclass
class EncoderOutput(ModelOutput):
    """States of image and prompt with the mask over both; `image_features` are what `encode_images` gave."""

    last_hidden_state: Tensor | None = None
    attention_mask: Tensor | None = None
    image_features: Tensor | None = None


class PromptedEncoder(PreTrainedModel):
    base_model_prefix = ""
    main_input_name = "input_ids"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    text_encoder: Any

    @abstractmethod
    def image_modules(self) -> list[nn.Module]:
        """All that `encode_images` runs through."""

    @abstractmethod
    def encode_images(self, pixel_values: Tensor) -> Tensor:
        """[batch, 3, height, width] -> features [batch, positions, channels], which can be kept."""

    @abstractmethod
    def image_tokens(self, features: Tensor) -> Tensor:
        """Features -> [batch, tokens, hidden_size]."""

    @abstractmethod
    def prompt_tokens(self, input_ids: Tensor) -> Tensor:
        """[batch, tokens, hidden_size]"""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        pixel_values: Tensor | None = None,
        image_features: Tensor | None = None,
    ) -> EncoderOutput:
        """Without pixels and without image features the prompt stands alone (translation of text without an image)."""
        if attention_mask is None:
            attention_mask = torch.ones_like(input_ids)
        if image_features is None and pixel_values is not None:
            image_features = self.encode_images(pixel_values)
        states = self.prompt_tokens(input_ids)
        if image_features is not None:
            image_features = image_features.to(states)
            tokens = self.image_tokens(image_features)
            states = torch.cat([tokens, states], dim=1)
            attention_mask = torch.cat([attention_mask.new_ones(tokens.shape[:2]), attention_mask], dim=1)
        limit = self.config.text_config.max_position_embeddings
        if states.shape[1] > limit:
            raise UserError(
                f"{states.shape[1] - input_ids.shape[1]} image tokens and {input_ids.shape[1]} prompt tokens are more "
                f"than the encoder's {limit} positions; use smaller images or a shorter text"
            )
        states = self.text_encoder(inputs_embeds=states, attention_mask=attention_mask).last_hidden_state
        return EncoderOutput(last_hidden_state=states, attention_mask=attention_mask, image_features=image_features)
