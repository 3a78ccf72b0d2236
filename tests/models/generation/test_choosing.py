"""Which product is used is decided by measuring: with a planted clock, and with any decision the same tokens."""

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch
from torch import Tensor

from babelcap.models import Captioner
from babelcap.models.generation import choosing, packing
from babelcap.models.generation.choosing import Chooser, Shape, Timing, fastest
from babelcap.models.generation.products import EXACT, INT8, KINDS, NATIVE_INT8, ROUNDED, make_product, round_weight

SHAPE = Shape(num_outputs=24, num_inputs=8, has_bias=True, num_rows=4)
KNOWN = [kind for kind in (*EXACT, *ROUNDED) if KINDS[kind].is_known()]


@contextmanager
def planted(seconds: Callable[[str, int, int], float]) -> Iterator[Chooser]:
    """A chooser whose products take as long as they are told, by kind, rows of the weight and threads."""
    now = [0.0]

    def make(kind: str, weight: Tensor, bias: Tensor | None, num_rows: int) -> Callable[[Tensor], Tensor]:
        def product(states: Tensor) -> Tensor:
            now[0] += seconds(kind, len(weight), torch.get_num_threads())
            return states

        now[0] += 0.002  # packing
        return product

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(choosing, "make_product", make)
        yield Chooser(clock=lambda: now[0])


@pytest.mark.parametrize("quickest", EXACT)
def test_the_quickest_is_chosen(quickest: str) -> None:
    if quickest not in KNOWN:
        pytest.skip(f"this torch has no {quickest}")
    with planted(lambda kind, rows, threads: 0.001 if kind == quickest else 0.002) as chooser:
        assert chooser.plan([SHAPE], num_steps=64).kinds == {SHAPE: quickest}


def test_what_gains_little_or_costs_more_to_pack_is_not_used() -> None:
    packed = {"plain": Timing(0.0020, 0.0), "onednn": Timing(0.0010, 0.02)}
    assert fastest(packed, num_steps=64) == "onednn"
    assert fastest(packed, num_steps=16) == "plain"
    assert fastest({"plain": Timing(0.0020, 0.0), "weights first": Timing(0.00195, 0.0)}, num_steps=64) == "plain"


@pytest.fixture
def both_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where both are known, whatever was compiled here."""
    for kind in ROUNDED:
        monkeypatch.setitem(KINDS, kind, KINDS[kind]._replace(is_known=lambda: True))


@pytest.mark.usefixtures("both_ways")
@pytest.mark.parametrize(("seconds", "expected"), [(0.0010, NATIVE_INT8), (0.00195, INT8), (0.0030, INT8)])
def test_of_two_ways_with_the_same_bits_the_faster_one(seconds: float, expected: str) -> None:
    """Without a clear gain, oneDNN's. A plan chooses for each shape, and the encoder asks for one."""
    with planted(lambda kind, rows, threads: seconds if kind == NATIVE_INT8 else 0.002) as chooser:
        plan = chooser.plan([SHAPE], num_steps=64, rounded=[SHAPE, SHAPE])
        assert plan.rounded == {SHAPE: expected}
        assert plan.kinds == {SHAPE: "plain"}
        assert chooser.way(SHAPE, 32) == expected


def test_what_has_one_way_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(KINDS, NATIVE_INT8, KINDS[NATIVE_INT8]._replace(is_known=lambda: False))
    monkeypatch.setitem(KINDS, INT8, KINDS[INT8]._replace(is_known=lambda: True))
    with planted(lambda kind, rows, threads: 0.002) as chooser:
        assert chooser.plan([], num_steps=64, rounded=[SHAPE]).rounded == {SHAPE: INT8}
        assert chooser.way(SHAPE, 32) == INT8
        assert not chooser.known


