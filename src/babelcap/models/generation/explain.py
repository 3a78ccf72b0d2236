"""A second look at generated sequences, all tokens in one pass: how likely each was, and where in the image it looked.

log p(token) is the model's over its whole vocabulary. Attention is softmax(q k) of the decoder's queries across, as the
layers compute it, averaged over heads and layers; its image part is laid out on the grid of the image tokens.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from babelcap.data.feed.batches import IGNORED_LABEL
from babelcap.models.network.prompted import EncoderOutput

if TYPE_CHECKING:
    from babelcap.models.network.captioner import Captioner

CROSS_ATTENTION = "encoder_attn"  # what both kinds of decoder call it
MEAN_TOKEN = "spatial_avg_pool"  # an image token of no place


class Explained(NamedTuple):
    log_probabilities: Tensor  # [rows, tokens after the start]
    is_token: Tensor  # [rows, tokens after the start]: false behind the end
    attention: Tensor | None  # [rows, tokens after the start, grid rows, grid columns]


def explain(
    model: "Captioner",
    encoder_states: Tensor,
    mask: Tensor,
    num_image_tokens: int,
    sequences: Tensor,
    after_end: Tensor,
    *,
    attention: bool = False,
) -> Explained:
    """`encoder_states` and their `mask` have one row a sample; of `sequences` a sample may have several rows."""
    labels = sequences[:, 1:].masked_fill(after_end[:, 1:], IGNORED_LABEL)
    with _watched(model, mask, enabled=attention and num_image_tokens > 0) as seen:
        losses = model(
            encoder_outputs=EncoderOutput(last_hidden_state=encoder_states, attention_mask=mask),
            labels=labels,
            decoder_input_ids=sequences[:, :-1],
            logits_needed=False,
        ).token_losses
    grid = None
    if seen:
        shares = torch.stack(seen).mean(dim=0)[:, :, :num_image_tokens]
        grid = on_grid(shares, model.config.encoder_config.image_feature_source)
    return Explained(-losses.float(), labels != IGNORED_LABEL, grid)


def on_grid(shares: Tensor, sources: Any) -> Tensor:
    """[..., image tokens] -> [..., rows, columns]. Tokens of the whole image have no place and are left out."""
    num_grids = sum(source != MEAN_TOKEN for source in sources)
    if not num_grids:
        raise ValueError("this encoder has no image tokens with a place")
    num_places = (shares.shape[-1] - (len(sources) - num_grids)) // num_grids
    side = math.isqrt(num_places)
    shape = (side, side) if side * side == num_places else (1, num_places)
    total = shares.new_zeros(*shares.shape[:-1], num_places)
    start = 0
    for source in sources:
        length = 1 if source == MEAN_TOKEN else num_places
        if source != MEAN_TOKEN:
            total = total + shares[..., start : start + length]
        start += length
    return total.unflatten(-1, shape)


@contextmanager
def _watched(model: "Captioner", encoder_mask: Tensor, *, enabled: bool) -> Iterator[list[Tensor]]:
    """Collects [rows, queries, encoder positions] of every layer that attends to the encoder."""
    seen: list[Tensor] = []
    if not enabled:
        yield seen
        return
    mask = encoder_mask.bool()

    def watch(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        states, encoder_states = [
            *args,
            *(kwargs[name] for name in ("hidden_states", "key_value_states") if name in kwargs),
        ][:2]
        seen.append(attention_shares(module, states, encoder_states, mask).mean(dim=1))

    modules = [module for name, module in model.decoder.named_modules() if name.endswith(CROSS_ATTENTION)]
    handles = [module.register_forward_pre_hook(watch, with_kwargs=True) for module in modules]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def attention_shares(module: Any, states: Tensor, encoder_states: Tensor, mask: Tensor) -> Tensor:
    """[rows, heads, queries, encoder positions] of a cross-attention; `mask` is true for what is attended to."""
    num_rows = len(states) // len(encoder_states)
    query = module.q_proj(states).unflatten(-1, (-1, module.head_dim)).transpose(1, 2)
    key = module.k_proj(encoder_states).unflatten(-1, (-1, module.head_dim)).transpose(1, 2)
    key = key.repeat_interleave(query.shape[1] // key.shape[1], dim=1).repeat_interleave(num_rows, dim=0)
    scores = torch.matmul(query, key.transpose(2, 3)).float() * module.scaling
    softcap = getattr(module, "softcap", None)
    if softcap is not None:
        scores = torch.tanh(scores / softcap) * softcap
    allowed = mask.repeat_interleave(num_rows, dim=0)[:, None, None]
    return torch.softmax(scores.masked_fill(~allowed, -torch.inf), dim=-1)
