"""The start of a bridge: by hand, on planted words, and in a captioner, which still begins as its decoder."""

import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.coverage import CAPTION, Coverage, Style
from babelcap.data.store.store import CorpusWriter
from babelcap.errors import UserError
from babelcap.models import load_model, load_processor
from babelcap.models.checkpoints.saving import save_captioner
from babelcap.models.network.bridge import BridgeConfig
from babelcap.models.surgery.bridge import prepare_bridge
from babelcap.records import Annotation
from babelcap.training.bridge_start import CROSSING, fit_start, start_bridge, word_vectors

SHAPE = BridgeConfig(
    layers=(1, 3), num_heads=2, head_width=8, num_encoder_layers=1, width=16, num_encoder_heads=2,
    feed_forward_width=24, grid=2, max_positions=160, image_size_px=32, dropout=0.0,
)  # fmt: skip
SEEN, UNSEEN = ("caption-en",), {"UC": ("caption-fr",)}


def test_words_by_hand() -> None:
    """Of twenty images ten say 7 and five 8, twice; all say 1, which tells nothing, and one 9, which is too few."""
    captions = [[1, 7]] * 10 + [[1, 8, 8]] * 5 + [[1, 9]] + [[1]] * 4
    tokens, vectors = word_vectors(captions)
    assert tokens == [7, 8]
    # Each of the first fifteen has length one; the mean that is taken away is (10, 5) / 20.
    np.testing.assert_allclose(vectors[0], [0.5, -0.25])
    np.testing.assert_allclose(vectors[10], [-0.5, 0.75])
    np.testing.assert_allclose(vectors[19], [-0.5, -0.25])


def test_counts_and_rarity_by_hand() -> None:
    captions = [[7, 8, 8]] * 5 + [[7]] * 5 + [[5]] * 10
    _, vectors = word_vectors(captions)  # columns 5, 7 and 8: the first row is (0, log 2, sqrt 2 log 4), divided
    first = np.array([0, math.log(2), math.sqrt(2) * math.log(4)])
    first /= np.linalg.norm(first)
    mean = (5 * first + 5 * np.array([0, 1, 0]) + 10 * np.array([1, 0, 0])) / 20
    np.testing.assert_allclose(vectors[0], first - mean, atol=1e-12)


def test_words_that_tell_none_apart_are_refused() -> None:
    with pytest.raises(UserError, match="at least 5 and at most half of 8"):
        word_vectors([[1, 2]] * 8)


def test_one_feature_tells_one_word_by_hand() -> None:
    """z is +1 or -1 and the word is z / 2: ridge .5 / 1.25 = .4, and the result is divided by .4."""
    z = np.array([1.0, -1.0, 1.0, -1.0])
    start = fit_start(10 + 3 * z[:, None], 0.5 * z[:, None], width=1, strength=0.25)
    np.testing.assert_allclose(start.weight, [[1 / 3]])
    np.testing.assert_allclose(start.bias, [-10 / 3])
    np.testing.assert_allclose(start.words, [[1.0]])
    assert start.explained == pytest.approx(1 - (0.1 / 0.5) ** 2)


def test_planted_words_are_told_and_the_rest_is_left_out() -> None:
    """Two of 30 directions of the features decide five words; a projection of four has two that say something."""
    generator = np.random.default_rng(0)
    features = generator.normal(size=(400, 30)) * np.linspace(0.1, 3, 30) + 5
    meaning = generator.normal(size=(2, 5))
    words = (features[:, [3, 20]] - 5) @ meaning
    start = fit_start(features, words - words.mean(axis=0), width=4, strength=1e-6)
    assert start.explained == pytest.approx(1, abs=1e-6)
    results = features @ start.weight.T + start.bias
    np.testing.assert_allclose(results[:, 2:], 0, atol=1e-9)
    np.testing.assert_allclose(np.square(results).mean(), 1)
    np.testing.assert_allclose(results.mean(axis=0), 0, atol=1e-9)
    told = results @ start.words.T  # the words up to one factor
    for column in range(5):
        assert np.corrcoef(told[:, column], words[:, column])[0, 1] == pytest.approx(1, abs=1e-6)


def test_what_tells_nothing_is_refused() -> None:
    with pytest.raises(UserError, match="all the same"):
        fit_start(np.ones((6, 3)), np.eye(6), 2)
    features = np.random.default_rng(0).normal(size=(6, 3))
    with pytest.raises(UserError, match="tell nothing"):
        fit_start(features, np.zeros((6, 2)), 2)


