"""The target-token loss without the logits: head and cross-entropy in chunks of tokens.

loss_i = logsumexp_v(z_iv) - z_i,label_i with z = cap * tanh((h W^T + b) / cap), or z = h W^T + b where there is no cap.
The gradient of a chunk is taken while its logits are at hand, in the forward pass, so that no product is done twice:
three products a step as in the plain path, where recomputing the logits in the backward pass would take four. On
processors, in float32 or bfloat16, a chunk goes through the head block by block (loss_blocks.py).
"""

from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

from babelcap.data.feed.batches import IGNORED_LABEL
from babelcap.errors import UserError
from babelcap.models.network.linear import times
from babelcap.models.network.loss_blocks import Gradients, add_product, block_losses
from babelcap.models.network.tied import Joint, empty_gradient, take_carried

CHUNK_LOGITS = 2**25  # numbers of one chunk's logits: 128 MiB in float32
CHUNK_IN_PLACE = 2**26  # where the softmax is computed in the logits' place, as on processors
BLOCK_TYPES = {torch.float32, torch.bfloat16}
BLOCK_TOKENS, BLOCK_ROWS = 512, 4096  # of states and of the head: logits that stay in a processor's cache

Reduction = Literal["mean", "sum", "none"]


def target_token_loss(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    softcap: float | None = None,
    bias: Tensor | None = None,
    chunk_tokens: int | None = None,
    reduction: Reduction = "mean",
) -> Tensor:
    """Cross-entropy of `labels` (any shape, -100 ignored) given decoder states `hidden` (labels' shape + width).

    `mean` is over the target tokens (0 where there are none), `sum` leaves the normalising to the caller, `none` gives
    each token's loss in the shape of `labels` (0 where ignored) without a gradient.
    """
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"reduction is mean, sum or none, not {reduction!r}")
    if reduction == "none":
        with torch.no_grad():
            return target_token_losses(hidden, weight, labels, 1.0, softcap, bias, chunk_tokens)[1]
    scale = 1 / max(1, int((labels != IGNORED_LABEL).sum())) if reduction == "mean" else 1.0
    return target_token_losses(hidden, weight, labels, scale, softcap, bias, chunk_tokens)[0]


