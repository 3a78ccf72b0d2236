"""The gradient of the loss on processors, by blocks of the head's rows whose logits stay in the cache.

Two passes over the blocks of one chunk of tokens: logits with the sum of their exponentials, then softmax in their
place and both products of the gradient. Nothing of the chunk's size is made but the logits themselves.
"""

from typing import NamedTuple

import torch
from torch import Tensor

ROWS = 8192  # of the head in one block


class Gradients(NamedTuple):
    """Where a chunk's gradients go; None where not wanted."""

    states: Tensor | None  # written
    weight: Tensor | None  # added to, or written where the chunk is the first
    bias: Tensor | None  # added to


def block_losses(
    states: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    softcap: float | None,
    scale: float,
    gradients: Gradients,
    is_first: bool,
) -> Tensor:
    """The losses of a chunk's tokens; the gradients of their sum times `scale` are in `gradients`."""
    num_tokens, num_rows = len(states), len(weight)
    bounds = [(start, min(start + ROWS, num_rows)) for start in range(0, num_rows, ROWS)]
    room = states.new_empty(num_tokens * num_rows)
    blocks = [room[num_tokens * start : num_tokens * end].view(num_tokens, end - start) for start, end in bounds]
    total, picked = states.new_full((num_tokens,), -torch.inf), states.new_zeros(num_tokens)
    for (start, end), logits in zip(bounds, blocks, strict=True):
        torch.mm(states, weight[start:end].t(), out=logits)
        if bias is not None:
            logits += bias[start:end]
        if softcap is not None:  # tanh z = 2 sigmoid 2z - 1, which torch computes in a sixth of the time
            logits.mul_(2 / softcap).sigmoid_().mul_(2 * softcap).sub_(softcap)
        tokens, places = _targets_within(targets, start, end)
        picked[tokens] = logits[tokens, places]
        total = torch.logaddexp(total, logits.logsumexp(dim=1))
    if gradients.states is not None:
        gradients.states.zero_()
    scaled = states * scale
    for (start, end), logits in zip(bounds, blocks, strict=True):
        slope = None if softcap is None else (logits / softcap).square_().neg_().add_(1)
        grad = logits.sub_(total[:, None]).exp_()
        tokens, places = _targets_within(targets, start, end)
        grad[tokens, places] -= 1
        if slope is not None:
            grad.mul_(slope)
        if gradients.bias is not None:
            gradients.bias[start:end] += grad.sum(dim=0) * scale
        if gradients.states is not None:
            gradients.states.addmm_(grad, weight[start:end], alpha=scale)
        if gradients.weight is not None:
            gradients.weight[start:end].addmm_(grad.t(), scaled, beta=0 if is_first else 1)
    return total - picked


def _targets_within(targets: Tensor, start: int, end: int) -> tuple[Tensor, Tensor]:
    """Which tokens have their target among these rows, and at which place."""
    tokens = ((targets >= start) & (targets < end)).nonzero()[:, 0]
    return tokens, targets[tokens] - start