def make_corpus(folder: Path) -> Path:
    """White images have dogs, black ones cats; their French, which is never trained on, is of another word."""
    coverage = Coverage(seen=SEEN, splits=UNSEEN)
    with CorpusWriter(folder, provenance={"source": "test"}, coverage=coverage) as writer:
        for number in range(24):
            stream = io.BytesIO()
            shade = 230 - number if number % 2 else 20 + number
            Image.new("RGB", (32, 32), (shade, shade, shade)).save(stream, "png")
            said = {"en": "dog" if number % 2 else "cat", "fr": "Katze"}
            texts = [
                Annotation(task=CAPTION, language=code, style=Style.SHORT, target=text, origin="test")
                for code, text in said.items()
            ]
            writer.add(f"{number}", stream.getvalue(), "png", "train", texts)
    return folder


@pytest.fixture
def parts(tiny_gemma: Path, tiny_backbones: dict[str, Path], bridge_tokenizer: Any, tmp_path: Path) -> tuple[str, str]:
    prepare_bridge(list(tiny_backbones.values()), tiny_gemma, tmp_path / "new", SHAPE, tokenizer=bridge_tokenizer)
    return str(tmp_path / "new"), str(make_corpus(tmp_path / "corpus"))


def test_a_started_captioner_says_its_words_and_begins_as_its_decoder(
    parts: tuple[str, str], bridge_tokenizer: Any, tmp_path: Path
) -> None:
    new, corpus = parts
    fitted = start_bridge(new, corpus, tmp_path / "started", split="train", num_images=100)
    assert (fitted.num_images, fitted.num_tokens) == (24, 2)  # French is not looked at
    assert fitted.explained > 0.5
    before, after = load_model(new), load_model(tmp_path / "started")
    cat, dog = bridge_tokenizer.convert_tokens_to_ids(["cat", "dog"])
    axis = after.decoder.embed_tokens.weight[dog] - after.decoder.embed_tokens.weight[cat]
    crossing = after.decoder.layers[1].encoder_attn
    with torch.no_grad():
        sides = []
        for shade in (0.9, 0.1):
            pixels = (torch.full((1, 3, 32, 32), shade) - 0.45) / 0.225
            projected = after.encoder.image_projection(after.encode_images(pixels)).mean(dim=(0, 1))
            sides.append(float(crossing.o_proj(crossing.v_proj(projected)) @ axis))
        assert sides[0] > 0 > sides[1]
        inputs = {"input_ids": torch.tensor([[2, 5, 1]]), "pixel_values": torch.randn(1, 3, 32, 32)}
        ids = torch.tensor([[2, 7, 9]])
        assert torch.equal(*(model(**inputs, decoder_input_ids=ids).logits for model in (before, after)))
    changed = {
        name for name, tensor in after.state_dict().items() if not torch.equal(tensor, before.state_dict()[name])
    }
    layers = {f"decoder.layers.{layer}.encoder_attn.{part}.weight" for layer in (1, 3) for part in ("v_proj", "o_proj")}
    assert changed == layers | {"encoder.image_projection.weight", "encoder.image_projection.bias"}
    values = crossing.v_proj.weight - 0.1 * before.decoder.layers[1].encoder_attn.v_proj.weight
    torch.testing.assert_close(values, CROSSING * torch.eye(16))


def test_from_the_command_line_and_what_cannot_be_started(
    parts: tuple[str, str], tiny_models: dict[str, Path], tmp_path: Path
) -> None:
    new, corpus = parts
    asked = ["model", "start-bridge", corpus, "--model", new, "--output", str(tmp_path / "started")]
    result = CliRunner().invoke(app, asked)
    assert result.exit_code == 0, result.output
    assert "2 tokens" in " ".join(result.output.split())
    result = CliRunner().invoke(app, [*asked[:-1], str(tmp_path / "again"), "--json"])
    assert json.loads(result.output)["num_tokens"] == 2
    trained, processor = load_model(new), load_processor(new)
    with torch.no_grad():
        trained.decoder.layers[3].encoder_attn_gate.fill_(0.1)
    save_captioner(tmp_path / "trained", trained, processor)
    for folder, problem in ((tmp_path / "trained", "has been trained"), (tiny_models["bart"], "no bridge")):
        with pytest.raises(UserError, match=problem):
            start_bridge(folder, corpus, tmp_path / "other", split="train", num_images=10)
    assert not (tmp_path / "other").exists()