def target_token_losses(
    hidden: Tensor,
    weight: Tensor,
    labels: Tensor,
    scale: float = 1.0,
    softcap: float | None = None,
    bias: Tensor | None = None,
    chunk_tokens: int | None = None,
    joint: Joint | None = None,
) -> tuple[Tensor, Tensor]:
    """The summed loss times `scale`, with its gradient, and each token's loss in the shape of `labels`, without.

    Both are float32. Under autocast the products are in autocast's type; sums, and the gradient of the weight over the
    chunks, are gathered in float32 always. With a `joint` the weight's gradient is left there, for the lookup of the
    same forward pass to hand on (tied.py).
    """
    if isinstance(weight, DTensor):
        raise TypeError(
            "the head's weight is sharded here: compute the loss in the forward of the module given to FSDP"
        )
    kept = labels != IGNORED_LABEL
    targets = labels[kept]
    _check_targets(targets, weight.shape[0])
    states = hidden[kept]  # ignored positions never reach the product
    compute_type = _compute_type(hidden)
    in_blocks = _in_blocks(states, weight, compute_type)
    chunk = chunk_tokens or max(1, (CHUNK_IN_PLACE if in_blocks else CHUNK_LOGITS) // weight.shape[0])
    needed = [states.requires_grad, weight.requires_grad, bias is not None and bias.requires_grad]
    if torch.is_grad_enabled() and any(needed):
        loss, losses = _ChunkedLoss.apply(states, weight, bias, targets, softcap, chunk, compute_type, scale, joint)
    else:
        on_processor = states.device.type == "cpu" and chunk_tokens is None
        block = (BLOCK_TOKENS, BLOCK_ROWS) if on_processor else (chunk, weight.shape[0])
        losses = _losses(states, weight, targets, softcap, bias, block, compute_type)
        loss = losses.sum() * scale
    each = torch.zeros(labels.shape, dtype=torch.float32, device=losses.device).masked_scatter(kept, losses)
    return loss, each


def _check_targets(targets: Tensor, vocabulary_size: int) -> None:
    if targets.numel() == 0:
        return
    lowest, highest = int(targets.min()), int(targets.max())
    if lowest < 0 or highest >= vocabulary_size:
        wrong = lowest if lowest < 0 else highest
        raise UserError(f"labels: token id {wrong} is outside the vocabulary of {vocabulary_size}; use -100 to ignore")


def _compute_type(hidden: Tensor) -> torch.dtype:
    device = hidden.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype


def _in_blocks(states: Tensor, weight: Tensor, compute_type: torch.dtype) -> bool:
    return states.device.type == "cpu" and {states.dtype, weight.dtype, compute_type} <= BLOCK_TYPES


def _logits(states: Tensor, weight: Tensor, bias: Tensor | None, softcap: float | None) -> tuple[Tensor, Tensor | None]:
    """The chunk's logits in float32, and tanh(z / cap) for the cap's derivative."""
    logits = times(states, weight.t()).float()
    if bias is not None:
        logits += bias.float()
    if softcap is None:
        return logits, None
    squashed = logits.div_(softcap).tanh_()
    return squashed * softcap, squashed


def _losses(
    states: Tensor,
    weight: Tensor,
    targets: Tensor,
    softcap: float | None,
    bias: Tensor | None,
    block: tuple[int, int],
    compute_type: torch.dtype,
) -> Tensor:
    """By blocks of tokens and of the head's rows, whose sums of exponentials are added up."""
    losses = torch.empty(targets.shape, dtype=torch.float32, device=states.device)
    num_tokens, num_rows = block
    with torch.no_grad(), torch.autocast(states.device.type, enabled=False):
        weight, states = weight.to(compute_type), states.to(compute_type)
        for start in range(0, targets.numel(), num_tokens):
            part = slice(start, start + num_tokens)
            wanted = targets[part]
            total, picked = losses.new_full(wanted.shape, -torch.inf), losses.new_zeros(wanted.shape)
            for first in range(0, weight.shape[0], num_rows):
                rows = slice(first, first + num_rows)
                logits, _ = _logits(states[part], weight[rows], None if bias is None else bias[rows], softcap)
                places = wanted - first
                here = (places >= 0) & (places < logits.shape[1])
                found = logits.gather(1, places.clamp(0, logits.shape[1] - 1)[:, None]).squeeze(1)
                picked = torch.where(here, found, picked)
                total = torch.logaddexp(total, logits.logsumexp(dim=1))
            losses[part] = total - picked
    return losses


class _ChunkedLoss(torch.autograd.Function):
    """The summed loss times `scale`, and each token's loss. Gradients of what is frozen are not computed."""

    @staticmethod
    def forward(
        ctx: Any,
        states: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        softcap: float | None,
        chunk: int,
        compute_type: torch.dtype,
        scale: float,
        joint: Joint | None,
    ) -> tuple[Tensor, Tensor]:
        want_states, want_weight, want_bias = ctx.needs_input_grad[:3]
        in_blocks = _in_blocks(states, weight, compute_type)
        head = weight if in_blocks else weight.to(compute_type)
        inputs = states.to(compute_type)
        grad_states = torch.empty_like(states, dtype=torch.float32 if in_blocks else None) if want_states else None
        carried = take_carried(weight) if want_weight else None  # the sum of micro-batches before
        grad_weight = carried if carried is not None or not want_weight else empty_gradient(weight)
        grad_bias = torch.zeros_like(bias, dtype=torch.float32) if want_bias and bias is not None else None
        losses = torch.empty(targets.shape, dtype=torch.float32, device=states.device)
        if grad_weight is not None and carried is None and not (in_blocks and targets.numel()):
            grad_weight.zero_()  # else the first chunk writes it
        with torch.autocast(states.device.type, enabled=False):
            for start in range(0, targets.numel(), chunk):
                part = slice(start, start + chunk)
                if in_blocks:
                    own = Gradients(None if grad_states is None else grad_states[part], grad_weight, grad_bias)
                    is_first = start == 0 and carried is None
                    losses[part] = block_losses(inputs[part], head, bias, targets[part], softcap, scale, own, is_first)
                    continue
                grad, losses[part] = _chunk_gradient(inputs[part], head, bias, targets[part], softcap)
                if grad_bias is not None:
                    grad_bias += grad.sum(dim=0) * scale
                grad = grad.to(compute_type)
                if grad_states is not None:
                    grad_states[part] = (grad @ head).mul_(scale)
                if grad_weight is not None:
                    add_product(grad_weight, grad.t(), inputs[part] * scale)
        ctx.gradients = (grad_states, grad_weight, grad_bias)
        ctx.joint, ctx.has_carried = joint, carried is not None
        ctx.types = (states.dtype, weight.dtype, bias.dtype if bias is not None else None)
        ctx.mark_non_differentiable(losses)
        return losses.sum() * scale, losses

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        factor = outer[0]
        if ctx.gradients is None:
            raise RuntimeError("the gradients of this loss were used already; call the loss again")
        given = list(ctx.gradients)
        ctx.gradients = None  # so that the large one becomes the parameter's .grad without a copy
        if factor != 1:
            if ctx.has_carried:  # by another loss: not to be scaled with this one
                raise RuntimeError("a loss that adds to a carried gradient goes backward as it is, not scaled")
            for gradient in given:
                if gradient is not None:
                    gradient.mul_(factor)
        given = [
            None if gradient is None else gradient.to(kind) for gradient, kind in zip(given, ctx.types, strict=True)
        ]
        if ctx.joint is not None and given[1] is not None:
            ctx.joint.add(given[1])
            given[1] = None
        return (*given, None, None, None, None, None, None)


def _chunk_gradient(
    states: Tensor, weight: Tensor, bias: Tensor | None, targets: Tensor, softcap: float | None
) -> tuple[Tensor, Tensor]:
    """d(sum of losses)/d(h W^T + b) of one chunk, softmax minus one at the target, times 1 - tanh^2; and the losses."""
    logits, squashed = _logits(states, weight, bias, softcap)
    log_probability = logits.log_softmax(dim=1)
    del logits
    column = targets[:, None]
    losses = -log_probability.gather(1, column).squeeze(1)
    grad = log_probability.exp_()
    grad.scatter_add_(1, column, torch.full_like(column, -1, dtype=grad.dtype))
    if squashed is not None:
        grad.addcmul_(grad, squashed.square_(), value=-1)
    return grad, losses
