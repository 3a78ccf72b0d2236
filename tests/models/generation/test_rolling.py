"""Our own search: token for token transformers' own, whoever enters and leaves meanwhile."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import GenerationMixin

from babelcap.models import Captioner
from babelcap.models.generation.generate import pad_after_end
from babelcap.models.generation.packing import FastProducts
from babelcap.models.generation.rolling import Encoded, RollingDecoder, Sample
from babelcap.models.generation.rules import search_rules
from babelcap.models.generation.searching import Search, SearchRules

KINDS = {"bart": {}, "gemma2": {"sliding_window": 64}, "gemma3": {"sliding_window": 64}}
SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {"num_beams": 1},
    "greedy, no trigram twice": {"num_beams": 1, "no_repeat_ngram_size": 3, "min_length": 6},
    "beams": {"num_beams": 4},
    "all beams": {"num_beams": 3, "num_return_sequences": 3, "length_penalty": 0.0},
    "no bigram twice": {"num_beams": 3, "no_repeat_ngram_size": 2, "length_penalty": 1.7},
    "stopped early": {"num_beams": 4, "early_stopping": True, "forced_eos_token_id": 1, "min_length": 4},
    "stopped never": {"num_beams": 2, "early_stopping": "never", "forced_bos_token_id": 2},
    "several ends": {"num_beams": 3, "eos_token_id": [1, 7, 8], "length_penalty": -0.5},
}


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest) -> Captioner:
    """The end is likely enough, and the positions say enough, that sequences differ in length."""
    from tests.models.conftest import random_captioner, tiny_config

    kind = request.param
    made = random_captioner(tiny_config(kind, **KINDS[kind]), seed=3 if kind == "gemma2" else 4)
    with torch.no_grad():
        if kind == "bart":
            made.decoder.embed_positions.weight.mul_(3)
            made.decoder.embed_tokens.weight.mul_(0.1)
        made.decoder.embed_tokens.weight[1].mul_(10 if kind == "bart" else 1.5)
    return made


@pytest.fixture(scope="module")
def many() -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(5)
    lengths = torch.tensor([2, 6, 4, 5, 3, 6, 2, 4, 6])
    mask = (torch.arange(6) < lengths[:, None]).long()
    ids = torch.randint(3, 60, (9, 6), generator=generator).masked_fill(mask == 0, 1)
    return {"input_ids": ids, "attention_mask": mask, "pixel_values": torch.randn(9, 3, 32, 32, generator=generator)}


def by_transformers(model: Captioner, inputs: dict[str, Tensor], **settings: Any) -> list[list[int]]:
    """Its own loop with its own caches: none of ours."""
    from transformers.cache_utils import DynamicCache, EncoderDecoderCache

    with torch.no_grad():
        encoded = model.encoder(**inputs)
    num_beams = settings["num_beams"]
    apart = type(encoded)(**{name: value.repeat_interleave(num_beams, dim=0) for name, value in encoded.items()})
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_get_top_k_continuations", "_prepare_cache_for_generation"):
            patch.setattr(Captioner, name, getattr(GenerationMixin, name), raising=False)
        ids = GenerationMixin.generate(
            model,
            inputs["input_ids"],
            encoder_outputs=apart,
            past_key_values=EncoderDecoderCache(DynamicCache(), DynamicCache()),
            max_length=20,
            **settings,
        )
    ends = settings.get("eos_token_id", 1)
    return pad_after_end(ids, 1, ends if isinstance(ends, list) else [ends], 0).tolist()


@pytest.mark.parametrize("name", SETTINGS)
def test_tokens_are_those_of_transformers(model: Captioner, many: dict[str, Tensor], name: str) -> None:
    settings = SETTINGS[name]
    assert model.own_rules({**settings, "max_length": 20}) is not None
    ours = model.generate(**many, max_length=20, **settings).tolist()
    assert ours == by_transformers(model, many, **settings)
    if name == "beams":
        assert len({sum(token != 0 for token in row) for row in ours}) > 2


@pytest.mark.parametrize("capacity", [1, 2, 4, 9])
@pytest.mark.parametrize("num_beams", [1, 3])
def test_who_enters_and_leaves_changes_nothing(
    model: Captioner, many: dict[str, Tensor], capacity: int, num_beams: int
) -> None:
    """Samples with prefixes of different lengths too."""
    rules = search_rules(model.generation_config, {"num_beams": num_beams, "max_length": 20, "no_repeat_ngram_size": 3})
    assert rules is not None
    with torch.no_grad():
        encoded = model.encoder(**many)
    given = [[1], [1, 2, 40], [1, 9], [1], [1, 4, 5, 6, 7], [1], [1, 2], [1, 4, 5, 6, 7], [1]]
    samples = [
        Sample(number, tokens, Encoded(*parts), 20)
        for number, (tokens, *parts) in enumerate(
            zip(given, encoded.last_hidden_state, encoded.attention_mask, strict=True)
        )
    ]

    def decode(waiting: list[Sample], capacity: int) -> tuple[dict[int, list[tuple[int, ...]]], int]:
        num_entered: list[int] = []

        def take(number: int) -> list[Sample]:
            num_entered.append(number)
            return [waiting.pop(0) for _ in waiting[:number]]

        found = RollingDecoder(model, rules, None, FastProducts(model.head)).run(take, capacity)
        return {number: [beam.tokens for beam in beams] for number, beams in found}, len(num_entered)

    together, num_times = decode(list(samples), capacity)
    assert together == {sample.number: decode([sample], 1)[0][sample.number] for sample in samples}
    assert num_times > 2 or capacity == 9


def test_a_search_by_hand() -> None:
    """Two beams, ends at 1. The second text ends first; the first is better by length and is found in time."""
    search = Search([0], SearchRules(num_beams=2, max_length=9, ends=frozenset({1})))
    assert search.advance([[(-1.0, 5), (-1.5, 6), (-4.0, 1)], []]) == [0, 0]
    assert [beam.tokens for beam in search.running] == [(0, 5), (0, 6)]
    assert search.advance([[(-0.1, 7), (-3.0, 8), (-4.0, 1)], [(-0.2, 1), (-3.0, 9), (-4.0, 8)]]) == [0, 0]
    assert [beam.tokens for beam in search.finished] == [(0, 6, 1)]
    assert search.finished[0].score == pytest.approx(-1.7 / 2)
    assert not search.is_done
    search.advance([[(-0.1, 1), (-5.0, 8), (-6.0, 9)], [(-9.0, 8), (-9.5, 9), (-9.7, 5)]])
    assert search.is_done
    assert [beam.tokens for beam in search.finished] == [(0, 5, 7, 1), (0, 6, 1)]
    assert search.results()[0].parts == pytest.approx((-1.0, -0.1, -0.1))


def test_what_must_not_follow() -> None:
    rules = SearchRules(num_beams=1, max_length=9, ends=frozenset({1}), min_length=4, no_repeat_ngram_size=2)
    assert rules.banned([0, 5, 6, 5]) == {6}
    assert rules.banned([0, 5]) == {1}
    last = SearchRules(num_beams=1, max_length=3, ends=frozenset({1}), forced_first=4, forced_last=(1,))
    assert [last.forced(length) for length in (1, 2)] == [(4,), (1,)]


def test_what_is_left_to_transformers(make_captioner: Callable[..., Captioner]) -> None:
    model = make_captioner("bart")
    assert model.own_rules({"max_length": 9, "num_beams": 4, "temperature": 1.0}) is not None
    for setting in ({"do_sample": True}, {"repetition_penalty": 1.2}, {"use_cache": False}, {"streamer": object()}):
        assert model.own_rules({"max_length": 9, **setting}) is None
    assert make_captioner("gemma2", sliding_window=8).own_rules({"max_length": 9}) is None
