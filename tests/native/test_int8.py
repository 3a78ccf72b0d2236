"""The compiled product: the same bits as oneDNN's and torch's small calls, for each level that this processor has."""

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor

from babelcap.errors import UserError
from babelcap.models.generation import products
from babelcap.models.generation.products import INT8, KINDS, NATIVE_INT8, round_weight
from babelcap.native import compiled, int8, threads
from babelcap.native.int8 import Level, find_level, known_levels, make_product, pack

LEVELS = known_levels()
# Of oneDNN's way too, which adds products in 16 bits on processors without VNNI.
CHOICES = [
    (level, zero)
    for level in LEVELS
    for zero in (128, 64)
    if zero <= level.max_zero and (zero == 64 or torch.cpu._is_vnni_supported())
]
is_compiled = pytest.mark.skipif(not LEVELS, reason="nothing was compiled for this processor")
compares = pytest.mark.skipif(not LEVELS or not KINDS[INT8].is_known(), reason="there are not two ways here")


@pytest.fixture(params=CHOICES, ids=lambda choice: f"{choice[0].name}-{choice[1]}")
def chosen(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[Level, int]:
    """A level and a zero point, which oneDNN's way is told too."""
    monkeypatch.setattr(products, "_has_exact_sums", lambda: request.param[1] == 128)
    return request.param


def both(chosen: tuple[Level, int], weight: Tensor, bias: Tensor | None, states: Tensor) -> tuple[Tensor, Tensor]:
    (level, zero), (whole, scales) = chosen, round_weight(weight)
    ours = make_product(whole, scales, bias, largest=zero - 1, zero=zero, level=level)
    return ours(states), products._int8(weight, bias, len(states))(states)


def drawn(num_rows: int, num_outputs: int, num_inputs: int, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(num_outputs, num_inputs, generator=generator) / num_inputs**0.5
    bias, states = torch.randn(num_outputs, generator=generator), torch.randn(num_rows, num_inputs, generator=generator)
    return weight, bias, states * 10 ** (3 * torch.randn(num_rows, 1, generator=generator))


@compares
@pytest.mark.parametrize("with_bias", [True, False])
def test_the_same_bits_for_every_number_of_rows(chosen: tuple[Level, int], with_bias: bool) -> None:
    for num_rows in (*range(1, 41), 300):
        weight, bias, states = drawn(num_rows, 70, 99, seed=num_rows)
        assert torch.equal(*both(chosen, weight, bias if with_bias else None, states)), num_rows


@compares
@pytest.mark.parametrize("num_inputs", [1, 2, 3, 4, 5, 64, 67, 768, 3072])
def test_the_same_bits_for_every_shape(chosen: tuple[Level, int], num_inputs: int) -> None:
    for num_outputs, with_bias in itertools.product((1, 15, 16, 17, 63, 64, 65, 200), (True, False)):
        weight, bias, states = drawn(7, num_outputs, num_inputs, seed=num_outputs)
        assert torch.equal(*both(chosen, weight, bias if with_bias else None, states)), num_outputs


@compares
def test_more_rows_than_a_block(chosen: tuple[Level, int]) -> None:
    weight, bias, states = drawn(700, 130, 256)
    assert torch.equal(*both(chosen, weight, bias, states))


@compares
def test_the_same_bits_at_the_edges(chosen: tuple[Level, int]) -> None:
    """Rows of zeros, huge and tiny ones, halves between two whole numbers, and sums that are the largest there are."""
    weight, bias, states = drawn(12, 50, 3072)
    states[0], states[1, 1:], states[2], weight[3] = 0.0, 0.0, states[2].sign() * 3e38, 0.0
    states[3] = states[3].sign() * 1e-40
    states[4], states[5] = (torch.arange(3072) % 253 - 126) / 2, 1.0
    states[6], weight[4], weight[5] = -1.0, 1.0, -1.0
    for given in (None, bias):
        ours, theirs = both(chosen, weight, given, states)
        assert torch.equal(ours, theirs)
    assert ours[0].tolist() == bias.tolist()


@compares
def test_what_is_no_number_stays_in_its_row(chosen: tuple[Level, int]) -> None:
    weight, bias, states = drawn(5, 40, 64)
    states[0, 3], states[1, 2], states[2, 63] = torch.nan, torch.inf, -torch.inf
    ours, theirs = both(chosen, weight, bias, states)
    assert ours[:3].isfinite().logical_not().all()
    assert torch.equal(ours[3:], theirs[3:])


@compares
def test_rows_that_lie_apart_and_more_dimensions(chosen: tuple[Level, int]) -> None:
    weight, bias, states = drawn(24, 40, 64)
    expected = both(chosen, weight, bias, states)[1]
    for given, shape in (
        (states.t().contiguous().t(), (24, 40)),
        (states.repeat(1, 2)[:, :64], (24, 40)),
        (states.view(2, 3, 4, 64), (2, 3, 4, 40)),
        (states.view(4, 6, 64).transpose(0, 1).contiguous().transpose(0, 1), (4, 6, 40)),
    ):
        ours = both(chosen, weight, bias, given)[0]
        assert ours.shape == shape
        assert torch.equal(ours.flatten(0, -2), expected)


@is_compiled
def test_no_rows() -> None:
    weight, _, states = drawn(3, 40, 64)
    product = make_product(*round_weight(weight), None, largest=63, zero=64, level=LEVELS[0])
    assert product(states[:0]).shape == (0, 40)
    assert product(states[:0].view(0, 5, 64)).shape == (0, 5, 40)


@pytest.fixture
def two_threads() -> Iterator[None]:
    was = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(was)


@is_compiled
@pytest.mark.usefixtures("two_threads")
def test_two_threads_give_what_one_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    weight, bias, states = drawn(700, 200, 256)

    def multiplied() -> Tensor:
        return make_product(*round_weight(weight), bias, largest=63, zero=64, level=LEVELS[0])(states)

    found = multiplied()
    monkeypatch.setattr(int8, "parallel_address", lambda: 0)
    assert torch.equal(found, multiplied())


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="torch's threads are looked for on Linux alone")
def test_the_threads_are_those_of_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever other runtimes are loaded: the one beside libtorch. Where there is none, nothing is found."""
    lines = [line.split() for line in Path("/proc/self/maps").read_text().splitlines() if "omp" in line]
    spans = [
        tuple(int(edge, 16) for edge in line[0].split("-"))
        for line in lines
        if Path(line[-1]).is_relative_to(Path(torch.__file__).parent)
    ]
    if not spans:
        pytest.skip("this torch brings no runtime of its own")
    assert any(first <= threads.parallel_address() < last for first, last in spans)
    for name, value in (("LIBRARY", Path("none.so")), ("FUNCTION", "no_such_function")):
        with monkeypatch.context() as patch:
            patch.setattr(threads, name, value)
            assert threads.parallel_address.__wrapped__() == 0


@is_compiled
def test_bad_arguments_are_refused() -> None:
    weight, bias, states = drawn(3, 40, 64)
    whole, scales = round_weight(weight)
    level = LEVELS[-1]

    def made(**other: object) -> Callable[[Tensor], Tensor]:
        settings = {"whole": whole, "scales": scales, "bias": bias, "largest": 63, "zero": 64, "level": level} | other
        return make_product(**settings)  # type: ignore[arg-type]

    for wrong in (
        {"whole": weight},
        {"whole": whole[0]},
        {"whole": whole[:, :0]},
        {"whole": whole[:0], "scales": scales[:0], "bias": None},
        {"whole": torch.zeros(1, int8.MAX_INPUTS + 1, dtype=torch.int8), "scales": scales[:1], "bias": None},
        {"scales": scales[:-1]},
        {"scales": scales.double()},
        {"bias": bias[:-1]},
        {"bias": bias.to("meta")},
        {"zero": 129, "largest": 128},
        {"zero": 64, "largest": 64},
    ):
        with pytest.raises(ValueError, match=r"multipl|processor are|values for"):
            made(**wrong)
    product = made()
    for other in (states[:, :-1], states.double(), states.to("meta"), states.to(torch.bfloat16)):
        with pytest.raises(ValueError, match="processor are"):
            product(other)


@is_compiled
def test_the_compiled_function_refuses_what_it_can() -> None:
    function = compiled.compiled_module("int8").multiply
    rest = [0, 1, 0, 1, 4, 0, 0, 0, 0, 4, 63, 64, 0]
    for given in ([99, *rest], [-1, *rest], ["a", *rest], rest, [0, 0, 1, 0, 0, 4, 0, 0, 0, 0, 4, 63, 64, 0]):
        with pytest.raises((ValueError, TypeError, OverflowError)):
            function(*given)
    for largest, zero in ((127, 200), (64, 64)):
        with pytest.raises(ValueError, match="does not multiply states around"):
            function(0, 0, 1, 0, 1, 4, 0, 0, 0, 0, 4, largest, zero, 0)


@pytest.mark.parametrize("panel", [16, 64])
def test_how_weights_lie(panel: int) -> None:
    whole = torch.randint(-127, 128, (70, 9), generator=torch.Generator().manual_seed(0), dtype=torch.int8)
    packed = pack(whole, panel)
    assert packed.shape == (-(-70 // panel), 3, panel, 4)
    for output, place in itertools.product((0, 15, 16, 69), range(9)):
        assert packed[output // panel, place // 4, output % panel, place % 4] == whole[output, place]
    assert packed.sum() == whole.sum()


def test_levels_are_asked_by_name_and_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    known = [Level(0, "avx512vnni", 128, 64), Level(1, "avx2", 64, 16)]
    monkeypatch.setattr(int8, "known_levels", lambda: known)
    for value, zero, expected in (
        (None, 128, known[0]),
        ("1", 64, known[0]),
        ("avx2", 64, known[1]),
        ("avx2", 128, None),
        ("0", 128, None),
    ):
        monkeypatch.delenv(compiled.VARIABLE, raising=False)
        if value is not None:
            monkeypatch.setenv(compiled.VARIABLE, value)
        assert find_level(zero) == expected
    monkeypatch.setenv(compiled.VARIABLE, "avx_vnni")
    with pytest.raises(UserError, match=r"BABELCAP_NATIVE is 'avx_vnni'; give 0 .* avx512vnni, avxvnni, avx2"):
        find_level(64)


def test_the_levels_of_this_processor_have_known_names() -> None:
    assert {level.name for level in known_levels()} <= set(compiled.LEVELS)


@pytest.mark.parametrize("reason", ["not compiled", "turned off"])
def test_without_what_is_compiled_all_goes_on(reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if reason == "turned off":
        monkeypatch.setenv(compiled.VARIABLE, "0")
    else:
        monkeypatch.setitem(sys.modules, "babelcap.native._int8", None)
        monkeypatch.setattr(int8, "compiled_module", compiled.compiled_module.__wrapped__)
        assert known_levels() == []
    assert find_level(64) is None
    assert not products._knows_native_int8.__wrapped__()
    weight, bias, states = drawn(3, 40, 64)
    if KINDS[INT8].is_known():
        found = products.make_product(NATIVE_INT8, weight, bias, 3)(states)
        assert torch.equal(found, products.make_product(INT8, weight, bias, 3)(states))


@compares
def test_a_product_with_other_bits_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another torch may round otherwise. What a model says does not depend on a compiler."""
    asked = products._knows_native_int8.__wrapped__
    if find_level(products._states_range()[1]) is None:
        pytest.skip("turned off")
    assert asked()
    real = products._native_int8
    monkeypatch.setattr(products, "_native_int8", lambda *given: lambda states: real(*given)(states) * (1 + 2**-23))
    assert not asked()


@compares
def test_more_inputs_than_fit_are_multiplied_by_onednn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(int8, "MAX_INPUTS", 32)
    weight, bias, states = drawn(3, 40, 64)
    found = products.make_product(NATIVE_INT8, weight, bias, 3)(states)
    assert torch.equal(found, products.make_product(INT8, weight, bias, 3)(states))
