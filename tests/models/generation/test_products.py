"""States rounded to whole numbers: each row by its own scale, in parts or at once, with and without VNNI's range."""

import pytest
import torch

from babelcap.models.generation import products
from babelcap.models.generation.products import INT8, KINDS, make_product, round_rows

RANGES = [(127, 128), (63, 64)]


@pytest.mark.parametrize(("largest", "zero"), RANGES)
def test_a_row_is_rounded_to_its_own_scale(largest: int, zero: int) -> None:
    states = torch.tensor([[-2.0, 0.0, 1.5, 2.0], [0.0, 0.0, 0.0, 0.0], [1e3, -5e2, 4.0, 0.1]])
    whole, scale = round_rows(states, largest, zero)
    assert whole.dtype == torch.uint8
    assert whole[0].tolist() == [zero - largest, zero, zero + round(0.75 * largest), zero + largest]
    assert whole[1].tolist() == [zero] * 4
    assert int(whole.min()) >= zero - largest
    assert int(whole.max()) <= zero + largest
    found = (whole.float() - zero) * scale
    assert ((found - states).abs() <= 0.5001 * scale).all()


@pytest.mark.parametrize(("largest", "zero"), RANGES)
@pytest.mark.parametrize("shape", [(1, 24), (7, 24), (2, 5, 24), (0, 24)])
def test_in_parts_as_at_once(shape: tuple[int, ...], largest: int, zero: int, monkeypatch: pytest.MonkeyPatch) -> None:
    states = torch.randn(shape, generator=torch.Generator().manual_seed(0)) * 7
    at_once = round_rows(states, largest, zero)
    for size in (1, 48, 100):
        monkeypatch.setattr(products, "ROUNDED_AT_ONCE", size)
        for expected, found in zip(at_once, round_rows(states, largest, zero), strict=True):
            assert found.shape == expected.shape
            assert torch.equal(found, expected)


@pytest.mark.skipif(not KINDS[INT8].is_known(), reason="this build of torch multiplies no whole numbers")
@pytest.mark.parametrize("has_exact_sums", [True, False])
@pytest.mark.parametrize("with_bias", [True, False])
def test_a_product_is_near_to_the_exact_one(
    has_exact_sums: bool, with_bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if has_exact_sums and not torch.cpu._is_vnni_supported():
        pytest.skip("sums in 16 bits would overflow on this processor")
    monkeypatch.setattr(products, "_has_exact_sums", lambda: has_exact_sums)
    generator = torch.Generator().manual_seed(0)
    weight, states = torch.randn(40, 96, generator=generator), torch.randn(3, 5, 96, generator=generator)
    states[0, 0] *= 1e4  # an outlier costs no other row
    bias = torch.randn(40, generator=generator) if with_bias else None
    exact = torch.nn.functional.linear(states, weight, bias)
    found = make_product(INT8, weight, bias, 15)(states)
    assert ((found - exact).norm(dim=-1) < 0.04 * exact.norm(dim=-1)).all()
