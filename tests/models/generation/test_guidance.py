"""Guidance: by hand, against a search that caches nothing, and only where there is a picture to be guided by."""

import math
from collections.abc import Callable
from pathlib import Path
from shutil import copytree

import pytest
import torch
from PIL import Image
from torch import Tensor
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.coverage import Coverage
from babelcap.errors import UserError
from babelcap.models import Captioner, CaptionProcessor, GenerationRequest, GenerationSettings, load_model
from babelcap.models.checkpoints.files import MEAN_IMAGE_FILE
from babelcap.models.checkpoints.quantising import quantise_folder
from babelcap.models.generation.core import GenerationCore
from babelcap.models.generation.guidance import guide, mean_of, read_mean_image, write_mean_image
from babelcap.models.generation.searching import Search, SearchRules

SCALE = 2.5


def test_scores_by_hand() -> None:
    """The first token is the likeliest, the second half as likely, the third a twentieth as likely: not plausible."""
    logits = torch.tensor([[0.0, math.log(1 / 2), math.log(1 / 20)]])
    blind = torch.tensor([[0.0, math.log(1 / 8), math.log(1 / 20)]])
    found = guide(logits, blind, 2.0).exp()  # the second: (1/2)^2 / (1/8) = 2 times the first
    torch.testing.assert_close(found, torch.tensor([[1 / 3, 2 / 3, 0.0]]))
    unguided = guide(logits, blind, 1.0).exp()
    torch.testing.assert_close(unguided, torch.tensor([[2 / 3, 1 / 3, 0.0]]))


def test_what_may_not_follow_makes_nothing_else_implausible() -> None:
    logits = torch.tensor([[-torch.inf, math.log(1 / 20), math.log(1 / 40)]])
    found = guide(logits, torch.zeros(1, 3), 1.0).exp()
    torch.testing.assert_close(found, torch.tensor([[0.0, 2 / 3, 1 / 3]]))


def test_the_mean_is_over_images_however_they_come() -> None:
    images = torch.tensor([[[1.0, 2.0]], [[3.0, 2.0]], [[8.0, 5.0]]])
    assert mean_of([images[:2], images[2:]]).tolist() == [[4.0, 3.0]]
    with pytest.raises(UserError, match="no image"):
        mean_of([])


@pytest.fixture(params=["bart", "gemma2", "gemma3"])
def guided_captioner(request: pytest.FixtureRequest, make_captioner: Callable[..., Captioner]) -> Captioner:
    """Of each kind of decoder, with a mean picture that was not read from a folder."""
    model = make_captioner(request.param, **({} if request.param == "bart" else {"sliding_window": 64}))
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        model.__dict__["mean_image"] = model.encode_images(torch.randn(1, 3, 32, 32, generator=generator))[0]
    return model


@torch.no_grad()
def uncached(model: Captioner, inputs: dict[str, Tensor], row: int, rules: SearchRules) -> list[int]:
    """One sample's best sequence, every state computed anew from the whole sequence."""
    ids, mask = inputs["input_ids"][row : row + 1], inputs["attention_mask"][row : row + 1]
    own = model.encoder(ids, attention_mask=mask, pixel_values=inputs["pixel_values"][row : row + 1])
    other = model.encoder(ids, attention_mask=mask, image_features=model.mean_image[None])
    search = Search([model.config.decoder_start_token_id], rules)
    while not search.is_done:
        options = []
        for beam in search.running:
            tokens = torch.tensor([beam.tokens])
            states = [
                model(encoder_outputs=encoded, decoder_input_ids=tokens).decoder_last_hidden_state[:, -1]
                for encoded in (own, other)
            ]
            own_logits, other_logits = (model.head(some, model.head_weight)[0] for some in states)
            scale = SCALE if len(beam.tokens) > 1 else 1.0  # the first token is not guided
            pushed = other_logits + scale * (own_logits - other_logits)
            if scale > 1:
                pushed[own_logits.softmax(dim=0) < 0.3 * own_logits.softmax(dim=0).max()] = -torch.inf
            best = pushed.log_softmax(dim=0).topk(rules.num_candidates)
            found = zip(best.values.tolist(), best.indices.tolist(), strict=True)
            options.append([(score, token) for score, token in found if score != -torch.inf])
        search.advance(options)
    return list(search.results()[0].tokens)


@pytest.mark.parametrize("num_beams", [1, 3])
def test_the_search_equals_one_that_caches_nothing(
    guided_captioner: Captioner, inputs: dict[str, Tensor], num_beams: int
) -> None:
    model = guided_captioner
    settings = {"num_beams": num_beams, "max_length": 9}
    found = model.generate(**inputs, **settings, guidance_scale=SCALE).tolist()
    plain = model.generate(**inputs, **settings).tolist()
    rules = SearchRules(num_beams, 9, frozenset(model.end_token_ids))
    for row in range(len(inputs["input_ids"])):
        expected = uncached(model, inputs, row, rules)
        assert found[row][: len(expected)] == expected
    assert found != plain  # or the test would show nothing
    assert model.generate(**inputs, **settings, guidance_scale=1.0).tolist() == plain


@pytest.fixture
def core(guided_captioner: Captioner, processor: CaptionProcessor) -> GenerationCore:
    return GenerationCore(guided_captioner, processor, Coverage())


@pytest.fixture
def pictures() -> list[Image.Image]:
    return [Image.effect_noise((40, 30), 30 * number + 20).convert("RGB") for number in range(3)]