def test_threads_are_chosen_for_a_whole_step() -> None:
    """Two threads help the large product and hurt the small one, of which a step has many."""
    large, small = SHAPE._replace(num_outputs=48), SHAPE

    def seconds(kind: str, rows: int, threads: int) -> float:
        return (0.010 if threads == 1 else 0.006) if rows == 48 else (0.001 if threads == 1 else 0.003)

    was = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with planted(seconds) as chooser:
            assert chooser.plan([large, small], num_steps=9).num_threads == 2
            assert chooser.plan([large, *[small] * 10], num_steps=9).num_threads == 1
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(was)


def test_a_shape_is_measured_once_and_in_part() -> None:
    measured = []
    with planted(lambda kind, rows, threads: measured.append(rows) or 0.001) as chooser:
        huge = SHAPE._replace(num_outputs=10**7)
        timings = chooser.timings(huge, 1)
        num_measured = len(measured)
        assert max(measured) * 4 * huge.num_inputs <= choosing.NEAR_BYTES
        assert timings["plain"].seconds == pytest.approx(0.001 * huge.num_outputs / max(measured))
        chooser.timings(huge, 1)
        assert len(measured) == num_measured


def test_measuring_ends() -> None:
    """However slow a product is, it runs a few times; nothing is waited for that is not."""
    calls = []
    with planted(lambda kind, rows, threads: calls.append(kind) or 5.0) as chooser:
        chooser.timings(SHAPE, 1)
    assert calls.count("plain") == choosing.MIN_ROUNDS + 1


