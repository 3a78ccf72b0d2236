"""The compiled look at rows of logits: the best with their places, and sums, whatever level, chunks and threads."""

import itertools
import math
import sys
from collections.abc import Iterator

import pytest
import torch
from torch import Tensor

from babelcap.errors import UserError
from babelcap.models.generation import candidates
from babelcap.native import best, compiled
from babelcap.native.best import BestSoFar
from babelcap.native.compiled import find_float_level, known_float_levels

LEVELS = known_float_levels("best")
is_compiled = pytest.mark.skipif(not LEVELS, reason="nothing was compiled for this processor")


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * 5


def looked(logits: Tensor, number: int, level: str, chunk: int | None = None, *, sums: bool = True) -> BestSoFar:
    found = BestSoFar(len(logits), number, level=level, sums=sums)
    for start in range(0, logits.shape[1], chunk or logits.shape[1]):
        found.add(logits[:, start : start + chunk] if chunk else logits, start)
    return found


@pytest.fixture
def two_threads() -> Iterator[None]:
    was = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(was)


@is_compiled
@pytest.mark.parametrize("level", LEVELS)
def test_by_hand(level: str) -> None:
    logits = torch.tensor([[0.0, math.log(3), -math.inf, math.log(2)], [-1.0, -1.0, -1.0, -3.0]])
    found = looked(logits, 3, level)
    assert found.places.tolist() == [[1, 3, 0], [0, 1, 2]]  # of equal ones, the first come first
    torch.testing.assert_close(found.values, torch.tensor([[math.log(3), math.log(2), 0.0], [-1.0, -1.0, -1.0]]))
    expected = torch.tensor([2.0, 3 + math.exp(-2)], dtype=torch.double)  # (1 + 3 + 2) / 3
    assert found.sums is not None
    torch.testing.assert_close(found.sums, expected, rtol=1e-6, atol=0)
    total = found.log_sum_exp()
    assert total is not None
    torch.testing.assert_close(total, torch.tensor([math.log(6), math.log(3 * math.exp(-1) + math.exp(-3))]))


@is_compiled
@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("width", [1, 7, 63, 64, 65, 128, 1000, 40_000])
def test_as_torch_finds_them(level: str, width: int) -> None:
    for num_rows, number, chunk in itertools.product((1, 3, 16), (1, 8, 60), (None, 17, 64, 4096)):
        if chunk and width > 200 * chunk:
            continue
        logits = drawn(num_rows, width, seed=width)
        logits[:, ::3] = -torch.inf
        logits[0, 0] = 1.0  # no row is without
        number = min(number, width)
        found = looked(logits, number, level, chunk)
        values, places = logits.topk(number)
        assert torch.equal(found.values, values)
        is_there = values > -torch.inf
        assert torch.equal(found.places[is_there], places[is_there])
        some = is_there[:, 0]
        total = found.log_sum_exp()
        assert total is not None
        torch.testing.assert_close(total[some], logits.double().logsumexp(dim=1).float()[some], rtol=1e-6, atol=1e-6)


@is_compiled
@pytest.mark.parametrize("level", LEVELS)
def test_exponentials_over_their_whole_range(level: str) -> None:
    """exp(-x) for x from 0 to 100, by what each adds to exp(0)."""
    below = torch.linspace(0, 100, 5001)
    for x in below[::7]:
        found = looked(torch.stack([torch.tensor(0.0), -x])[None], 1, level).sums
        assert found is not None
        expected = math.exp(-float(x)) if x <= 87 else math.exp(-87)
        assert float(found[0]) - 1 == pytest.approx(expected, rel=3e-7, abs=1.2e-7)  # a float beside 1
    many = looked(torch.cat([torch.zeros(1), -below])[None], 1, level).sums
    assert many is not None
    assert float(many[0]) == pytest.approx(1 + float(torch.exp(-below.double()).sum()), rel=1e-6)


@is_compiled
@pytest.mark.usefixtures("two_threads")
def test_every_level_gives_the_same_bits_and_a_row_those_that_it_has_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = drawn(9, 5000)
    first, *others = (looked(logits, 8, level, 2048) for level in LEVELS)
    assert first.sums is not None
    for other in others:
        assert torch.equal(first.values, other.values)
        assert torch.equal(first.places, other.places)
        assert torch.equal(first.sums, other.sums)  # type: ignore[arg-type]
    for row in range(9):
        alone = looked(logits[row : row + 1], 8, LEVELS[0], 2048)
        assert torch.equal(alone.sums, first.sums[row : row + 1])  # type: ignore[arg-type]
    monkeypatch.setattr(best, "parallel_address", lambda: 0)
    assert torch.equal(looked(logits, 8, LEVELS[0], 2048).sums, first.sums)  # type: ignore[arg-type]


