"""The compiled product of a few rows: exact on whole numbers, the same for a row alone and among others."""

import itertools
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from babelcap.errors import UserError
from babelcap.models.generation import products
from babelcap.models.generation.products import KINDS, NATIVE
from babelcap.native import compiled, float32
from babelcap.native.compiled import find_float_level, known_float_levels
from babelcap.native.float32 import make_product

LEVELS = known_float_levels("float32")
is_compiled = pytest.mark.skipif(not LEVELS, reason="nothing was compiled for this processor")


def whole_numbers(*shape: int, seed: int = 0) -> Tensor:
    """Small enough for all sums to be exact, in whatever order they are added."""
    return torch.randint(-8, 9, shape, generator=torch.Generator().manual_seed(seed)).float()


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture
def two_threads() -> Iterator[None]:
    was = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(was)


@is_compiled
def test_by_hand() -> None:
    weight = torch.tensor([[1.0, 2.0, 3.0], [0.5, -1.0, 4.0]])
    states = torch.tensor([[1.0, 0.0, -1.0], [2.0, 2.0, 0.25]])
    for level in LEVELS:
        assert make_product(weight, None, level=level)(states).tolist() == [[-2.0, -3.5], [6.75, 0.0]]
        bias = torch.tensor([10.0, 20.0])
        assert make_product(weight, bias, level=level)(states).tolist() == [[8.0, 16.5], [16.75, 20.0]]


@is_compiled
@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("num_inputs", [1, 7, 8, 9, 15, 16, 17, 100, 768, 1023, 1024, 1025, 3072])
def test_whole_numbers_are_exact_for_every_shape(level: str, num_inputs: int) -> None:
    for num_rows, num_outputs in itertools.product((1, 2, 3, 4, 5, 6, 7, 9, 16), (1, 2, 3, 5, 6, 7, 12, 13, 100)):
        weight, bias = whole_numbers(num_outputs, num_inputs), whole_numbers(num_outputs, seed=1)
        states = whole_numbers(num_rows, num_inputs, seed=2)
        for given in (None, bias):
            found = make_product(weight, given, level=level)(states)
            assert torch.equal(found, functional.linear(states, weight, given)), (num_rows, num_outputs)


