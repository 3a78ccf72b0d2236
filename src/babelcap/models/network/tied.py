"""The gradient of an embedding that is the head too, in one matrix that is used again step after step.

The head's gradient is of the whole vocabulary, 0.8 GB at 0.4B; the lookup's is of a few rows. autograd would put both
into matrices of their own and add them up. Here the loss leaves its matrix in a `Joint` on the way back, and the
lookup, which comes after it, adds its rows and hands on the sum. A fresh matrix would also cost the system a page
fault for every 4 KiB, so a training gives the last step's back: `keep_gradient`. Of several micro-batches each would
make a matrix that autograd then adds to the sum; under `carried_gradient` the loss adds to the sum itself.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

MIN_KEPT = 2**23  # numbers: smaller memory stays with malloc anyhow

_kept: list[Tensor] = []
_carried: dict[int, Tensor] = {}  # by where the weight lies: the sum of the micro-batches before


class Joint:
    """Where the loss leaves the head's gradient for the lookup of the same forward pass."""

    def __init__(self) -> None:
        self.gradient: Tensor | None = None

    def add(self, gradient: Tensor) -> None:
        self.gradient = gradient if self.gradient is None else self.gradient.add_(gradient)

    def take(self) -> Tensor | None:
        gradient, self.gradient = self.gradient, None
        return gradient


def joint_of(embedding: nn.Module) -> Joint | None:
    """For an embedding that trains, while gradients are taken; else None, and the lookup is the module's own."""
    weight = embedding.weight
    return Joint() if torch.is_grad_enabled() and isinstance(weight, Tensor) and weight.requires_grad else None


def look_up(embedding: nn.Module, ids: Tensor, joint: Joint) -> Tensor:
    """What the module gives for these ids; its gradient is added to what the loss left in the joint."""
    return _Lookup.apply(embedding.weight, embedding, ids, joint)


class _Lookup(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, embedding: nn.Module, ids: Tensor, joint: Joint) -> Tensor:
        ctx.save_for_backward(ids)
        ctx.scale = getattr(embedding, "embed_scale", 1.0)  # of transformers' scaled embeddings
        ctx.padding, ctx.shape, ctx.kind, ctx.joint = embedding.padding_idx, weight.shape, weight.dtype, joint
        found: Tensor = embedding(ids)
        return found

    @staticmethod
    def backward(ctx: Any, *outer: Tensor) -> tuple[Tensor | None, ...]:
        (ids,), rows = ctx.saved_tensors, outer[0]
        total = ctx.joint.take()
        if total is None:  # no loss came before: the states were used in another way
            total = rows.new_zeros(ctx.shape, dtype=ctx.kind)
        places, rows = ids.flatten(), (rows * ctx.scale).flatten(0, -2).to(total.dtype)
        if ctx.padding is not None:
            rows = rows.masked_fill((places == ctx.padding)[:, None], 0)
        if total.device.type == "cpu":
            total.index_add_(0, places, rows)
        else:  # sorted, and so the same in every run
            total.index_put_((places,), rows, accumulate=True)
        return total, None, None, None


def empty_gradient(weight: Tensor) -> Tensor:
    """Room for a gradient in float32, its contents whatever they were: a kept one where one fits."""
    for place, kept in enumerate(_kept):
        if kept.shape == weight.shape and kept.device == weight.device:
            return _kept.pop(place)
    return torch.empty_like(weight, dtype=torch.float32, memory_format=torch.contiguous_format)


def keep_gradient(gradient: Tensor) -> None:
    """Given back by who holds its last reference. One is kept, and only on processors: a GPU's allocator does so."""
    if _is_worth_it(gradient):
        _kept[:] = [gradient.detach()]


@contextmanager
def carried_gradient(weight: Tensor) -> Iterator[None]:
    """For a forward and a backward pass: the loss adds to the gradient that `weight` has, where there is one.

    Meanwhile `weight` has none. A gradient that no loss took comes back at the end, added to what came by another way.
    """
    before = weight.grad
    if before is None or not _is_worth_it(before):
        yield
        return
    weight.grad = None
    _carried[weight.data_ptr()] = before
    del before  # autograd makes what comes out of the backward pass the gradient without a copy if nobody else has it
    try:
        yield
    finally:
        left = take_carried(weight)
        if left is not None:
            weight.grad = left if weight.grad is None else left.add_(weight.grad)


def take_carried(weight: Tensor) -> Tensor | None:
    return _carried.pop(weight.data_ptr(), None)


def forget_gradients() -> None:
    _kept.clear()


def _is_worth_it(gradient: Tensor) -> bool:
    fits = gradient.device.type == "cpu" and gradient.dtype == torch.float32 and gradient.layout == torch.strided
    return fits and gradient.is_contiguous() and gradient.numel() >= MIN_KEPT