def test_what_is_asked_together_is_what_is_asked_alone(core: GenerationCore, pictures: list[Image.Image]) -> None:
    settings = GenerationSettings(num_beams=2, max_new_tokens=6, guidance_scale=SCALE)
    requests = [
        GenerationRequest(code, image=image, settings=settings) for image in pictures for code in ("en", "fr", "zh")
    ]
    together = list(core.generate(requests, batch_size=4))
    for result in together:
        (one,) = core.generate([result.request])
        assert result.text == one.text
        assert result.score is not None
        assert one.score is not None
        assert result.score.total == pytest.approx(one.score.total, abs=1e-3)
    unguided = GenerationSettings(num_beams=2, max_new_tokens=6)
    free = core.generate([GenerationRequest(r.language, image=r.image, settings=unguided) for r in requests])
    assert [result.text for result in together] != [result.text for result in free]


def test_a_score_is_the_models_own_probability(core: GenerationCore, pictures: list[Image.Image]) -> None:
    """Not that of the guided search: scores of texts stay comparable."""
    settings = GenerationSettings(num_beams=1, max_new_tokens=6, guidance_scale=SCALE, tokens=True)
    (result,) = core.generate([GenerationRequest("en", image=pictures[0], settings=settings)])
    plain = core.processor([pictures[0]], core.prompt_of(result.request))
    ids = torch.tensor([[core.model.config.decoder_start_token_id, *(token.token_id for token in result.tokens)]])
    with torch.no_grad():
        logits = core.model(**plain, decoder_input_ids=ids[:, :-1]).logits.log_softmax(dim=-1)
    total = logits[0].gather(1, ids[0, 1:, None]).sum()
    assert result.score is not None
    assert result.score.total == pytest.approx(float(total), abs=1e-3)


def test_the_models_own_scale_is_for_captions_of_pictures(
    core: GenerationCore, pictures: list[Image.Image], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(core.model.generation_config, "guidance_scale", SCALE)
    picture, drawn = pictures[0], GenerationSettings(temperature=1.0)
    asked = GenerationSettings(guidance_scale=1.5)
    expected = {
        SCALE: GenerationRequest("fr", image=picture),
        1.5: GenerationRequest("de", task="translation", source="A dog.", image=picture, settings=asked),
    }
    for scale, request in expected.items():
        assert core.guidance_of(request) == scale
    for request in (
        GenerationRequest("fr", image=picture, settings=drawn),
        GenerationRequest("de", task="translation", source="A dog.", image=picture),
        GenerationRequest("de", task="translation", source="A dog.", settings=asked),
    ):
        assert core.guidance_of(request) == 1
    (result,) = core.generate([GenerationRequest("fr", image=picture, settings=drawn)])  # by transformers' loop
    assert result.texts


def test_what_cannot_be_guided_is_refused(core: GenerationCore, inputs: dict[str, Tensor]) -> None:
    with pytest.raises(UserError, match="cannot be combined with temperature"):
        GenerationSettings(temperature=0.5, guidance_scale=2.0)
    for wrong in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UserError, match="greater than 0"):
            GenerationSettings(guidance_scale=wrong)
    with pytest.raises(UserError, match="transformers' loop"):
        core.model.generate(**inputs, do_sample=True, guidance_scale=2.0, max_new_tokens=3)


def test_a_text_longer_than_the_decoders_window_is_refused(
    make_captioner: Callable[..., Captioner], processor: CaptionProcessor, pictures: list[Image.Image]
) -> None:
    """It would run in transformers' loop, which knows no mean picture."""
    core = GenerationCore(make_captioner("gemma3", sliding_window=4), processor, Coverage())
    settings = GenerationSettings(guidance_scale=SCALE, max_new_tokens=20)
    with pytest.raises(UserError, match="fewer new tokens"):
        list(core.generate([GenerationRequest("en", image=pictures[0], settings=settings)]))


def test_a_mean_image_that_is_missing_or_damaged(model_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "model"
    copytree(model_folder, folder)
    with pytest.raises(UserError, match="babelcap model mean-image"):
        read_mean_image(folder)
    tokens = torch.arange(6.0).view(2, 3)
    path = write_mean_image(folder, tokens)
    assert torch.equal(read_mean_image(folder), tokens)
    quantise_folder(folder, tmp_path / "rounded")
    assert torch.equal(read_mean_image(tmp_path / "rounded"), tokens)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(UserError, match=MEAN_IMAGE_FILE):
        read_mean_image(folder)


def test_from_a_corpus_to_a_guided_caption(tiny_model: Path, tiny_corpus: Path, tmp_path: Path) -> None:
    folder, picture = tmp_path / "model", tmp_path / "picture.png"
    copytree(tiny_model, folder)
    Image.effect_noise((40, 30), 50).convert("RGB").save(picture)
    asked = ["caption", str(picture), "-m", str(folder), "-l", "fr", "--guidance-scale", "2", "--max-new-tokens", "4"]
    missing = CliRunner().invoke(app, asked)
    assert missing.exit_code == 2
    assert "mean-image" in missing.output
    made = CliRunner().invoke(app, ["model", "mean-image", str(tiny_corpus), "--model", str(folder), "--num", "3"])
    assert made.exit_code == 0, made.output
    assert "the mean of " in made.output
    model = load_model(folder)
    assert model.mean_image.shape[1] == model.config.encoder_config.hidden_size
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