def test_what_streams_is_measured_on_more_than_a_cache_holds() -> None:
    """Of a small weight, as many copies as fill it, each candidate its own; the time is that of one."""
    shape, calls = SHAPE._replace(num_outputs=1024, num_inputs=1024), []
    with planted(lambda kind, rows, threads: calls.append(kind) or 0.001) as chooser:
        chooser.plan([shape] * 20, num_steps=64)
        timings = chooser.timings(shape, 1, streams=True)
    assert calls[:8] == ["plain"] * (choosing.CACHE_BYTES // (4 * 1024 * 1024))
    assert timings["plain"].seconds == pytest.approx(0.001)
    with planted(lambda kind, rows, threads: 0.001) as chooser:
        chooser.plan([shape], num_steps=64)
        assert [streams for _, _, streams, _ in chooser.known] == [False] * len(chooser.known)


@pytest.mark.parametrize("kind", KNOWN)
@pytest.mark.parametrize("num_rows", [1, 4, 40])
def test_every_product_is_the_product(kind: str, num_rows: int) -> None:
    torch.manual_seed(0)
    weight, bias, states = torch.randn(24, 64), torch.randn(24), torch.randn(num_rows, 2, 64)
    states[0, 0, 0] = 30.0  # an outlier in one row
    expected = states @ weight.t() + bias
    found = make_product(kind, weight, bias, 8)(states)
    if kind in EXACT:
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    else:
        assert (found - expected)[-1].norm() < 0.03 * expected[-1].norm()


def test_rounding_twice_is_rounding_once() -> None:
    weight = torch.randn(50, 40, generator=torch.Generator().manual_seed(1))
    whole, scales = round_weight(weight)
    again, _ = round_weight(whole * scales[:, None])
    assert torch.equal(whole, again)
    assert whole.abs().amax(dim=1).eq(127).all()


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("allowed", [None, list(range(1, 70))])
def test_products_change_no_token(
    captioner: Captioner,
    inputs: dict[str, Tensor],
    kind: str,
    allowed: list[int] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = {"num_beams": 3, "max_new_tokens": 10, "allowed_tokens": allowed}
    monkeypatch.setattr(packing, "MIN_STEPS", 100)
    plain = captioner.generate(**inputs, **settings)
    used = []
    monkeypatch.setattr(packing, "MIN_STEPS", 1)
    monkeypatch.setattr(choosing, "fastest", lambda *_: used.append(kind) or kind)
    assert captioner.generate(**inputs, **settings).tolist() == plain.tolist()
    assert used
    assert not captioner.head.products
    assert not any("forward" in vars(module) for module in captioner.decoder.modules())
    assert not captioner.packed_weights._packed


@pytest.mark.skipif(NATIVE_INT8 not in KNOWN, reason="nothing was compiled for this processor")
def test_both_ways_of_int8_give_the_same_tokens(
    captioner: Captioner, inputs: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the same scores, to the last bit: with all layers and the encoder rounded."""
    monkeypatch.setattr(packing, "MIN_INT8_WEIGHTS", 1)
    monkeypatch.setattr(captioner, "quantise", INT8)
    found = {}
    for kind in ROUNDED:
        made: list[str] = []
        monkeypatch.setattr(choosing, "fastest", lambda timings, _, kind=kind: kind if kind in timings else "plain")
        monkeypatch.setattr(
            packing, "make_product", lambda *given, made=made: made.append(given[0]) or make_product(*given)
        )
        with torch.no_grad():
            states = captioner.encode(**inputs).last_hidden_state
        found[kind] = (states, captioner.generate(**inputs, num_beams=3, max_new_tokens=10))
        assert kind in made
        assert not ({*ROUNDED} - {kind}) & {*made}
    for ours, theirs in zip(*found.values(), strict=True):
        assert torch.equal(ours, theirs)


def test_what_is_packed_needs_no_room_again(
    make_captioner: Callable[..., Captioner], inputs: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A second generation, and one of fewer rows, finds its products where the first one left them."""
    model, made = make_captioner("bart"), []
    model.keeps_packed = True
    monkeypatch.setattr(choosing, "fastest", lambda *_: "onednn" if "onednn" in KNOWN else "weights first")
    model.generate(**inputs, num_beams=3, max_new_tokens=10)
    packed = sum(found.num_bytes for found in model.packed_weights._packed.values())
    monkeypatch.setattr(packing, "MAX_BYTES", packed)
    monkeypatch.setattr(packing, "make_product", lambda *given: made.append(given[0]) or make_product(*given))
    for num_beams in (3, 2):
        model.generate(**inputs, num_beams=num_beams, max_new_tokens=10)
    assert made == []


def test_a_quantised_encoder_multiplies_whole_numbers(
    make_captioner: Callable[..., Captioner], inputs: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only while it encodes, and only what is large; what it gives is near to what it gave."""
    model = make_captioner("bart")
    with torch.no_grad():
        exact = model.encode(**inputs).last_hidden_state
        model.quantise = INT8
        assert torch.equal(model.encode(**inputs).last_hidden_state, exact)
        monkeypatch.setattr(packing, "MIN_INT8_WEIGHTS", 1)
        rounded = model.encode(**inputs).last_hidden_state
        monkeypatch.setattr(packing, "MIN_INT8_WEIGHTS", 2**19)
        monkeypatch.setattr(packing, "MIN_ROUNDED_ENCODER", 2**10)  # of a large encoder, all of it
        assert torch.equal(model.encode(**inputs).last_hidden_state, rounded)
    assert 0 < (rounded - exact).norm() < 0.1 * exact.norm()
    assert not any("forward" in vars(module) for module in model.encoder.modules())


def test_packed_weights_follow_the_weights(
    make_captioner: Callable[..., Captioner], inputs: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept from one generation to the next, and packed anew when they changed."""
    model = make_captioner("bart")
    model.keeps_packed, model.quantise = True, INT8
    made = []
    monkeypatch.setattr(packing, "make_product", lambda *given: made.append(given[0]) or make_product(*given))
    first = model.generate(**inputs, num_beams=2, max_new_tokens=10)
    num_made = len(made)
    assert num_made > 0
    assert model.generate(**inputs, num_beams=2, max_new_tokens=10).tolist() == first.tolist()
    assert len(made) == num_made
    with torch.no_grad():
        model.decoder.embed_tokens.weight.mul_(-1)
    assert model.generate(**inputs, num_beams=2, max_new_tokens=10).tolist() != first.tolist()
    assert len(made) == num_made + 1  # the head's
    assert not copy.deepcopy(model).packed_weights._packed
