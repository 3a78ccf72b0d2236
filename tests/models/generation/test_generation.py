"""Generation: the same tokens with and without caches, in a batch and alone; the encoder runs once."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from babelcap.errors import UserError
from babelcap.models import Captioner
from babelcap.models.generation.candidates import log_sum_exp, top_scores
from babelcap.models.generation.generate import pad_after_end

SETTINGS: dict[str, dict[str, Any]] = {
    "greedy": {"num_beams": 1},
    "beams": {"num_beams": 4},
    "beams with all settings": {
        "num_beams": 3,
        "num_return_sequences": 2,
        "no_repeat_ngram_size": 2,
        "repetition_penalty": 1.3,
        "length_penalty": 0.7,
        "early_stopping": True,
        "forced_bos_token_id": 2,
        "forced_eos_token_id": 1,
        "min_new_tokens": 4,
    },
    "sampling": {"do_sample": True, "top_k": 20, "num_return_sequences": 3},
}


def generate(model: Captioner, inputs: dict[str, Tensor], **settings: Any) -> list[list[int]]:
    torch.manual_seed(0)
    return model.generate(**inputs, max_new_tokens=14, **settings).tolist()


@pytest.mark.parametrize("name", SETTINGS)
def test_caches_change_no_token(captioner: Captioner, inputs: dict[str, Tensor], name: str) -> None:
    cached = generate(captioner, inputs, **SETTINGS[name], use_cache=True)
    assert cached == generate(captioner, inputs, **SETTINGS[name], use_cache=False)
    assert len({tuple(row) for row in cached}) > 1


@pytest.mark.parametrize("use_cache", [True, False])
def test_a_prefix_is_continued(captioner: Captioner, inputs: dict[str, Tensor], use_cache: bool) -> None:
    prefix = torch.tensor([[2, 40, 41], [2, 40, 41]])
    tokens = generate(captioner, inputs, decoder_input_ids=prefix, num_beams=3, use_cache=use_cache)
    assert [row[:4] for row in tokens] == [[1, 2, 40, 41]] * 2
    assert max(map(len, tokens)) <= 4 + 14
    alone = [
        generate(captioner, {k: v[row : row + 1] for k, v in inputs.items()}, decoder_input_ids=prefix[:1], num_beams=3)
        for row in range(2)
    ]
    for row, only in zip(tokens, alone, strict=True):
        assert row[: len(only[0])] == only[0]
        assert set(row[len(only[0]) :]) <= {0}


def test_image_and_prompt_are_encoded_once(
    captioner: Captioner, inputs: dict[str, Tensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = []
    original = captioner.encoder.vision_tower.forward
    monkeypatch.setattr(
        captioner.encoder.vision_tower, "forward", lambda pixels: rows.append(len(pixels)) or original(pixels)
    )
    generate(captioner, inputs, num_beams=4)
    assert rows == [2]


def test_cross_attention_is_kept_once_a_sample(captioner: Captioner, inputs: dict[str, Tensor]) -> None:
    outputs = captioner.generate(**inputs, num_beams=4, max_new_tokens=9, return_dict_in_generate=True)
    cache = outputs.past_key_values
    assert cache.cross_attention_cache.layers[0].keys.shape[0] == 2
    assert cache.self_attention_cache.layers[-1].keys.shape[0] == 8
    num_positions = captioner.encoder(**inputs).last_hidden_state.shape[1]
    assert cache.cross_attention_cache.layers[0].keys.shape[2] == num_positions


def test_beams_that_share_states_are_as_beams_that_do_not(captioner: Captioner, inputs: dict[str, Tensor]) -> None:
    ids = torch.randint(3, 90, (6, 5), generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        encoded = captioner.encoder(**inputs)
        shared = captioner(encoder_outputs=encoded, decoder_input_ids=ids).logits
        apart = type(encoded)(**{name: value.repeat_interleave(3, dim=0) for name, value in encoded.items()})
        separate = captioner(encoder_outputs=apart, decoder_input_ids=ids).logits
    torch.testing.assert_close(shared, separate, atol=1e-5, rtol=1e-5)


def test_prompt_padding_says_nothing(captioner: Captioner, inputs: dict[str, Tensor]) -> None:
    short = {"input_ids": inputs["input_ids"][1:, :3], "pixel_values": inputs["pixel_values"][1:]}
    padded = {name: value[1:] for name, value in inputs.items()}
    assert generate(captioner, short, num_beams=2) == generate(captioner, padded, num_beams=2)


def test_text_without_an_image(captioner: Captioner, inputs: dict[str, Tensor]) -> None:
    text = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    assert generate(captioner, text, num_beams=2) != generate(captioner, inputs, num_beams=2)
    assert captioner.encoder(**text).last_hidden_state.shape[1] == 6


def test_ended_sequences_are_padded() -> None:
    sequences = torch.tensor([[1, 2, 5, 1, 1, 1], [1, 2, 5, 6, 7, 1]])
    assert pad_after_end(sequences, 1, [1], 0).tolist() == [[1, 2, 5, 1, 0, 0], [1, 2, 5, 6, 7, 1]]


@pytest.mark.parametrize("width", [8, 255, 256, 1000, 5120])
def test_the_best_scores(width: int) -> None:
    scores = torch.randn(3, width, generator=torch.Generator().manual_seed(6))
    scores[1, : width // 2] = -torch.inf
    best, places = scores.topk(8)
    ours, where = top_scores(scores, 8)
    assert ours.tolist() == best.tolist()
    assert where[[0, 2]].tolist() == places[[0, 2]].tolist()


def test_the_sum_is_that_of_torch_and_of_nothing_is_nothing() -> None:
    logits = torch.randn(4, 300, generator=torch.Generator().manual_seed(0)) * 20
    logits[1, ::2] = -torch.inf
    logits[2] = -torch.inf
    found = log_sum_exp(logits, logits.argmax(dim=-1, keepdim=True), torch.empty_like(logits))
    torch.testing.assert_close(found, logits.logsumexp(dim=-1))


def test_a_large_vocabulary(make_captioner: Callable[..., Captioner], inputs: dict[str, Tensor]) -> None:
    """Where candidates are looked for block by block, as transformers finds them in the whole."""
    model = make_captioner("bart", vocab_size=1500)
    ours = generate(model, inputs, num_beams=4, no_repeat_ngram_size=2)
    assert ours == generate(model, inputs, num_beams=4, no_repeat_ngram_size=2, use_cache=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("babelcap.models.generation.candidates.BLOCK_SIZE", 10_000)
        assert ours == generate(model, inputs, num_beams=4, no_repeat_ngram_size=2)


@pytest.mark.parametrize("field", ["input_ids", "decoder_input_ids"])
def test_ids_outside_the_vocabulary(make_captioner: Callable[..., Captioner], inputs: dict, field: str) -> None:
    wrong = {**inputs, field: torch.tensor([[2, 999], [2, 5]])}
    wrong["attention_mask"] = wrong["attention_mask"][:, : wrong["input_ids"].shape[1]]
    with pytest.raises(UserError, match=f"{field}: token id 999 is outside the vocabulary"):
        make_captioner("bart").generate(**wrong)
