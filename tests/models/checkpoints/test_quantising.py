"""Rounded weights: a folder of them is smaller, decodes like the model rounded in memory, and says what it is."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.errors import UserError
from babelcap.models import Captioner, load, load_model
from babelcap.models.checkpoints.quantising import quantise_folder
from babelcap.models.generation.packing import rounded_names
from babelcap.models.generation.products import round_weight


@pytest.fixture(scope="module", autouse=True)
def small_is_large() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("babelcap.models.generation.packing.MIN_INT8_WEIGHTS", 1)
        yield


@pytest.fixture(scope="module")
def quantised(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quantised") / "model"
    found = CliRunner().invoke(app, ["model", "quantise", str(model_folder), "-o", str(folder)])
    assert found.exit_code == 0, found.output
    assert "weights rounded" in found.output
    return folder


def test_weights_are_the_rounded_ones(model_folder: Path, quantised: Path) -> None:
    before, after = load_model(model_folder), load_model(quantised, verify=True)
    assert (before.quantise, after.quantise) == (None, "int8")
    rounded = set(rounded_names(before))
    assert {"decoder.embed_tokens.weight", "decoder.layers.0.fc1.weight"} <= rounded
    assert not any("encoder_attn.k_proj" in name or name.startswith("encoder.") for name in rounded)
    for name, weight in before.state_dict().items():
        if name in rounded:
            whole, scales = round_weight(weight)
            weight = whole * scales[:, None]
        assert torch.equal(after.state_dict()[name], weight), name
    sizes = [(folder / "model.safetensors").stat().st_size for folder in (model_folder, quantised)]
    assert sizes[1] < sizes[0]


def test_both_ways_give_the_same_texts(model_folder: Path, quantised: Path) -> None:
    """Of this picture: what is given is read with the weights as stored, so that a near tie may fall either way."""
    picture = Image.linear_gradient("L").resize((40, 30)).convert("RGB")
    on_the_fly = load(model_folder, quantise="int8").caption([picture], ["de", "es"], max_new_tokens=12)
    stored = load(quantised).caption([picture], ["de", "es"], max_new_tokens=12)
    assert [result.text for result in on_the_fly] == [result.text for result in stored]


def test_what_is_refused(model_folder: Path, quantised: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="quantise is 'int3'"):
        load(model_folder, quantise="int3")
    with pytest.raises(UserError, match="quantised already"):
        quantise_folder(quantised, tmp_path / "again")
    with pytest.raises(UserError, match="its weights are quantised"):
        Captioner.from_pretrained(quantised)
