"""Where we stand in transformers' own generation loop, which draws tokens and does what our search does not know.

All of its private methods that are overridden are here.
"""

from typing import Any

import torch
from torch import Tensor
from transformers import GenerationMixin

from babelcap.models.generation.caches import generation_cache
from babelcap.models.generation.candidates import BLOCK_SIZE, not_finite, top_scores


class TransformersHooks(GenerationMixin):
    def encode(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _update_model_kwargs_for_generation(self, outputs: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """After every step. A number that is none would go on as text; one reduction finds it before it is chosen."""
        if not torch.isfinite(outputs.logits.amax()):
            raise not_finite()
        return super()._update_model_kwargs_for_generation(outputs, *args, **kwargs)

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        if model_kwargs.get("past_key_values") is None and generation_config.use_cache:
            cache = generation_cache(self.config.decoder_config, generation_config.max_length)
            model_kwargs["past_key_values"] = cache

    def _maybe_prepare_encoder_kwargs_for_generation(
        self, inputs_tensor: Tensor, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        """Image and prompt are encoded once; the pixels are not carried along."""
        inputs = {name: model_kwargs.pop(name, None) for name in ("pixel_values", "image_features")}
        if model_kwargs.get("encoder_outputs") is None:
            mask = model_kwargs.get("attention_mask")
            model_kwargs["encoder_outputs"] = self.encode(inputs_tensor, attention_mask=mask, **inputs)
        return model_kwargs

    def _expand_inputs_for_generation(
        self, expand_size: int = 1, is_encoder_decoder: bool = False, **model_kwargs: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """What the encoder gave stays one row a sample; the decoder's cross-attention folds the beams."""
        shared = {name: model_kwargs.pop(name, None) for name in ("encoder_outputs", "attention_mask")}
        input_ids, model_kwargs = super()._expand_inputs_for_generation(expand_size, False, **model_kwargs)
        return input_ids, model_kwargs | {name: value for name, value in shared.items() if value is not None}

    def _get_top_k_continuations(
        self,
        accumulated_log_probs: Tensor,
        running_sequences: Tensor,
        running_beam_indices: Tensor,
        cur_len: int,
        decoder_prompt_len: int,
        do_sample: bool,
        beams_to_keep: int,
        num_beams: int,
        batch_size: int,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """transformers' own, but over a handful of candidates for each beam instead of the whole vocabulary."""
        vocab_size = accumulated_log_probs.shape[1] // num_beams
        if do_sample or vocab_size <= 2 * BLOCK_SIZE:
            return super()._get_top_k_continuations(
                accumulated_log_probs,
                running_sequences,
                running_beam_indices,
                cur_len,
                decoder_prompt_len,
                do_sample,
                beams_to_keep,
                num_beams,
                batch_size,
            )
        scores, indices = top_scores(accumulated_log_probs, beams_to_keep)
        beams = indices // vocab_size
        sequences = self._gather_beams(running_sequences, beams)
        sequences[:, :, cur_len] = indices % vocab_size
        origins = self._gather_beams(running_beam_indices, beams)
        first_rows = torch.arange(batch_size, device=beams.device)[:, None] * num_beams
        origins[:, :, cur_len - decoder_prompt_len] = (beams + first_rows).to(origins.dtype)
        return scores, sequences, origins
