"""A step that is written out has the states of the decoder's own layers, whoever enters and leaves meanwhile."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import Tensor

from babelcap.models import Captioner
from babelcap.models.generation.packing import plan_products
from babelcap.models.generation.products import INT8, Product
from babelcap.models.generation.rolling import Encoded, RollingDecoder, Sample
from babelcap.models.generation.rules import search_rules
from babelcap.models.generation.slots import Slots
from babelcap.models.generation.steps import written_step
from tests.models.conftest import random_captioner, tiny_config

WINDOW = {"sliding_window": 64}
OTHER_HEADS = {"cross_attention_heads": 3, "cross_attention_head_dim": 4, "cross_attention_pre_norm": True}
DECODERS: dict[str, tuple[str, dict[str, Any]]] = {
    "bart": ("bart", {}),
    "gemma2": ("gemma2", WINDOW),
    "gemma2, biased": ("gemma2", {**WINDOW, "attention_bias": True}),
    "gemma3": ("gemma3", WINDOW),
    "gemma3, heads of its own in one layer": ("gemma3", {**WINDOW, **OTHER_HEADS, "cross_attention_layers": [1]}),
}


def samples_of(model: Captioner) -> list[Sample]:
    """With prefixes of different lengths, and encoder states too."""
    generator = torch.Generator().manual_seed(5)
    width = model.config.decoder_config.encoder_hidden_size
    given = [[1], [1, 2, 40], [1, 9], [1, 4, 5, 6, 7], [1]]
    encoded = [torch.randn(length, width, generator=generator) for length in (5, 3, 6, 2, 4)]
    return [
        Sample(number, tokens, Encoded(states, torch.ones(len(states), dtype=torch.long)), 14)
        for number, (tokens, states) in enumerate(zip(given, encoded, strict=True))
    ]


def compared(model: Captioner, num_beams: int) -> tuple[float, float, int]:
    """The largest difference between both ways, the largest state, and the number of steps that were compared."""
    rules = search_rules(model.generation_config, {"num_beams": num_beams, "max_length": 14})
    assert rules is not None
    products = plan_products(model, model.head_weight, 2 * num_beams, 14)
    decoder = RollingDecoder(model, rules, None, products)
    step = written_step(model.decoder)
    assert step is not None
    seen: list[tuple[Tensor, Tensor]] = []

    def both(module: Any, joined: Sequence[Product], ids: Tensor, slots: Slots) -> Tensor:
        by_layers = decoder._decoded(ids[:, None], deepcopy(slots))
        states = step.run(module, joined, ids, slots)
        seen.append((by_layers, states))
        return states

    decoder.step = step._replace(run=both)
    waiting = samples_of(model)
    found = dict(decoder.run(lambda number: [waiting.pop(0) for _ in waiting[:number]], 2))
    assert len(found) == 5
    difference = max(float((one - other).abs().max()) for one, other in seen)
    return difference, max(float(one.abs().max()) for one, _ in seen), len(seen)


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("name", DECODERS)
def test_states_are_those_of_the_layers(name: str, num_beams: int) -> None:
    kind, settings = DECODERS[name]
    difference, largest, num_steps = compared(random_captioner(tiny_config(kind, **settings), seed=4), num_beams)
    assert num_steps > 10
    assert difference < 1e-5 * largest


def test_a_group_that_is_rounded_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries are large enough to be rounded, keys and values are not: each is what it is in a prompt too."""
    model = random_captioner(tiny_config("gemma2", **WINDOW), seed=4)
    attention = model.decoder.layers[0].self_attn
    query, key = attention.q_proj.weight.numel(), attention.k_proj.weight.numel()
    assert key < query
    monkeypatch.setattr("babelcap.models.generation.packing.MIN_INT8_WEIGHTS", query)
    model.quantise = INT8
    difference, largest, num_steps = compared(model, 2)
    assert num_steps > 10
    assert difference < 1e-5 * largest