@is_compiled
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("place", [0, 5, 64, 70, 299])
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_not_finite_is_told_in_its_row(level: str, place: int, wrong: float) -> None:
    for sums, number in itertools.product((True, False), (1, 4)):
        logits = drawn(3, 300)
        logits[1, place] = wrong
        found = looked(logits, number, level, 100, sums=sums).values[:, 0]
        assert found.isfinite().tolist() == [True, False, True]


@is_compiled
@pytest.mark.parametrize("level", LEVELS)
def test_nothing_beside_the_values_is_read_or_written(level: str) -> None:
    """What is larger than all lies on both sides of the logits: had it been read, it would be the best."""
    for num_rows, width in itertools.product((1, 2), (1, 63, 65, 130)):
        memory = torch.full((num_rows * width + 256,), 99.0)
        logits = memory[128 : 128 + num_rows * width].view(num_rows, width)
        logits.zero_()
        found = looked(logits, 1, level)
        assert found.values.tolist() == [[0.0]] * num_rows
        assert found.sums is not None
        assert found.sums.tolist() == [float(width)] * num_rows
        assert (memory != 0).sum() == 256


@is_compiled
def test_a_row_of_nothing_and_a_chunk_of_nothing() -> None:
    logits = torch.full((2, 200), -torch.inf)
    logits[0, 150] = 3.0
    found = looked(logits, 2, LEVELS[0], 100)
    assert found.values.tolist() == [[3.0, -math.inf], [-math.inf, -math.inf]]
    assert found.places[0, 0] == 150
    assert found.sums is not None
    assert found.sums.tolist() == [1.0, 0.0]
    found.add(torch.empty(2, 0), 200)
    assert found.places[0, 0] == 150


@is_compiled
def test_what_cannot_be_looked_at_is_refused() -> None:
    found = BestSoFar(2, 3, level=LEVELS[0], sums=True)
    for logits in (drawn(3, 8), drawn(2, 8).double(), drawn(8), drawn(2, 8).to("meta")):
        with pytest.raises(ValueError, match=r"looked at|processor"):
            found.add(logits, 0)
    with pytest.raises(ValueError, match="looked at"):
        found.add(drawn(2, 8), -1)
    look = compiled.compiled_module("best").look
    for given in ([99, *[0] * 10], [-1, *[0] * 10], ["a", *[0] * 10], [0] * 10, [0] * 11):
        with pytest.raises((ValueError, TypeError, OverflowError)):
            look(*given)


class Chunks:
    """In the head's place."""

    def chunks(self, states: Tensor, weight: Tensor, shortlist: None) -> Iterator[tuple[int, Tensor]]:
        yield 0, states[:, :1000].t().contiguous().t()  # as the product with weights first leaves them
        yield 1000, states[:, 1000:]


@pytest.mark.parametrize("normalised", [True, False])
def test_with_and_without_what_is_compiled(normalised: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    logits, weight = drawn(5, 1700), torch.empty(1700, 0)
    ours, places = candidates.best_tokens(Chunks(), logits, weight, None, 6, normalised=normalised)
    monkeypatch.setenv(compiled.VARIABLE, "0")
    assert find_float_level("best") is None
    theirs, same_places = candidates.best_tokens(Chunks(), logits, weight, None, 6, normalised=normalised)
    assert torch.equal(places, same_places)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=3e-6)
    expected = (logits.log_softmax(dim=1) if normalised else logits).topk(6)
    torch.testing.assert_close(ours, expected.values, rtol=0, atol=3e-6)
    assert torch.equal(places, expected.indices)


@pytest.mark.parametrize("wrong", [math.nan, math.inf])
@pytest.mark.parametrize("turned_off", [True, False])
def test_logits_that_are_not_finite_are_an_error(
    wrong: float, turned_off: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if turned_off:
        monkeypatch.setenv(compiled.VARIABLE, "0")
    logits = drawn(2, 1700)
    logits[1, 1234] = wrong
    for normalised in (True, False):
        with pytest.raises(UserError, match="not finite"):
            candidates.best_tokens(Chunks(), logits, torch.empty(1700, 0), None, 6, normalised=normalised)


def test_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "babelcap.native._best", None)
    monkeypatch.setattr(compiled, "compiled_module", compiled.compiled_module.__wrapped__)
    assert known_float_levels("best") == []
    assert find_float_level("best") is None
