"""The most likely next tokens of each row, without the logits of the whole vocabulary ever being in memory.

log p = z - log sum exp z, z = cap * tanh(h W^T / cap): the head is multiplied chunk by chunk, and while a chunk's
logits are in the processor's cache they are capped, summed and looked through: in one compiled call where there is one.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from babelcap.errors import UserError
from babelcap.native.best import BestSoFar
from babelcap.native.compiled import find_float_level

Chunks = Iterable[tuple[int, Tensor]]  # the place of the first, logits [rows, some of the vocabulary]
BLOCK_SIZE = 64  # scores looked through at once for the best
CHUNK_OUTPUTS = 2**15  # rows of the head multiplied at once: some megabytes of logits


def chunk_bounds(num_outputs: int) -> Iterator[tuple[int, int]]:
    for start in range(0, num_outputs, CHUNK_OUTPUTS):
        yield start, min(start + CHUNK_OUTPUTS, num_outputs)


def best_tokens(
    head: Any, states: Tensor, weight: Tensor, shortlist: Any, number: int, *, normalised: bool
) -> tuple[Tensor, Tensor]:
    """[rows, number] of each row's best: log-probabilities, or logits where not `normalised`; and token ids."""
    chunks = head.chunks(states, weight, shortlist)
    number = min(number, len(weight if shortlist is None else shortlist.weight))
    level = find_float_level("best") if states.device.type == "cpu" else None
    if level is None:
        best, places, total = look_in_torch(chunks, number, sums=normalised)
    else:
        best, places, total = look_compiled(chunks, number, len(states), level=level, sums=normalised)
    if not torch.isfinite(best[:, 0]).all() or (total is not None and not torch.isfinite(total).all()):
        raise not_finite()
    return best if total is None else best - total[:, None], places


def look_compiled(
    chunks: Chunks, number: int, num_rows: int, *, level: str, sums: bool
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The best logits of each row, their places, and with `sums` log sum exp(logit)."""
    found = BestSoFar(num_rows, number, level=level, sums=sums)
    for start, logits in chunks:
        found.add(logits, start)
    return found.values, found.places, found.log_sum_exp()


def look_in_torch(chunks: Chunks, number: int, *, sums: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """The same without what is compiled, and on a graphics card."""
    scores, places, totals = [], [], []
    room = None  # what a chunk's log-probabilities were written to: fresh memory for each costs more than they do
    for start, logits in chunks:
        found, where = top_scores(logits, min(number, logits.shape[1]))
        scores.append(found)
        places.append(where + start)
        if sums:
            if room is None or room.shape != logits.shape:
                room = logits.new_empty(logits.shape)  # row by row: torch writes wrong values into any other order
            totals.append(log_sum_exp(logits, where[:, :1], room))
    best, chosen = torch.cat(scores, dim=1).topk(number)
    total = torch.stack(totals).logsumexp(dim=0) if sums else None
    return best, torch.cat(places, dim=1).gather(1, chosen), total


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
