"""Attention of queries to keys and values, with soft-capped scores where the model has them.

softmax(cap * tanh(q k / cap) + mask) v. PyTorch's fused attention knows no soft-capping, so it is used only without;
nor where a processor trains in bfloat16, whose fused backward pass takes two to four times as long as plain products
(texts of up to 128 tokens, on a processor that multiplies bfloat16 by itself).
"""

import torch
from torch import Tensor
from torch.nn import functional


def fold_beams(states: Tensor, encoder_states: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Rows that share encoder states, such as the beams of a sample, become more queries of one row.

    [batch * beams, queries, width] -> [batch, beams * queries, width]. Queries do not see each other across, so nothing
    changes but that keys and values are read once for all beams. The mask is the same for all queries.
    """
    num_beams = states.shape[0] // encoder_states.shape[0]
    if num_beams == 1:
        return states, mask
    folded = states.unflatten(0, (encoder_states.shape[0], num_beams)).flatten(1, 2)
    return folded, None if mask is None else mask[:, :, :1]


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mask: Tensor | None,
    *,
    scaling: float,
    softcap: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """[batch, heads, queries, width]. Keys and values may have fewer heads: each serves a group of query heads.

    The mask is additive or, where boolean, true for what is attended to; it broadcasts over heads.
    """
    if softcap is None and not _trains_low(query):
        grouped = key.shape[1] != query.shape[1]
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, dropout_p=dropout, scale=scaling, enable_gqa=grouped
        )
    num_groups = query.shape[1] // key.shape[1]
    grouped_query = query.unflatten(1, (key.shape[1], num_groups)).flatten(2, 3)
    scores = torch.matmul(grouped_query, key.transpose(2, 3)).unflatten(2, (num_groups, query.shape[2]))
    scores = scores * scaling if softcap is None else torch.tanh(scores * (scaling / softcap)) * softcap
    if mask is not None:
        scores = (
            scores.masked_fill(~mask[:, :, None], -torch.inf) if mask.dtype == torch.bool else scores + mask[:, :, None]
        )
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype)
    weights = functional.dropout(weights, p=dropout, training=dropout > 0)
    attended = torch.matmul(weights.flatten(2, 3), value)
    return attended.unflatten(2, (num_groups, query.shape[2])).flatten(1, 2)


def _trains_low(query: Tensor) -> bool:
    if not query.requires_grad or query.device.type != "cpu":
        return False
    is_cast = torch.is_autocast_enabled("cpu")
    return (torch.get_autocast_dtype("cpu") if is_cast else query.dtype) == torch.bfloat16


def attend_few(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, *, scaling: float, softcap: float | None = None
) -> Tensor:
    """The same, without a gradient, for the few queries that a step of decoding has; an additive mask.

    Fused attention is made for many queries: with one of each row, or the beams of a sample, two plain products take
    half of its time with two threads, and no more with one.
    """
    if softcap is not None:
        return attend(query, key, value, mask, scaling=scaling, softcap=softcap)
    num_groups, num_queries = query.shape[1] // key.shape[1], query.shape[2]
    if num_groups > 1:  # heads that share keys and values ask together
        query = query.unflatten(1, (key.shape[1], num_groups)).flatten(2, 3)
    scores = torch.baddbmm(
        query.new_zeros(()), query.flatten(0, 1), key.flatten(0, 1).transpose(1, 2), beta=0, alpha=scaling
    )
    if mask is not None:
        scores.unflatten(0, key.shape[:2]).add_(mask)
    attended = torch.bmm(scores.softmax(dim=-1), value.flatten(0, 1)).unflatten(0, key.shape[:2])
    return attended.unflatten(2, (num_groups, num_queries)).flatten(1, 2) if num_groups > 1 else attended
