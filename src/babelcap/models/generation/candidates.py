"""The most likely next tokens of each row, without the logits of the whole vocabulary ever being in memory.

log p = z - log sum exp z, z = cap * tanh(h W^T / cap): the head is multiplied chunk by chunk, and while a chunk's
logits are in the processor's cache they are capped, summed and looked through.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from babelcap.errors import UserError

BLOCK_SIZE = 64  # scores looked through at once for the best
CHUNK_OUTPUTS = 2**15  # rows of the head multiplied at once: some megabytes of logits


def chunk_bounds(num_outputs: int) -> Iterator[tuple[int, int]]:
    for start in range(0, num_outputs, CHUNK_OUTPUTS):
        yield start, min(start + CHUNK_OUTPUTS, num_outputs)


def best_tokens(
    head: Any, states: Tensor, weight: Tensor, shortlist: Any, number: int, *, normalised: bool
) -> tuple[Tensor, Tensor]:
    """[rows, number] of each row's best: log-probabilities, or logits where not `normalised`; and token ids."""
    scores, places, totals = [], [], []
    room = None  # what a chunk's log-probabilities were written to: fresh memory for each costs more than they do
    for start, logits in head.chunks(states, weight, shortlist):
        found, where = top_scores(logits, min(number, logits.shape[1]))
        scores.append(found)
        places.append(where + start)
        if normalised:
            if room is None or room.shape != logits.shape:
                room = torch.empty_like(logits)
            totals.append(log_sum_exp(logits, where[:, :1], room))
    best, chosen = torch.cat(scores, dim=1).topk(min(number, sum(part.shape[1] for part in scores)))
    if not torch.isfinite(best[:, 0]).all():
        raise not_finite()
    if normalised:
        total = torch.stack(totals).logsumexp(dim=0)
        if not torch.isfinite(total).all():
            raise not_finite()
        best = best - total[:, None]
    return best, torch.cat(places, dim=1).gather(1, chosen)


def log_sum_exp(logits: Tensor, place_of_best: Tensor, room: Tensor) -> Tensor:
    """[rows, tokens] -> [rows], by the fused log-softmax into `room`: the best logit, less its log-probability."""
    torch.ops.aten._log_softmax.out(logits, -1, False, out=room)
    best = logits.gather(1, place_of_best).squeeze(1)
    total = best - room.gather(1, place_of_best).squeeze(1)
    return torch.where(best == -torch.inf, best, total)  # where no token of these may follow


def not_finite() -> UserError:
    return UserError(
        "the model's logits are not finite: its weights are damaged, or too large for its type; "
        "check them with `babelcap model check`, or load it with dtype float32"
    )


def top_scores(scores: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """The highest scores of each row and where they stand, as torch.topk gives them, in a fraction of its time.

    The best `number` scores lie in the `number` blocks with the best maxima, or behind the last whole block.
    """
    if scores.shape[1] <= 2 * BLOCK_SIZE:
        values, indices = scores.topk(number)
        return values, indices
    num_blocked = scores.shape[1] // BLOCK_SIZE * BLOCK_SIZE
    blocked = scores[:, :num_blocked].unflatten(1, (-1, BLOCK_SIZE))
    maxima = blocked.amax(dim=-1)
    blocks = maxima.topk(min(number, maxima.shape[1])).indices
    inside = blocked.gather(1, blocks[..., None].expand(-1, -1, BLOCK_SIZE)).flatten(1)
    best, chosen = torch.cat([inside, scores[:, num_blocked:]], dim=1).topk(number)
    behind = chosen - inside.shape[1]  # where it is not negative, behind the last whole block
    block = blocks.gather(1, (chosen // BLOCK_SIZE).clamp_(max=blocks.shape[1] - 1))
    places = torch.where(behind < 0, block * BLOCK_SIZE + chosen % BLOCK_SIZE, num_blocked + behind)
    return best, places


def allowed_options(
    scores: Sequence[float], tokens: Sequence[int], banned: set[int], number: int
) -> list[tuple[float, int]]:
    """The first `number` of a row's best that may follow."""
    found = zip(scores, tokens, strict=True)
    return [(score, token) for score, token in found if token not in banned and score != -torch.inf][:number]
