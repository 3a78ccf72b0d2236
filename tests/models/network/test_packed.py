"""Targets in one row without padding: the losses and gradients of the padded batch."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from babelcap.data.feed.batches import IGNORED_LABEL
from babelcap.models import Captioner
from babelcap.models.network.packed import packing_of

N = IGNORED_LABEL


@pytest.mark.parametrize("kind", ["gemma2", "gemma3"])
def test_losses_and_gradients_are_those_of_the_padded_batch(
    make_captioner: Callable[..., Captioner], inputs: dict[str, Tensor], kind: str
) -> None:
    """Longer than the sliding window, with a prefix that is given and not scored."""
    model = make_captioner(kind)
    num = len(inputs["input_ids"])
    rows = [[2, 5, 6, 7, 8, 9, 10, 11, 1], [N, N, 12, 13, 1, N, N, N, N], [2, 1, N, N, N, N, N, N, N]]
    labels = torch.tensor(rows * num)[:num]
    ids = torch.randint(3, 90, labels.shape, generator=torch.Generator().manual_seed(1))
    found = []
    for packed in (False, True):
        model.zero_grad()
        output = model(**inputs, decoder_input_ids=ids, labels=labels, logits_needed=False, packed=packed)
        output.loss.backward()
        gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
        found.append((output.loss.detach(), output.token_losses, gradients))
    torch.testing.assert_close(found[1][0], found[0][0], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(found[1][1], found[0][1], rtol=1e-4, atol=1e-4)
    assert found[1][2].keys() == found[0][2].keys()
    for name, gradient in found[0][2].items():
        torch.testing.assert_close(found[1][2][name], gradient, rtol=1e-3, atol=1e-4, msg=name)


def test_tokens_come_back_to_their_places() -> None:
    labels = torch.tensor([[2, 7, 1], [N, 1, N]])
    packing = packing_of(labels)
    assert packing.gather(labels).tolist() == [2, 7, 1, N, 1]
    assert packing.positions().tolist() == [0, 1, 2, 0, 1]
    assert packing.spread(torch.arange(1.0, 6.0)).tolist() == [[1, 2, 3], [4, 5, 0]]
    masks = packing.masks(sliding_window=2)
    assert masks["full_attention"][0, 0, 2].tolist() == [True, True, True]
    assert masks["sliding_attention"][0, 0, 2].tolist() == [False, True, True]


def test_attention_is_as_before_afterwards(make_captioner: Callable[..., Captioner], inputs: dict[str, Tensor]) -> None:
    model = make_captioner("gemma3")
    before = model.decoder.config._attn_implementation
    labels = torch.full((len(inputs["input_ids"]), 3), 5)
    model(**inputs, labels=labels, logits_needed=False, packed=True)
    assert model.decoder.config._attn_implementation == before