@is_compiled
@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("num_inputs", [33, 768, 2500])
def test_a_row_is_the_same_alone_and_among_others(level: str, num_inputs: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a text does not depend on the texts that are written beside it, nor on the number of threads."""
    weight, bias, states = drawn(101, num_inputs), drawn(101, seed=1), drawn(17, num_inputs, seed=2)
    product = make_product(weight, bias, level=level)
    together = product(states)
    exact = functional.linear(states.double(), weight.double(), bias.double())
    assert ((together - exact).abs() < 1e-6 * num_inputs).all()
    for row in range(17):
        assert torch.equal(product(states[row : row + 1])[0], together[row])
        assert torch.equal(product(states[row:]), together[row:])
    monkeypatch.setattr(float32, "parallel_address", lambda: 0)
    assert torch.equal(make_product(weight, bias, level=level)(states), together)
    some = make_product(weight[13:50], bias[13:50], level=level)(states)  # other tiles
    assert torch.equal(some, together[:, 13:50])


@is_compiled
@pytest.mark.parametrize("level", LEVELS)
def test_nothing_beside_the_values_is_read_or_written(level: str) -> None:
    """What is no number lies on both sides of states, weight and bias: had it been read, results would be none."""
    for num_rows, num_outputs, num_inputs in itertools.product((1, 5), (1, 7), (1, 9, 17, 30)):

        def fenced(*shape: int) -> Tensor:
            size = torch.Size(shape).numel()
            memory = torch.full((size + 64,), torch.nan)
            memory[32 : 32 + size] = 1.0
            return memory[32 : 32 + size].view(shape)

        product = make_product(fenced(num_outputs, num_inputs), fenced(num_outputs), level=level)
        assert (product(fenced(num_rows, num_inputs)) == num_inputs + 1).all()


@is_compiled
def test_what_is_no_number_stays_in_its_row() -> None:
    weight, states = drawn(9, 40), drawn(4, 40, seed=1)
    states[1, 3], states[2, 39] = torch.nan, torch.inf
    found = make_product(weight, None, level=LEVELS[0])(states)
    assert found[[0, 3]].isfinite().all()
    assert not found[[1, 2]].isfinite().any()


@is_compiled
def test_rows_that_lie_apart_more_dimensions_and_none() -> None:
    weight, states = whole_numbers(40, 64), whole_numbers(24, 64, seed=1)
    product, expected = make_product(weight, None, level=LEVELS[0]), states @ weight.t()
    assert torch.equal(product(states.t().contiguous().t()), expected)
    assert torch.equal(product(states.repeat(1, 2)[:, :64]), expected)
    assert torch.equal(product(states.view(2, 3, 4, 64)), expected.view(2, 3, 4, 40))
    assert product(states[:0]).shape == (0, 40)


@is_compiled
def test_the_weight_is_not_copied() -> None:
    weight, states = torch.ones(4, 8), torch.ones(1, 8)
    product = make_product(weight, None, level=LEVELS[0])
    weight[2] = 3.0
    assert product(states).tolist() == [[8.0, 8.0, 24.0, 8.0]]


@is_compiled
def test_bad_arguments_are_refused() -> None:
    weight, bias, level = drawn(6, 8), drawn(6), LEVELS[-1]
    for wrong in (weight.double(), weight.to("meta"), weight[0], weight[:0], weight.t(), weight[:, :4]):
        with pytest.raises(ValueError, match=r"multiplied|taken"):
            make_product(wrong, None, level=level)
    for other in (bias[:-1], bias.double(), bias.to("meta")):
        with pytest.raises(ValueError, match=r"multiplied|taken|values for"):
            make_product(weight, other, level=level)
    with pytest.raises(ValueError, match="not in list"):
        make_product(weight, bias, level="avx")
    for states in (weight[:, :-1], weight.double(), weight.to("meta"), weight.to(torch.bfloat16)):
        with pytest.raises(ValueError, match="processor are"):
            make_product(weight, bias, level=level)(states)


@is_compiled
def test_the_compiled_function_refuses_what_it_can() -> None:
    multiply = compiled.compiled_module("float32").multiply
    rest = [0, 1, 0, 1, 4, 0, 0, 4, 0]
    for given in ([99, *rest], [-1, *rest], ["a", *rest], rest, [0, 0, 1, 0, 0, 4, 0, 0, 4, 0]):
        with pytest.raises((ValueError, TypeError, OverflowError)):
            multiply(*given)


def test_levels_are_asked_by_name_and_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names are those of int8: what it needs beyond AVX-512 or AVX2 this product does not need."""
    monkeypatch.setattr(compiled, "known_float_levels", lambda name: ["avx512", "avx2"])
    expected = {None: "avx512", "1": "avx512", "avx512vnni": "avx512", "avxvnni": "avx2", "avx2": "avx2", "0": None}
    for value, level in expected.items():
        monkeypatch.delenv(compiled.VARIABLE, raising=False)
        if value is not None:
            monkeypatch.setenv(compiled.VARIABLE, value)
        assert find_float_level("float32") == level
    monkeypatch.setattr(compiled, "known_float_levels", lambda name: ["avx2"])
    monkeypatch.setenv(compiled.VARIABLE, "avx512vnni")
    assert find_float_level("float32") is None
    monkeypatch.setenv(compiled.VARIABLE, "sse")
    with pytest.raises(UserError, match="BABELCAP_NATIVE is 'sse'"):
        find_float_level("float32")


@pytest.mark.parametrize("reason", ["not compiled", "turned off"])
def test_without_what_is_compiled_torch_multiplies(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason == "turned off":
        monkeypatch.setenv(compiled.VARIABLE, "0")
    else:
        monkeypatch.setitem(sys.modules, "babelcap.native._float32", None)
        monkeypatch.setattr(compiled, "compiled_module", compiled.compiled_module.__wrapped__)
        assert known_float_levels("float32") == []
    assert find_float_level("float32") is None
    assert not KINDS[NATIVE].is_known()
    weight, states = whole_numbers(40, 64), whole_numbers(3, 64, seed=1)
    assert torch.equal(products.make_product(NATIVE, weight, None, 3)(states), states @ weight.t())
