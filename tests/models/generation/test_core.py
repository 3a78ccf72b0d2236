"""The generation core: whatever is asked together gives what is asked alone, and the numbers beside it are true."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image
from torch import Tensor

from babelcap.coverage import Coverage, caption_prompt
from babelcap.errors import UserError
from babelcap.languages import LANGUAGES
from babelcap.models import Captioner, CaptionProcessor, GenerationRequest, GenerationResult, GenerationSettings
from babelcap.models.generation.core import GenerationCore
from babelcap.models.generation.explain import attention_shares, on_grid
from babelcap.models.generation.preparing import Prepared, make_batches

SETTINGS = GenerationSettings(num_beams=2, max_new_tokens=5)
CODES = [language.code for language in LANGUAGES]


@pytest.fixture(scope="module")
def core(captioner: Captioner, processor: CaptionProcessor) -> GenerationCore:
    return GenerationCore(captioner, processor, Coverage())


@pytest.fixture(scope="module")
def pictures() -> list[Image.Image]:
    return [Image.effect_noise((40, 30), 30 * number + 20).convert("RGB") for number in range(3)]


def requests_of(pictures: list[Image.Image], **options: object) -> list[GenerationRequest]:
    options = {"settings": SETTINGS, **options}
    return [GenerationRequest(code, image=image, **options) for image in pictures for code in CODES]  # type: ignore[arg-type]


def alone(core: GenerationCore, request: GenerationRequest, prefix: str, **options: object) -> Tensor:
    """One request by the model's plain generate."""
    language = core.coverage.language(request.language)
    inputs = core.processor([request.image], caption_prompt(language))  # type: ignore[list-item]
    if prefix:
        inputs["decoder_input_ids"] = torch.tensor([core.processor.prefix_ids(prefix)])
    return core.model.generate(**inputs, **{"num_beams": 2, "max_new_tokens": 5, **options})


def test_the_core_equals_plain_generation_of_each(core: GenerationCore, pictures: list[Image.Image]) -> None:
    requests = requests_of(pictures[:2])
    results = list(core.generate(requests, batch_size=4))
    assert [result.request for result in results] == requests
    for result in results:
        ids = alone(core, result.request, result.prefix)
        assert [result.text] == core.processor.decode(ids)


def test_with_allowed_tokens_too(core: GenerationCore, pictures: list[Image.Image]) -> None:
    some = CODES[:3]
    allowed = {code: [1, 2, *range(20 + place, 90, 2)] for place, code in enumerate(some)}
    requests = [
        GenerationRequest(code, image=pictures[0], allowed_tokens=allowed[code], settings=SETTINGS) for code in some
    ]
    for result in core.generate(requests):
        ids = alone(core, result.request, result.prefix, allowed_tokens=allowed[result.request.language])
        assert [result.text] == core.processor.decode(ids)


def test_features_stand_for_images(core: GenerationCore, pictures: list[Image.Image]) -> None:
    features = core.encode_pixels(core.processor.encode_images(pictures))
    requests = [GenerationRequest("de", image_features=tokens, settings=SETTINGS) for tokens in features]
    expected = [GenerationRequest("de", image=image, settings=SETTINGS) for image in pictures]
    assert [r.text for r in core.generate(requests)] == [r.text for r in core.generate(expected)]
    with pytest.raises(UserError, match="both given"):
        GenerationRequest("de", image=pictures[0], image_features=features[0])


