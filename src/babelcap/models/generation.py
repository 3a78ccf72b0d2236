"""Generation through transformers' GenerationMixin: the encoder runs once, self- and cross-attention are cached."""

from typing import Any

from torch import Tensor
from transformers import GenerationMixin
from transformers.cache_utils import DynamicCache, EncoderDecoderCache


class CaptionerGeneration(GenerationMixin):
    def generation_head_weight(self) -> Tensor:
        return self.head_weight

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        """Cross-attention sees all of the encoder's states, also in layers whose self-attention has a window."""
        if model_kwargs.get("past_key_values") is None and generation_config.use_cache:
            cache = EncoderDecoderCache(DynamicCache(config=self.config.decoder_config), DynamicCache())
            model_kwargs["past_key_values"] = cache

    def _maybe_prepare_encoder_kwargs_for_generation(
        self, inputs_tensor: Tensor, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        """Image and prompt are encoded once; the pixels are not carried along and copied for each beam."""
        inputs = {name: model_kwargs.pop(name, None) for name in ("pixel_values", "image_features")}
        if model_kwargs.get("encoder_outputs") is None:
            mask = model_kwargs.get("attention_mask")
            model_kwargs["encoder_outputs"] = self.encoder(inputs_tensor, attention_mask=mask, **inputs)
        return model_kwargs
