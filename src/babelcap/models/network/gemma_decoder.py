"""Gemma's text decoder with gated cross-attention to the encoder's states in every x-th layer.

h <- h + norm(self-attention(norm(h)));  h <- h + tanh(gate) * norm(cross-attention(h, encoder states));  h <- h + MLP
Queries, grouped keys and values, scaling and soft-capping are Gemma's; there are no rotary positions across. The gate
starts at 0, so that the model starts as Gemma itself. Gemma-2 and Gemma-3 have layers of one shape and share all this.
"""

from typing import Any

import torch
from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers import Gemma2Config, Gemma3TextConfig, PreTrainedModel
from transformers import initialization as init
from transformers.cache_utils import Cache, DynamicCache, EncoderDecoderCache
from transformers.masking_utils import create_bidirectional_mask
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions
from transformers.models.gemma2.modeling_gemma2 import Gemma2Model
from transformers.models.gemma3.modeling_gemma3 import Gemma3TextModel

from babelcap.models.network.attention import attend, fold_beams
from babelcap.models.network.packed import Packing


class CrossAttentionSettings:
    """What both Gemma configurations gain; mixed in, so that each stays transformers' own otherwise."""

    encoder_hidden_size: int
    cross_attention_every: int
    cross_attention_layers: list[int] | None
    cross_attention_heads: int | None
    cross_attention_head_dim: int | None
    cross_attention_pre_norm: bool
    num_hidden_layers: int
    head_dim: int
    num_attention_heads: int
    num_key_value_heads: int
    query_pre_attn_scalar: int
    final_logit_softcapping: float | None

    def layers_with_cross_attention(self) -> list[int]:
        """Named layers where they are named, else every x-th, beginning with the first."""
        if self.cross_attention_layers is not None:
            return list(self.cross_attention_layers)
        return list(range(0, self.num_hidden_layers, self.cross_attention_every))

    def cross_attention_shape(self) -> tuple[int, int, int, float]:
        """Heads of queries, heads of keys, their width and the scaling: Gemma's own, unless heads are named."""
        if self.cross_attention_heads is None:
            return self.num_attention_heads, self.num_key_value_heads, self.head_dim, self.query_pre_attn_scalar**-0.5
        width = self.cross_attention_head_dim or self.head_dim
        return self.cross_attention_heads, self.cross_attention_heads, width, width**-0.5

    @property
    def logit_softcap(self) -> float | None:
        return self.final_logit_softcapping


@strict
class Gemma2DecoderConfig(CrossAttentionSettings, Gemma2Config):
    model_type = "babelcap_gemma2_decoder"

    kind: str = "gemma2"
    encoder_hidden_size: int = 1024
    cross_attention_every: int = 1
    cross_attention_layers: list[int] | None = None
    cross_attention_heads: int | None = None  # where named: each has keys and values of its own
    cross_attention_head_dim: int | None = None
    cross_attention_pre_norm: bool = False  # of the queries; the published models have none
    decoder_start_token_id: int | None = 1


@strict
class Gemma3DecoderConfig(CrossAttentionSettings, Gemma3TextConfig):
    model_type = "babelcap_gemma3_decoder"

    kind: str = "gemma3"
    encoder_hidden_size: int = 1024
    cross_attention_every: int = 1
    cross_attention_layers: list[int] | None = None
    cross_attention_heads: int | None = None  # where named: each has keys and values of its own
    cross_attention_head_dim: int | None = None
    cross_attention_pre_norm: bool = False  # of the queries; the published models have none
    decoder_start_token_id: int | None = 1


class CrossAttention(nn.Module):
    def __init__(self, config: Any, layer_index: int) -> None:
        super().__init__()
        self.layer_index = layer_index
        num_heads, num_key_heads, self.head_dim, self.scaling = config.cross_attention_shape()
        self.softcap = config.attn_logit_softcapping
        self.dropout = config.attention_dropout
        query_size, key_size = num_heads * self.head_dim, num_key_heads * self.head_dim
        self.q_proj = nn.Linear(config.hidden_size, query_size, bias=config.attention_bias)
        self.k_proj = nn.Linear(config.encoder_hidden_size, key_size, bias=config.attention_bias)
        self.v_proj = nn.Linear(config.encoder_hidden_size, key_size, bias=config.attention_bias)
        self.o_proj = nn.Linear(query_size, config.hidden_size, bias=config.attention_bias)

    def forward(
        self,
        states: Tensor,
        encoder_states: Tensor,
        mask: Tensor | None,
        cache: EncoderDecoderCache | None,
        packing: Packing | None = None,
    ) -> Tensor:
        if packing is not None:
            key, value = self._heads(self.k_proj(encoder_states)), self._heads(self.v_proj(encoder_states))
            query = self._heads(packing.spread(self.q_proj(states[0])))
            dropout = self.dropout if self.training else 0.0
            attended = attend(query, key, value, mask, scaling=self.scaling, softcap=self.softcap, dropout=dropout)
            return self.o_proj(packing.gather(attended.transpose(1, 2)).flatten(1))[None]
        folded, mask = fold_beams(states, encoder_states, mask)
        query = self._heads(self.q_proj(folded))
        if cache is not None and cache.is_updated.get(self.layer_index):
            layer = cache.cross_attention_cache.layers[self.layer_index]
            key, value = layer.keys, layer.values
        else:
            key, value = self._heads(self.k_proj(encoder_states)), self._heads(self.v_proj(encoder_states))
            if cache is not None:
                key, value = cache.cross_attention_cache.update(key, value, self.layer_index)
                cache.is_updated[self.layer_index] = True
        dropout = self.dropout if self.training else 0.0
        attended = attend(query, key, value, mask, scaling=self.scaling, softcap=self.softcap, dropout=dropout)
        return self.o_proj(attended.transpose(1, 2).flatten(2)).view_as(states)

    def _heads(self, projected: Tensor) -> Tensor:
        return projected.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)


