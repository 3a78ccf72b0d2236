"""Linear layers by oneDNN: what torch's own give, gradients too; only where a processor gains by it."""

import copy
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from babelcap.errors import UserError
from babelcap.models.network import linear
from babelcap.models.network.linear import VARIABLE, FastLinear, is_served, make_fast, times, uses_onednn

has_onednn = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.fixture
def onednn(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Turned on, for products of any size."""
    monkeypatch.setenv(VARIABLE, "1")
    monkeypatch.setattr(linear, "MIN_PRODUCTS", 1)
    uses_onednn.cache_clear()
    yield
    uses_onednn.cache_clear()


def whole_numbers(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(seed)).float()


def layer_of(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    layer.weight.data = weight
    if bias is not None:
        layer.bias.data = bias
    return layer


@has_onednn
@pytest.mark.usefixtures("onednn")
def test_by_hand() -> None:
    layer = layer_of(torch.tensor([[1.0, 2.0], [3.0, 4.0], [0.0, -1.0]]), torch.tensor([10.0, 20.0, 30.0]))
    make_fast(nn.Sequential(layer))
    states = torch.tensor([[[1.0, 1.0], [2.0, 0.0]]], requires_grad=True)
    found = layer(states)
    assert found.tolist() == [[[13.0, 27.0, 29.0], [12.0, 26.0, 30.0]]]
    (found * torch.tensor([1.0, 0.0, 2.0])).sum().backward()
    assert states.grad is not None
    assert states.grad.tolist() == [[[1.0, 0.0], [1.0, 0.0]]]  # 1 * [1, 2] + 2 * [0, -1]
    assert layer.weight.grad is not None
    assert layer.weight.grad.tolist() == [[3.0, 1.0], [0.0, 0.0], [6.0, 2.0]]  # the sum of states, times 1, 0 and 2
    assert layer.bias.grad is not None
    assert layer.bias.grad.tolist() == [2.0, 0.0, 4.0]


@has_onednn
@pytest.mark.usefixtures("onednn")
@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("shape", [(1, 40), (7, 40), (2, 3, 40), (2, 3, 5, 40)])
@pytest.mark.parametrize("trained", ["states", "weight", "bias", "all", "nothing"])
def test_values_and_gradients_are_those_of_torch(bias: bool, shape: tuple[int, ...], trained: str) -> None:
    """Of whole numbers, whose sums are exact in whatever order they are added."""
    given = whole_numbers(24, 40), whole_numbers(24, seed=1) if bias else None
    theirs, ours = layer_of(*given), layer_of(*map(copy.deepcopy, given))
    make_fast(nn.Sequential(ours))
    gradients = []
    for layer in (theirs, ours):
        states = whole_numbers(*shape, seed=2).requires_grad_(trained in ("states", "all"))
        layer.weight.requires_grad_(trained in ("weight", "all"))
        if layer.bias is not None:
            layer.bias.requires_grad_(trained in ("bias", "all"))
        found = layer(states)
        assert torch.equal(found, functional.linear(states, *given))
        if found.requires_grad:
            found.backward(whole_numbers(*found.shape, seed=3))
        gradients.append([None if part is None else part.grad for part in (states, layer.weight, layer.bias)])
    for their, our in zip(*gradients, strict=True):
        assert (their is None) == (our is None)
        assert their is None or torch.equal(their, our)


@has_onednn
@pytest.mark.usefixtures("onednn")
def test_states_and_weights_that_do_not_lie_row_by_row() -> None:
    weight, states = whole_numbers(24, 40), whole_numbers(6, 40, seed=1)
    expected = states @ weight.t()
    layer = layer_of(weight.t().contiguous().t(), None)
    make_fast(nn.Sequential(layer))
    for given in (states, states.t().contiguous().t(), states.repeat(1, 2)[:, :40]):
        assert torch.equal(layer(given), expected)
        assert torch.equal(times(given, weight.t()), expected)
        assert torch.equal(times(weight, given.t()), expected.t())


@has_onednn
@pytest.mark.usefixtures("onednn")
def test_the_same_bits_every_time_and_no_other_type() -> None:
    layer = nn.Linear(64, 48)
    make_fast(nn.Sequential(layer))
    states = torch.randn(9, 64)
    assert torch.equal(layer(states), layer(states))
    assert torch.equal(layer(states), copy.deepcopy(layer)(states))
    assert not is_served(states.double(), layer.weight.double())
    assert not is_served(states.to("meta"), layer.weight)
    with torch.autocast("cpu", torch.bfloat16):
        assert layer(states).dtype == torch.bfloat16
        assert not is_served(states, layer.weight)
    assert layer.bfloat16()(states.bfloat16()).dtype == torch.bfloat16


@has_onednn
def test_small_products_stay_with_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, "1")
    uses_onednn.cache_clear()
    assert is_served(torch.zeros(2**8, 2**7), torch.zeros(2**7, 2**7))  # 2^22 multiplications
    assert not is_served(torch.zeros(2**8 - 1, 2**7), torch.zeros(2**7, 2**7))
    monkeypatch.setenv(VARIABLE, "0")
    uses_onednn.cache_clear()
    assert not is_served(torch.zeros(2**8, 2**7), torch.zeros(2**7, 2**7))
    uses_onednn.cache_clear()


def test_a_layer_stays_what_it_was() -> None:
    class Other(nn.Linear):
        pass

    layers = nn.Sequential(nn.Linear(4, 4), Other(4, 4), nn.LayerNorm(4))
    state = {name: values.clone() for name, values in layers.state_dict().items()}
    make_fast(layers)
    assert [type(layer) for layer in layers] == [FastLinear, Other, nn.LayerNorm]
    assert list(layers.state_dict()) == list(state)
    assert all(torch.equal(values, state[name]) for name, values in layers.state_dict().items())


@pytest.mark.parametrize(
    ("vendor", "vectors", "expected"),
    [
        ("AuthenticAMD", "AVX512", True),
        ("GenuineIntel", "AVX512", False),
        ("AuthenticAMD", "AVX2", False),
        (None, "AVX512", False),
    ],
)
def test_the_rule_looks_at_the_processor(
    vendor: str | None, vectors: str, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "cpuinfo"
    if vendor is not None:
        told.write_text(f"processor\t: 0\nvendor_id\t: {vendor}\n")
    monkeypatch.setattr(linear, "Path", lambda name: told)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: vectors)
    assert linear._leaves_half_unused() is expected


@pytest.mark.parametrize("value", ["2", "yes"])
def test_another_value_is_refused(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, value)
    uses_onednn.cache_clear()
    with pytest.raises(UserError, match=f"{VARIABLE} is '{value}'"):
        uses_onednn()
    uses_onednn.cache_clear()


@has_onednn
@pytest.mark.usefixtures("onednn")
def test_a_captioner_has_the_same_loss_and_gradients(
    make_captioner: Callable[..., nn.Module], inputs: dict[str, Tensor]
) -> None:
    found = []
    for wanted in ("1", "0"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv(VARIABLE, wanted)
            uses_onednn.cache_clear()
            model = make_captioner("bart").eval()
            loss = model(**inputs, labels=torch.arange(3, 11).view(2, 4)).loss
            loss.backward()
            found.append([loss, *(p.grad for p in model.parameters() if p.grad is not None)])
    assert any(type(module) is FastLinear for module in model.modules())
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)