def test_an_image_is_encoded_once(
    core: GenerationCore, pictures: list[Image.Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    encoded = []
    original = core.encode_pixels
    monkeypatch.setattr(core, "encode_pixels", lambda pixels: encoded.append(len(pixels)) or original(pixels))
    list(
        core.generate(requests_of(pictures[:2]), batch_size=4, window=4)
    )  # windows that cut through an image's languages
    assert sum(encoded) == 2


def test_small_models_decode_more_at_once(core: GenerationCore, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as are multiplied in the fast ways, beams counted."""
    assert [core.default_batch_size(num_beams) for num_beams in (1, 4, 8, 300)] == [64, 64, 32, 1]
    monkeypatch.setattr("babelcap.models.generation.core.SMALL_DECODER", 100)
    assert core.default_batch_size(4) == 16


def test_results_stream(core: GenerationCore, pictures: list[Image.Image]) -> None:
    taken = []

    def endless() -> Iterator[GenerationRequest]:
        while True:
            taken.append(1)
            yield GenerationRequest("de", image=pictures[0], settings=SETTINGS)

    results = core.generate(endless(), batch_size=2)
    assert isinstance(next(results), GenerationResult)
    assert len(taken) == 64  # a window of 32 batches, and no more
    results.close()  # type: ignore[attr-defined]
    requests = requests_of(pictures)
    unordered = list(core.generate(requests, batch_size=4, in_order=False))
    assert {id(result.request) for result in unordered} == {id(request) for request in requests}


def test_a_bad_image_stops_all_or_is_reported(core: GenerationCore, pictures: list[Image.Image]) -> None:
    requests = requests_of(pictures[:1]) + [
        GenerationRequest(code, image=b"no image", key="bad", settings=SETTINGS) for code in ("de", "es")
    ]
    with pytest.raises(UserError, match="bad: not an image"):
        list(core.generate(requests))
    reported: list[tuple[str, str]] = []
    results = list(core.generate(requests, on_bad_image=lambda r, error: reported.append((r.language, str(error)))))
    assert [result.request for result in results] == requests[: len(CODES)]
    assert [language for language, _ in reported] == ["de", "es"]


def test_batches_agree_in_what_they_must() -> None:
    requests = [
        GenerationRequest("de", source="text"),
        GenerationRequest("es", source="text"),
        GenerationRequest("de", source="text", settings=SETTINGS),
        GenerationRequest("de", source="text", allowed_tokens="language"),
        GenerationRequest("es", source="text", allowed_tokens="language"),
        GenerationRequest("de", image=b""),
    ]
    prepared = [Prepared(n, request, "", [], [0] * 5) for n, request in enumerate(requests)]
    numbers = [[item.number for item in batch] for batch in make_batches(prepared, 8)]
    assert numbers == [[0, 1], [2], [3], [4], [5]]
    lengths = [40, 3, 41, 4, 42]
    prepared = [Prepared(n, requests[0], "p", [1, 2], [0] * length) for n, length in enumerate(lengths)]
    assert [[item.number for item in batch] for batch in make_batches(prepared, 2)] == [[0, 2], [1, 3], [4]]


@pytest.mark.parametrize("prefix", ["always", "none"])
def test_scores_are_the_models_log_probabilities(
    core: GenerationCore, pictures: list[Image.Image], prefix: str
) -> None:
    settings = GenerationSettings(num_beams=3, max_new_tokens=8, num_return_sequences=3, tokens=True)
    requests = [
        GenerationRequest(c, image=i, prefix=prefix, settings=settings) for i in pictures[:2] for c in ("es", "de")
    ]  # type: ignore[arg-type]
    for result in core.generate(requests):
        assert len(result.texts) == 3
        assert result.alternatives == result.texts[1:]
        language = core.coverage.language(result.request.language)
        inputs = core.processor([result.request.image], caption_prompt(language))  # type: ignore[list-item]
        for text in result.texts:
            assert text.score is not None
            ids = torch.tensor([[token.token_id for token in text.tokens]])
            start = torch.tensor([[core.model.config.decoder_start_token_id]])
            logits = core.model(**inputs, decoder_input_ids=torch.cat([start, ids[:, :-1]], dim=1)).logits
            expected = logits.log_softmax(-1).gather(2, ids[..., None])[0, :, 0]
            assert [token.log_probability for token in text.tokens] == pytest.approx(expected.tolist(), abs=2e-4)
            given = [token.is_given for token in text.tokens]
            assert given == [place < len(core.processor.prefix_ids(result.prefix)) for place in range(len(given))]
            chosen = [token.log_probability for token in text.tokens if not token.is_given]
            assert text.score.total == pytest.approx(sum(chosen), abs=1e-4)
            assert text.score.mean == pytest.approx(sum(chosen) / len(chosen), abs=1e-4)
            assert text.score.num_tokens == len(chosen)
            assert "".join(token.text for token in text.tokens).strip() == text.text


@torch.no_grad()
def test_attention_is_that_of_the_layers(core: GenerationCore, pictures: list[Image.Image]) -> None:
    """shares x values, through the output projection, is what each layer gives."""
    layer = next(module for name, module in core.model.decoder.named_modules() if name.endswith("encoder_attn"))
    calls = []
    handle = layer.register_forward_hook(
        lambda _, args, kwargs, out: calls.append((args, kwargs, out)), with_kwargs=True
    )
    settings = GenerationSettings(num_beams=1, max_new_tokens=6, attention=True)
    (result,) = core.generate([GenerationRequest("es", image=pictures[0], settings=settings)])
    handle.remove()
    args, kwargs, output = calls[-1]  # the second look: all tokens at once
    states, encoder_states = [*args, *(kwargs[n] for n in ("hidden_states", "key_value_states") if n in kwargs)][:2]
    shares = attention_shares(layer, states, encoder_states, torch.ones(encoder_states.shape[:2], dtype=torch.bool))
    value = layer.v_proj(encoder_states).unflatten(-1, (-1, layer.head_dim)).transpose(1, 2)
    value = value.repeat_interleave(shares.shape[1] // value.shape[1], dim=1)
    expected = getattr(layer, "o_proj", None) or layer.out_proj
    given = output if isinstance(output, Tensor) else output[0]
    assert torch.allclose(expected((shares @ value).transpose(1, 2).flatten(2)), given, atol=1e-4)
    assert result.attention is not None
    assert result.score is not None
    num_tokens = len(core.processor.prefix_ids(result.prefix)) + result.score.num_tokens
    assert result.attention.shape == (num_tokens, 4, 4)  # 32 px, reduced eightfold
    assert (result.attention.flatten(1).sum(dim=1) <= 1 + 1e-5).all()
    assert (result.attention >= 0).all()


def test_the_grid_leaves_out_what_has_no_place() -> None:
    shares = torch.arange(10.0)
    assert on_grid(shares, ["spatial_avg_pool", "temporal_avg_pool"]).tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9]]
    assert on_grid(shares, ["temporal_avg_pool", "spatial_avg_pool"]).tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    both = on_grid(torch.arange(9.0), ["last_frame", "spatial_avg_pool", "temporal_avg_pool"])
    assert both.tolist() == [[0 + 5, 1 + 6], [2 + 7, 3 + 8]]


def test_sampling_is_repeatable(core: GenerationCore, pictures: list[Image.Image]) -> None:
    def texts(seed: int) -> list[str]:
        settings = GenerationSettings(temperature=2.0, seed=seed, max_new_tokens=8, num_return_sequences=3)
        state = torch.random.get_rng_state()
        (result,) = core.generate([GenerationRequest("de", image=pictures[0], settings=settings)])
        assert torch.equal(state, torch.random.get_rng_state())  # others' draws are not touched
        return [text.text for text in result.texts]

    assert texts(1) == texts(1) != texts(2)
    assert len(set(texts(1))) > 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_beams": 0}, "num_beams is 0"),
        ({"max_new_tokens": -3}, "max_new_tokens is -3"),
        ({"num_return_sequences": 0}, "num_return_sequences is 0"),
        ({"num_return_sequences": 3, "num_beams": 2}, "num_return_sequences is 3, num_beams 2"),
        ({"num_return_sequences": 3, "num_beams": 2, "top_p": 0.5}, "num_return_sequences is 3, num_beams 2"),
        ({"temperature": 0.0}, "temperature is 0.0"),
        ({"temperature": float("nan")}, "temperature is nan"),
        ({"top_p": 1.5}, "top_p is 1.5"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_settings_have_bounds(options: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        GenerationSettings(**options)  # type: ignore[arg-type]


def test_beams_by_default() -> None:
    assert GenerationSettings().beams == 4
    assert GenerationSettings(num_return_sequences=6).beams == 6
    assert GenerationSettings(num_return_sequences=6, temperature=1.0).beams == 1


def test_batch_size_has_a_bound(core: GenerationCore) -> None:
    with pytest.raises(UserError, match="batch_size is 0"):
        next(core.generate([GenerationRequest("de")], batch_size=0))


def test_paths_are_shared_by_value(core: GenerationCore, pictures: list[Image.Image], tmp_path: Path) -> None:
    pictures[0].save(tmp_path / "a.png")
    requests = [GenerationRequest(code, image=tmp_path / "a.png", settings=SETTINGS) for code in CODES]
    expected = [GenerationRequest(code, image=pictures[0], settings=SETTINGS) for code in CODES]
    assert [r.text for r in core.generate(requests)] == [r.text for r in core.generate(expected)]
