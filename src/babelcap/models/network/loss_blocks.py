"""The gradient of the loss on processors, by blocks of the head's rows whose logits stay in the cache.

Two passes over the blocks of one chunk of tokens: logits with the sum of their exponentials, then softmax in their
place and both products of the gradient. Nothing of the chunk's size is made but the logits themselves. Under autocast
products are in its type, of a block of the head that is cast for itself; softmax and sums stay in float32.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from babelcap.models.network.linear import is_served, times

ROWS = 8192  # of the head in one block
LOW_ROWS = 4096  # where a block is cast: the cast, too, stays in the cache


class Gradients(NamedTuple):
    """Where a chunk's gradients go; None where not wanted."""

    states: Tensor | None  # float32; written
    weight: Tensor | None  # float32; added to, or written where the chunk is the first
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
    """The losses of a chunk's tokens; the gradients of their sum times `scale` are in `gradients`.

    Products are in the states' type.
    """
    num_tokens, num_rows, kind = len(states), len(weight), states.dtype
    rows = ROWS if weight.dtype == kind else LOW_ROWS
    bounds = [(start, min(start + rows, num_rows)) for start in range(0, num_rows, rows)]
    room = states.new_empty(num_tokens * num_rows, dtype=torch.float32)
    blocks = [room[num_tokens * start : num_tokens * end].view(num_tokens, end - start) for start, end in bounds]
    total, picked = room.new_full((num_tokens,), -torch.inf), room.new_zeros(num_tokens)
    for (start, end), logits in zip(bounds, blocks, strict=True):
        _put_product(logits, states, weight[start:end].to(kind).t())
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
        low = grad.to(kind)
        if gradients.states is not None:
            add_product(gradients.states, low, weight[start:end].to(kind), scale)
        if gradients.weight is not None and is_first:
            _put_product(gradients.weight[start:end], low.t(), scaled)
        elif gradients.weight is not None:
            add_product(gradients.weight[start:end], low.t(), scaled)
    return total - picked


def _put_product(place: Tensor, left: Tensor, right: Tensor) -> None:
    if left.dtype == place.dtype and not is_served(left, right.t()):
        torch.mm(left, right, out=place)
    else:
        place.copy_(times(left, right))


def add_product(total: Tensor, left: Tensor, right: Tensor, scale: float = 1.0) -> None:
    if left.dtype == total.dtype and not is_served(left, right.t()):
        total.addmm_(left, right, alpha=scale)
    else:  # lower precision: the product in its own type, the sum in float32
        total.add_(times(left, right), alpha=scale)


def _targets_within(targets: Tensor, start: int, end: int) -> tuple[Tensor, Tensor]:
    """Which tokens have their target among these rows, and at which place."""
    tokens = ((targets >= start) & (targets < end)).nonzero()[:, 0]
    return tokens, targets[tokens] - start
