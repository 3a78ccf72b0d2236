"""The growing cache against transformers' own under random appends, reorderings, crops and selections."""

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from transformers.cache_utils import DynamicCache, DynamicSlidingWindowLayer

from babelcap.models.generation.caches import BeamCache, GrowingLayer, generation_cache

from ..conftest import tiny_config

NUM_ROWS, NUM_HEADS, WIDTH = 6, 2, 3


def growing_cache() -> BeamCache:
    return BeamCache(tiny_config("bart").decoder_config, None)


def append(cache: DynamicCache, new: Tensor) -> None:
    for index in range(new.shape[1]):
        returned = cache.update(new[0, index], new[1, index], index)
        assert returned[0] is cache.layers[index].keys


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 40)),
        st.tuples(st.just("reorder"), st.lists(st.integers(0, NUM_ROWS - 1), min_size=NUM_ROWS, max_size=NUM_ROWS)),
        st.tuples(st.just("crop"), st.just(-1)),
        st.tuples(st.just("select"), st.permutations(range(NUM_ROWS))),
    ),
    min_size=1,
    max_size=12,
)


@given(steps=steps, seed=st.integers(0, 100))
def test_as_transformers_cache(steps: list[Any], seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    both = growing_cache(), DynamicCache()
    for name, value in [("append", 2), *steps]:
        new = torch.randn(
            2, len(both[0].layers), NUM_ROWS, NUM_HEADS, value if name == "append" else 1, WIDTH, generator=generator
        )
        for cache in both:
            if name == "append":
                append(cache, new)
            elif name == "reorder":
                cache.reorder_cache(torch.tensor(value))
            elif name == "select":
                cache.batch_select_indices(torch.tensor(value))
            elif cache.get_seq_length() > 1:
                cache.crop(value)
        for layer, expected in zip(both[0].layers, both[1].layers, strict=True):
            assert torch.equal(layer.keys, expected.keys)
            assert torch.equal(layer.values, expected.values)


def test_beams_take_over_only_what_differs(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = growing_cache()
    firsts: list[int] = []
    original = GrowingLayer.move_rows

    def counted(layer: GrowingLayer, sources: Tensor, targets: Tensor, first: int) -> None:
        firsts.append(first)
        original(layer, sources, targets, first)

    monkeypatch.setattr(GrowingLayer, "move_rows", counted)
    for beams in ([0] * NUM_ROWS, list(range(NUM_ROWS)), [1, 1, *range(2, NUM_ROWS)], [0] * NUM_ROWS):
        append(cache, torch.randn(2, len(cache.layers), NUM_ROWS, NUM_HEADS, 1, WIDTH))
        cache.reorder_cache(torch.tensor(beams))
    # All descend from row 0 at once; nothing moves; row 0 takes over what row 1 did since; all take over from there on.
    assert firsts[:: len(cache.layers)] == [0, 1, 1]


def test_room_is_kept_from_step_to_step() -> None:
    layer = GrowingLayer()
    addresses = {layer.update(torch.zeros(2, 1, 1, 4), torch.zeros(2, 1, 1, 4))[0].data_ptr() for _ in range(20)}
    assert len(addresses) == 1


def test_a_window_that_may_be_outgrown_stays_a_window() -> None:
    config = tiny_config("gemma2").decoder_config
    window = config.sliding_window
    short, long, unknown = (
        generation_cache(config, max_length).self_attention_cache.layers for max_length in (window - 1, window, None)
    )
    assert all(isinstance(layer, GrowingLayer) for layer in short)
    for layers in (long, unknown):
        assert {type(layer) for layer in layers} == {GrowingLayer, DynamicSlidingWindowLayer}
