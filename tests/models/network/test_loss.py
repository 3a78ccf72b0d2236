"""The loss in chunks against the plain one: values, gradients, what is frozen, bf16 and FSDP2."""

import os
import socket
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor
from torch.nn.functional import cross_entropy, linear

from babelcap.errors import UserError
from babelcap.models.network import loss as loss_module
from babelcap.models.network import loss_blocks
from babelcap.models.network.loss import target_token_loss, target_token_losses
from babelcap.models.network.tied import Joint, look_up

WIDTH, VOCABULARY = 16, 211


def plain_loss(
    hidden: Tensor, weight: Tensor, labels: Tensor, softcap: float | None, bias: Tensor | None, reduction: str = "mean"
) -> Tensor:
    logits = linear(hidden, weight, bias).float()
    if softcap is not None:
        logits = torch.tanh(logits / softcap) * softcap
    return cross_entropy(logits.flatten(0, -2), labels.flatten(), reduction=reduction)


def inputs(seed: int = 0, spread: float = 3.0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    hidden = torch.randn(4, 9, WIDTH, generator=generator) * spread
    weight = torch.randn(VOCABULARY, WIDTH, generator=generator)
    bias = torch.randn(VOCABULARY, generator=generator)
    labels = torch.randint(VOCABULARY, (4, 9), generator=generator)
    labels[0, 3:] = -100
    labels[2] = -100
    return hidden, weight, labels, bias


@pytest.mark.parametrize("block", [(2, 50), (5, 211), (100, 64), (1, 1)])
@pytest.mark.parametrize("softcap", [None, 5.0])
def test_without_gradients_blocks_of_the_head_add_up(
    block: tuple[int, int], softcap: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The blocks do not divide the vocabulary evenly, and targets lie in all of them."""
    monkeypatch.setattr(loss_module, "BLOCK_TOKENS", block[0])
    monkeypatch.setattr(loss_module, "BLOCK_ROWS", block[1])
    hidden, weight, labels, bias = inputs()
    labels[1, :2] = torch.tensor([0, VOCABULARY - 1])
    with torch.no_grad():
        losses = target_token_loss(hidden, weight, labels, softcap, bias, reduction="none")
    plain = plain_loss(hidden, weight, labels, softcap, bias, "none").reshape(labels.shape)
    torch.testing.assert_close(losses, plain, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("softcap", [None, 30.0, 5.0])
@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("chunk_tokens", [1, 7, None])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_value_and_gradients_equal_the_plain_loss(
    softcap: float | None, with_bias: bool, chunk_tokens: int | None, reduction: str
) -> None:
    hidden, weight, labels, bias = inputs()
    results = []
    for loss_of in ("plain", "chunked"):
        leaves = [tensor.clone().requires_grad_() for tensor in (hidden, weight, bias)]
        given_bias = leaves[2] if with_bias else None
        if loss_of == "plain":
            loss = plain_loss(leaves[0], leaves[1], labels, softcap, given_bias, reduction)
        else:
            loss = target_token_loss(leaves[0], leaves[1], labels, softcap, given_bias, chunk_tokens, reduction)
        (loss * 0.5).backward()
        results.append([loss.detach()] + [leaf.grad for leaf in leaves if leaf.grad is not None])
    assert len(results[0]) == len(results[1]) == 3 + with_bias
    for plain, chunked in zip(*results, strict=True):
        scale = max(1.0, plain.abs().max().item())
        torch.testing.assert_close(chunked / scale, plain / scale, atol=1e-5, rtol=0)


def test_extreme_logits_stay_finite() -> None:
    hidden, weight, labels, _ = inputs(spread=100.0)
    hidden.requires_grad_()
    loss = target_token_loss(hidden, weight, labels)
    loss.backward()
    torch.testing.assert_close(loss, plain_loss(hidden, weight, labels, None, None), rtol=1e-5, atol=1e-5)
    assert loss > 100
    assert hidden.grad is not None
    assert hidden.grad.isfinite().all()


@pytest.mark.parametrize("frozen", ["hidden", "weight"])
def test_what_is_frozen_gets_no_gradient(frozen: str) -> None:
    hidden, weight, labels, _ = inputs()
    hidden.requires_grad_(frozen != "hidden")
    weight.requires_grad_(frozen != "weight")
    target_token_loss(hidden, weight, labels, 30.0).backward()
    assert (hidden.grad is None) == (frozen == "hidden")
    assert (weight.grad is None) == (frozen == "weight")


def test_each_tokens_loss_without_gradient() -> None:
    hidden, weight, labels, _ = inputs()
    hidden.requires_grad_()
    losses = target_token_loss(hidden, weight, labels, 30.0, chunk_tokens=4, reduction="none")
    expected = plain_loss(hidden, weight, labels, 30.0, None, "none").view_as(labels)
    torch.testing.assert_close(losses, expected.detach(), atol=1e-5, rtol=1e-5)
    assert not losses.requires_grad
    assert (losses[2] == 0).all()


def test_each_tokens_loss_comes_with_the_training_loss() -> None:
    hidden, weight, labels, _ = inputs()
    hidden.requires_grad_()
    loss, losses = target_token_losses(hidden, weight, labels, 0.25, 30.0, chunk_tokens=4)
    torch.testing.assert_close(losses, target_token_loss(hidden, weight, labels, 30.0, reduction="none"))
    torch.testing.assert_close(loss.detach(), losses.sum() / 4)
    assert loss.requires_grad
    assert not losses.requires_grad


def test_no_target_token_gives_zero_and_zero_gradients() -> None:
    hidden, weight, labels, _ = inputs()
    hidden.requires_grad_()
    weight.requires_grad_()
    loss = target_token_loss(hidden, weight, torch.full_like(labels, -100))
    loss.backward()
    assert loss == 0
    assert weight.grad is not None
    assert not weight.grad.any()


@pytest.mark.parametrize("wrong", [VOCABULARY, -1])
def test_a_label_outside_the_vocabulary_is_one_line(wrong: int) -> None:
    hidden, weight, labels, _ = inputs()
    labels[0, 0] = wrong
    with pytest.raises(UserError, match=f"token id {wrong} is outside the vocabulary of {VOCABULARY}"):
        target_token_loss(hidden, weight, labels)


@pytest.mark.parametrize("softcap", [None, 5.0])
@pytest.mark.parametrize("chunk", [None, 4])
def test_in_bfloat16_blocks_of_the_head_and_chunks_add_up(
    softcap: float | None, chunk: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Under autocast, in blocks that do not divide the vocabulary: values and all gradients, summed in float32."""
    monkeypatch.setattr(loss_blocks, "LOW_ROWS", 50)
    hidden, weight, labels, bias = inputs(spread=1.0)
    given = [part.requires_grad_() for part in (hidden, weight, bias)]
    plain_loss(hidden, weight, labels, softcap, bias, "sum").backward()
    exact = [part.grad.clone() for part in given]
    for part in given:
        part.grad = None
    with torch.autocast("cpu", torch.bfloat16):
        loss = target_token_loss(hidden, weight, labels, softcap, bias, chunk_tokens=chunk, reduction="sum")
    loss.backward()
    torch.testing.assert_close(loss, plain_loss(hidden, weight, labels, softcap, bias, "sum"), rtol=2e-3, atol=0)
    for part, wanted in zip(given, exact, strict=True):
        assert part.grad.dtype == torch.float32
        assert (part.grad - wanted).norm() < 0.01 * wanted.norm()


@pytest.mark.parametrize("autocast", [True, False])
def test_bfloat16_is_as_near_to_float32_as_the_plain_loss_in_bfloat16(autocast: bool) -> None:
    hidden, weight, labels, _ = inputs(spread=1.0)
    kind = torch.float32 if autocast else torch.bfloat16
    grads = {}
    for name, tensor_kind in (("exact", torch.float32), ("plain", kind), ("chunked", kind)):
        leaves = [tensor.clone().to(tensor_kind).requires_grad_() for tensor in (hidden, weight)]
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast and name != "exact"):
            if name == "chunked":
                loss = target_token_loss(*leaves, labels, 30.0, chunk_tokens=5)
            else:
                loss = plain_loss(*leaves, labels, 30.0, None)
        loss.backward()
        assert loss.dtype == torch.float32
        assert all(leaf.grad is not None and leaf.grad.dtype == tensor_kind for leaf in leaves)
        grads[name] = [loss.detach()] + [leaf.grad.float() for leaf in leaves if leaf.grad is not None]
    for exact, plain, chunked in zip(*grads.values(), strict=True):
        plain_error, chunked_error = (plain - exact).norm(), (chunked - exact).norm()
        assert chunked_error <= 1.5 * plain_error + 1e-5 * exact.norm()
        assert chunked_error <= 0.01 * exact.norm()


class TiedHead(nn.Module):
    """The captioner's shape in small: one weight for embedding and head, the loss inside the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.embed_tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, tokens: Tensor, labels: Tensor, chunked: bool = True) -> Tensor:
        joint = Joint() if chunked else None
        words = self.embed_tokens(tokens) if joint is None else look_up(self.embed_tokens, tokens, joint)
        hidden = torch.tanh(self.layer(words))
        if joint is not None:
            scale = 1 / tokens.numel()
            return target_token_losses(hidden, self.embed_tokens.weight, labels, scale, 30.0, None, 4, joint)[0]
        return plain_loss(hidden, self.embed_tokens.weight, labels, 30.0, None)


def shard_worker(rank: int, port: int) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE="2")
    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=rank, world_size=2)
    try:
        check_sharded(rank, low_precision=False)
        check_sharded(rank, low_precision=True)
    finally:
        dist.destroy_process_group()


def check_sharded(rank: int, low_precision: bool) -> None:
    torch.manual_seed(0)
    whole, sharded = TiedHead(), TiedHead()
    sharded.load_state_dict(whole.state_dict())
    policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if low_precision else MixedPrecisionPolicy()
    mesh = dist.init_device_mesh("cpu", (2,))
    fully_shard(sharded.layer, mesh=mesh, mp_policy=policy)
    fully_shard(sharded, mesh=mesh, mp_policy=policy)
    tokens = torch.randint(VOCABULARY, (2, 6, 5), generator=torch.Generator().manual_seed(1))
    sharded(tokens[rank], tokens[rank]).backward()
    (sum(whole(part, part, chunked=False) for part in tokens) / 2).backward()
    tolerance = {"atol": 2e-3, "rtol": 2e-2} if low_precision else {"atol": 1e-5, "rtol": 0}
    for name, parameter in sharded.named_parameters():
        assert isinstance(parameter.grad, DTensor), name
        expected = whole.get_parameter(name).grad
        torch.testing.assert_close(parameter.grad.full_tensor(), expected, **tolerance)
    weight = next(iter(sharded.parameters()))
    with pytest.raises(TypeError, match="sharded"):
        target_token_loss(torch.zeros(1, WIDTH), weight, torch.zeros(1, dtype=torch.long))


def test_under_fsdp_on_two_ranks() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [
        subprocess.Popen([sys.executable, __file__, str(rank), str(port)], stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    errors = [rank.communicate(timeout=120)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], "\n".join(errors)


if __name__ == "__main__":  # one rank
    shard_worker(int(sys.argv[1]), int(sys.argv[2]))
