"""One gradient for embedding and head: equal to autograd's own sum, in one matrix, and in memory that is used again."""

from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from babelcap.models.network import loss, loss_blocks, tied
from babelcap.models.network.captioner import Captioner
from babelcap.models.network.loss import target_token_losses
from babelcap.models.network.tied import (
    Joint,
    carried_gradient,
    empty_gradient,
    forget_gradients,
    keep_gradient,
    look_up,
)
from babelcap.models.sizing.freezing import apply_policy
from babelcap.models.sizing.sizes import size_config

VOCABULARY, WIDTH = 211, 16


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    forget_gradients()
    yield
    forget_gradients()


def gradients(model: Captioner, inputs: dict[str, Tensor], **options: bool) -> dict[str, Tensor]:
    model.zero_grad()
    model(**inputs, **options).loss.backward()
    return {name: parameter.grad.clone() for name, parameter in model.named_parameters() if parameter.grad is not None}


@pytest.mark.parametrize(
    ("size", "packed"), [("micro-florence-xs", False), ("micro-gemma-xs", False), ("micro-gemma-xs", True)]
)
def test_every_gradient_is_that_of_the_plain_path(size: str, packed: bool) -> None:
    """Scaled embeddings, a padding token among the inputs, equal tokens twice, ignored labels."""
    torch.manual_seed(0)
    model = Captioner(size_config(size)).eval()
    apply_policy(model, "text")
    labels = torch.randint(3, 60, (3, 9))
    labels[0, 5:] = -100
    labels[1, 3] = model.config.pad_token_id
    inputs = {"input_ids": torch.randint(3, 60, (3, 5)), "labels": labels}
    plain = gradients(model, inputs)
    tied_ones = gradients(model, inputs, logits_needed=False, packed=packed)
    assert plain.keys() == tied_ones.keys()
    assert plain["decoder.embed_tokens.weight"].abs().sum() > 0
    for name, expected in plain.items():
        scale = max(1.0, expected.abs().max().item())
        torch.testing.assert_close(tied_ones[name] / scale, expected / scale, atol=2e-5, rtol=0, msg=name)


def test_a_lookup_without_a_loss_has_the_module_s_own_gradient() -> None:
    embedding = nn.Embedding(VOCABULARY, WIDTH, padding_idx=4)
    ids, weights = torch.tensor([[1, 4, 1], [7, 0, 210]]), torch.randn(2, 3, WIDTH)
    (embedding(ids) * weights).sum().backward()
    expected, embedding.weight.grad = embedding.weight.grad, None
    (look_up(embedding, ids, Joint()) * weights).sum().backward()
    torch.testing.assert_close(embedding.weight.grad, expected)


def step(embedding: nn.Embedding, ids: Tensor) -> None:
    joint = Joint()
    states = look_up(embedding, ids, joint).tanh()
    target_token_losses(states, embedding.weight, ids, joint=joint)[0].backward()


def test_a_kept_gradient_s_memory_is_used_and_its_contents_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tied, "MIN_KEPT", 1)
    embedding, ids = nn.Embedding(VOCABULARY, WIDTH), torch.randint(VOCABULARY, (4, 6))
    step(embedding, ids)
    assert embedding.weight.grad is not None
    expected = embedding.weight.grad.clone()
    place = embedding.weight.grad.data_ptr()
    keep_gradient(embedding.weight.grad.fill_(torch.nan))
    embedding.weight.grad = None
    step(embedding, ids)
    assert embedding.weight.grad.data_ptr() == place
    torch.testing.assert_close(embedding.weight.grad, expected, atol=0, rtol=0)
    keep_gradient(embedding.weight.grad.fill_(torch.nan))
    embedding.weight.grad = None
    step(embedding, torch.full((1, 1), -100).clamp(min=0))  # another shape of batch
    assert embedding.weight.grad.isfinite().all()


def test_kept_memory_is_given_for_the_same_shape_only(monkeypatch: pytest.MonkeyPatch) -> None:
    keep_gradient(torch.zeros(3, 5))
    assert not tied._kept  # malloc keeps what is small
    monkeypatch.setattr(tied, "MIN_KEPT", 1)
    kept = torch.zeros(3, 5)
    keep_gradient(kept)
    assert empty_gradient(torch.zeros(5, 3)).data_ptr() != kept.data_ptr()
    assert empty_gradient(torch.zeros(3, 5, dtype=torch.float64)).data_ptr() == kept.data_ptr()
    assert empty_gradient(torch.zeros(3, 5)).data_ptr() != kept.data_ptr()  # given once


