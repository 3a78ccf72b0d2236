"""One step of BART's decoder, written out: each row has one new token, and what was before it is cached.

The same equations as transformers' layers: h <- norm(h + self-attention(h)); h <- norm(h + cross-attention(h));
h <- norm(h + MLP(h)). There a step of a small model is mostly masks, views and calls; here queries, keys and values are
one product, masks are made once a step, and the beams of a sample ask its encoder states together.
"""

from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn
from torch.nn import functional

from babelcap.models.generation.products import Product
from babelcap.models.generation.slots import Slots
from babelcap.models.network.attention import attend_few


def bart_joined(decoder: Any) -> list[tuple[nn.Linear, ...]]:
    """Of each layer, queries, keys and values, which have the same states."""
    attentions = [layer.self_attn for layer in decoder.layers]
    return [(attention.q_proj, attention.k_proj, attention.v_proj) for attention in attentions]


def bart_step(decoder: Any, joined: Sequence[Product], ids: Tensor, slots: Slots) -> Tensor:
    """The states [rows, width] behind the tokens `ids` [rows]; `joined` is a product for each layer."""
    own_mask, across_mask = slots.own_mask(), slots.across_mask()
    own, across = slots.cache.self_attention_cache.layers, slots.cache.cross_attention_cache.layers
    table = decoder.embed_positions
    states = decoder.embed_tokens(ids) + functional.embedding(slots.positions()[:, 0] + table.offset, table.weight)
    states = decoder.layernorm_embedding(states)
    for index, layer in enumerate(decoder.layers):
        attention = layer.self_attn
        heads = (attention.num_heads, attention.head_dim)
        query, key, value = joined[index](states).view(len(ids), 3, heads[0], 1, heads[1]).unbind(1)
        keys, values = own[index].update(key, value)
        attended = attend_few(query, keys, values, own_mask, scaling=attention.scaling)
        states = layer.self_attn_layer_norm(states + attention.out_proj(attended.view_as(states)))

        attention = layer.encoder_attn
        query = attention.q_proj(states).view(-1, slots.num_beams, *heads).transpose(1, 2)
        attended = attend_few(query, across[index].keys, across[index].values, across_mask, scaling=attention.scaling)
        attended = attended.transpose(1, 2).reshape(states.shape)
        states = layer.encoder_attn_layer_norm(states + attention.out_proj(attended))

        states = layer.final_layer_norm(states + layer.fc2(layer.activation_fn(layer.fc1(states))))
    return states
