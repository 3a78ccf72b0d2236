"""One step of a gated Gemma decoder, written out: each row has one new token, and what was before it is cached.

The same equations as transformers' layers and gemma_decoder.py. There a step of a small model is mostly masks, norms in
five operations each, views and calls; here queries, keys and values are one product, as are the MLP's gate and what it
lets through, masks and rotations are made once a step, and the beams of a sample ask its encoder states together.
Windows are not looked at: a decoder whose windows are shorter than a text is not stepped here.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from babelcap.models.generation.products import Product
from babelcap.models.generation.slots import Slots
from babelcap.models.network.attention import attend_few
from babelcap.models.network.gemma_decoder import GatedCrossAttentionLayer

Rotate = Callable[[Tensor], Tensor]


def gemma_joined(decoder: Any) -> list[tuple[nn.Linear, ...]]:
    """Of each layer in turn: queries, keys and values; the MLP's gate and its other half. Each group has one input."""
    groups: list[tuple[nn.Linear, ...]] = []
    for layer in decoder.layers:
        attention, mlp = layer.self_attn, layer.mlp
        groups += [(attention.q_proj, attention.k_proj, attention.v_proj), (mlp.gate_proj, mlp.up_proj)]
    return groups


def gemma_step(decoder: Any, joined: Sequence[Product], ids: Tensor, slots: Slots) -> Tensor:
    """The states [rows, width] behind the tokens `ids` [rows]; `joined` is a product for each group of layers."""
    own_mask, across_mask = slots.own_mask(), slots.across_mask()
    own, across = slots.cache.self_attention_cache.layers, slots.cache.cross_attention_cache.layers
    states = decoder.embed_tokens(ids)
    rotations = _rotations(decoder, states, slots.positions())
    for index, layer in enumerate(decoder.layers):
        attention = layer.self_attn
        projected = joined[2 * index](_norm(layer.input_layernorm, states)).view(len(ids), -1, 1, attention.head_dim)
        num_keys = own[index].keys.shape[1]
        query, key, value = projected.split([projected.shape[1] - 2 * num_keys, num_keys, num_keys], dim=1)
        if hasattr(attention, "q_norm"):  # Gemma-3, which has them in place of soft-capped scores
            query, key, softcap = _norm(attention.q_norm, query), _norm(attention.k_norm, key), None
        else:
            softcap = attention.attn_logit_softcapping
        rotate = rotations[attention.layer_type]
        keys, values = own[index].update(rotate(key), value)
        attended = attend_few(rotate(query), keys, values, own_mask, scaling=attention.scaling, softcap=softcap)
        states = states + _norm(layer.post_attention_layernorm, attention.o_proj(attended.flatten(1)))

        if isinstance(layer, GatedCrossAttentionLayer):
            crossed = _cross(layer, states, slots.num_beams, across[index], across_mask)
            states = states + torch.tanh(layer.encoder_attn_gate) * crossed

        gate, passed = joined[2 * index + 1](_norm(layer.pre_feedforward_layernorm, states)).chunk(2, dim=-1)
        computed = layer.mlp.down_proj(layer.mlp.act_fn(gate) * passed)
        states = states + _norm(layer.post_feedforward_layernorm, computed)
    return _norm(decoder.norm, states)


def _cross(layer: Any, states: Tensor, num_beams: int, cached: Any, mask: Tensor | None) -> Tensor:
    attention, pre_norm = layer.encoder_attn, layer.pre_encoder_attention_layernorm
    asking = states if pre_norm is None else _norm(pre_norm, states)
    query = attention.q_proj(asking).view(len(states) // num_beams, num_beams, -1, attention.head_dim).transpose(1, 2)
    attended = attend_few(query, cached.keys, cached.values, mask, scaling=attention.scaling, softcap=attention.softcap)
    attended = attended.transpose(1, 2).reshape(len(states), -1)
    return _norm(layer.post_encoder_attention_layernorm, attention.o_proj(attended))


def _norm(module: Any, states: Tensor) -> Tensor:
    """Gemma's, whose weights are differences from one."""
    return functional.rms_norm(states, states.shape[-1:], 1.0 + module.weight, module.eps)


def _rotations(decoder: Any, states: Tensor, positions: Tensor) -> dict[str, Rotate]:
    """By kind of layer: Gemma-3's windowed layers turn faster, Gemma-2's all turn alike."""
    kinds = sorted(set(decoder.config.layer_types))
    if hasattr(decoder.layers[0].self_attn, "q_norm"):
        return {kind: _rotation(*decoder.rotary_emb(states, positions, kind)) for kind in kinds}
    return dict.fromkeys(kinds, _rotation(*decoder.rotary_emb(states, positions)))


def _rotation(cos: Tensor, sin: Tensor) -> Rotate:
    """[rows, 1, width] each, for [rows, heads, 1, width]: x cos + (-x2, x1) sin, the sign taken into the sine."""
    half = sin.shape[-1] // 2
    cos, signed = cos[:, None], torch.cat([-sin[..., :half], sin[..., half:]], dim=-1)[:, None]
    return lambda states: states * cos + states.roll(half, dims=-1) * signed