def test_without_targets_the_gradient_is_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tied, "MIN_KEPT", 1)
    weight = torch.randn(VOCABULARY, WIDTH, requires_grad=True)
    keep_gradient(torch.full((VOCABULARY, WIDTH), torch.nan))
    labels = torch.full((2, 3), -100)
    target_token_losses(torch.randn(2, 3, WIDTH, requires_grad=True), weight, labels)[0].backward()
    assert weight.grad is not None
    assert weight.grad.count_nonzero() == 0


@pytest.mark.parametrize("rows", [1, 50, 64, 211, 1000])
@pytest.mark.parametrize("softcap", [None, 5.0])
def test_blocks_of_any_size_give_the_plain_gradient(
    rows: int, softcap: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loss_blocks, "ROWS", rows)
    torch.manual_seed(1)
    labels = torch.randint(VOCABULARY, (4, 9))
    labels[0, :2] = torch.tensor([0, VOCABULARY - 1])
    found = []
    for plain in (True, False):
        torch.manual_seed(2)
        states, weight = (torch.randn(shape).requires_grad_() for shape in ((4, 9, WIDTH), (VOCABULARY, WIDTH)))
        if plain:
            logits = (states @ weight.t()).flatten(0, 1)
            logits = logits if softcap is None else softcap * torch.tanh(logits / softcap)
            loss = cross_entropy(logits, labels.flatten(), reduction="sum")
        else:
            loss = target_token_losses(states, weight, labels, softcap=softcap, chunk_tokens=7)[0]
        loss.backward()
        found.append([loss.detach(), states.grad, weight.grad])
    for expected, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, expected, atol=1e-4, rtol=1e-5)


def accumulate(embedding: nn.Embedding, parts: list[Tensor], *, carried: bool) -> Tensor:
    embedding.weight.grad = None
    for ids in parts:
        with carried_gradient(embedding.weight) if carried else nullcontext():
            step(embedding, ids)
    assert embedding.weight.grad is not None
    return embedding.weight.grad


@pytest.mark.parametrize("chunk", [None, 4])
def test_micro_batches_add_to_one_gradient_where_it_lies(chunk: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tied, "MIN_KEPT", 1)
    monkeypatch.setattr(loss, "CHUNK_IN_PLACE", (chunk or 2**16) * VOCABULARY)
    torch.manual_seed(3)
    embedding = nn.Embedding(VOCABULARY, WIDTH)
    parts = [torch.randint(VOCABULARY, shape) for shape in ((4, 6), (1, 3), (2, 9))]
    expected = accumulate(embedding, parts, carried=False).clone()
    first = accumulate(embedding, parts[:1], carried=True)
    place = first.data_ptr()
    del first
    for ids in parts[1:]:
        with carried_gradient(embedding.weight):
            step(embedding, ids)
    assert embedding.weight.grad is not None
    assert embedding.weight.grad.data_ptr() == place
    torch.testing.assert_close(embedding.weight.grad, expected, atol=1e-6, rtol=1e-5)


def test_micro_batches_without_targets_leave_what_was_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tied, "MIN_KEPT", 1)
    weight = torch.randn(VOCABULARY, WIDTH, requires_grad=True)
    weight.grad = torch.full_like(weight, 2.0)
    with carried_gradient(weight):
        states = torch.randn(2, 3, WIDTH, requires_grad=True)
        target_token_losses(states, weight, torch.full((2, 3), -100))[0].backward()
    assert (weight.grad == 2).all()


def test_a_gradient_that_no_loss_takes_comes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tied, "MIN_KEPT", 1)
    weight = torch.randn(VOCABULARY, WIDTH, requires_grad=True)
    weight.grad = torch.full_like(weight, 2.0)
    with carried_gradient(weight):
        (3 * weight).sum().backward()
    assert (weight.grad == 5).all()
    with pytest.raises(RuntimeError, match="in between"), carried_gradient(weight):
        raise RuntimeError("in between")
    assert (weight.grad == 5).all()
    assert not tied._carried


def test_a_carried_gradient_is_not_scaled_with_a_later_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tied, "MIN_KEPT", 1)
    weight = torch.randn(VOCABULARY, WIDTH, requires_grad=True)
    weight.grad = torch.zeros_like(weight)
    with carried_gradient(weight):
        states = torch.randn(2, 3, WIDTH, requires_grad=True)
        found = target_token_losses(states, weight, torch.ones(2, 3, dtype=torch.long))[0]
        with pytest.raises(RuntimeError, match="not scaled"):
            (2 * found).backward()