class GatedCrossAttentionLayer(GradientCheckpointingLayer):
    """A Gemma layer, taken over module by module, with cross-attention between its self-attention and its MLP."""

    def __init__(self, layer: Any, config: Any, layer_index: int) -> None:
        super().__init__()
        for name, module in layer.named_children():
            self.add_module(name, module)
        self.encoder_attn = CrossAttention(config, layer_index)
        norm = type(layer.post_attention_layernorm)
        self.post_encoder_attention_layernorm = norm(config.hidden_size, eps=config.rms_norm_eps)
        has_pre_norm = config.cross_attention_pre_norm
        self.pre_encoder_attention_layernorm = (
            norm(config.hidden_size, eps=config.rms_norm_eps) if has_pre_norm else None
        )
        self.encoder_attn_gate = nn.Parameter(torch.zeros(1))

    def forward(
        self,
        hidden_states: Tensor,
        position_embeddings: tuple[Tensor, Tensor] | None = None,
        attention_mask: Tensor | None = None,
        position_ids: Tensor | None = None,
        past_key_values: Cache | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        encoder_decoder_cache: EncoderDecoderCache | None = None,
        packing: Packing | None = None,
        **kwargs: Any,
    ) -> Tensor:
        if packing is not None:
            kwargs["packing"] = packing
        attended, _ = self.self_attn(
            hidden_states=self.input_layernorm(hidden_states),
            position_embeddings=position_embeddings,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            **kwargs,
        )
        hidden_states = hidden_states + self.post_attention_layernorm(attended)
        if encoder_hidden_states is not None:
            pre_norm = self.pre_encoder_attention_layernorm
            asking = hidden_states if pre_norm is None else pre_norm(hidden_states)
            crossed = self.encoder_attn(
                asking, encoder_hidden_states, encoder_attention_mask, encoder_decoder_cache, packing
            )
            crossed = self.post_encoder_attention_layernorm(crossed)
            hidden_states = hidden_states + torch.tanh(self.encoder_attn_gate) * crossed
        computed = self.mlp(self.pre_feedforward_layernorm(hidden_states))
        return hidden_states + self.post_feedforward_layernorm(computed)


class GatedGemma(PreTrainedModel):
    """Mixed in front of a Gemma text model: exchanges the chosen layers and hands the encoder's states to them."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        for index in config.layers_with_cross_attention():
            self.layers[index] = GatedCrossAttentionLayer(self.layers[index], config, index)
        self.post_init()

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, GatedCrossAttentionLayer):
            init.zeros_(module.encoder_attn_gate)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        encoder_hidden_states: Tensor | None = None,
        encoder_attention_mask: Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        inputs_embeds: Tensor | None = None,
        use_cache: bool | None = None,
        **kwargs: Any,
    ) -> BaseModelOutputWithPastAndCrossAttentions:
        if inputs_embeds is None:
            inputs_embeds = self.embed_tokens(input_ids)
        if use_cache and past_key_values is None:
            past_key_values = EncoderDecoderCache(DynamicCache(config=self.config), DynamicCache())
        cross_mask = None
        if kwargs.get("packing") is not None:
            cross_mask = None if encoder_attention_mask is None else encoder_attention_mask[:, None, None].bool()
        elif encoder_hidden_states is not None:
            cross_mask = create_bidirectional_mask(
                self.config, inputs_embeds, encoder_attention_mask, encoder_hidden_states=encoder_hidden_states
            )
        outputs = super().forward(
            attention_mask=attention_mask,
            past_key_values=past_key_values.self_attention_cache if past_key_values is not None else None,
            inputs_embeds=inputs_embeds,
            use_cache=use_cache and past_key_values is not None,
            encoder_hidden_states=encoder_hidden_states,
            encoder_attention_mask=cross_mask,
            encoder_decoder_cache=past_key_values,
            **kwargs,
        )
        return BaseModelOutputWithPastAndCrossAttentions(
            last_hidden_state=outputs.last_hidden_state, past_key_values=past_key_values
        )


class Gemma2TextDecoder(GatedGemma, Gemma2Model):
    config_class = Gemma2DecoderConfig


class Gemma3TextDecoder(GatedGemma, Gemma3TextModel):
    config_class = Gemma3DecoderConfig
