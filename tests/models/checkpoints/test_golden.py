"""Parity with the golden fixtures: tiny models in the published format, with the published code's outputs."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from babelcap.models import Captioner, load_model

FAMILIES = ["florence2", "gemma2"]
STATES_TOLERANCE = 2e-4
LOSS_TOLERANCE = 1e-4
GENERATIONS = {
    "generated_beam4": {"num_beams": 4, "max_new_tokens": 16},
    "generated_beam4_prefix": {"num_beams": 4, "max_new_tokens": 16},
    "generated_greedy": {
        "num_beams": 1,
        "early_stopping": False,
        "no_repeat_ngram_size": 0,
        "min_new_tokens": 8,
        "max_new_tokens": 16,
    },
}


def copy_golden(golden_fixtures: Path, family: str, folder: Path) -> Path:
    """A fixture as a published checkpoint lies on disk, with its inputs and outputs beside."""
    source = golden_fixtures / family
    folder.mkdir(exist_ok=True)
    shutil.copy(source / "reference_config.json", folder / "config.json")
    shutil.copy(source / "reference_weights.safetensors", folder / "model.safetensors")
    shutil.copy(source / "generation_config.json", folder)
    shutil.copy(source / "reference_io.safetensors", folder / "io")
    return folder


@pytest.fixture(scope="module", params=FAMILIES)
def golden(request: pytest.FixtureRequest, golden_fixtures: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return copy_golden(golden_fixtures, request.param, tmp_path_factory.mktemp(request.param))


@pytest.fixture(scope="module")
def model(golden: Path) -> Captioner:
    return load_model(golden)


@pytest.fixture(scope="module")
def io(golden: Path) -> dict[str, Tensor]:
    return load_file(golden / "io")


def inputs_of(io: dict[str, Tensor], rows: slice = slice(None)) -> dict[str, Tensor]:
    return {name: io[name][rows] for name in ("input_ids", "attention_mask", "pixel_values")}


def largest_difference(ours: Tensor, theirs: Tensor) -> float:
    assert ours.shape == theirs.shape
    return float((ours - theirs).abs().max())


def test_states_logits_and_loss(model: Captioner, io: dict[str, Tensor]) -> None:
    with torch.no_grad():
        outputs = model(**inputs_of(io), labels=io["labels"])
    assert largest_difference(outputs.image_features, io["image_features"]) < STATES_TOLERANCE
    assert largest_difference(outputs.encoder_last_hidden_state, io["encoder_last_hidden_state"]) < STATES_TOLERANCE
    assert largest_difference(outputs.logits, io["logits"]) < STATES_TOLERANCE
    assert abs(float(outputs.loss) - float(io["loss"])) < LOSS_TOLERANCE


def test_each_sample_alone(model: Captioner, io: dict[str, Tensor]) -> None:
    for row in range(len(io["labels"])):
        only = slice(row, row + 1)
        with torch.no_grad():
            outputs = model(**inputs_of(io, only), labels=io["labels"][only])
        assert largest_difference(outputs.logits, io["logits"][only]) < STATES_TOLERANCE
        assert abs(float(outputs.loss) - float(io["per_sample_loss"][row])) < LOSS_TOLERANCE


def test_loss_without_logits(model: Captioner, io: dict[str, Tensor]) -> None:
    with torch.no_grad():
        outputs = model(**inputs_of(io), labels=io["labels"], logits_needed=False)
    assert outputs.logits is None
    assert abs(float(outputs.loss) - float(io["loss"])) < LOSS_TOLERANCE


def test_image_features_stand_in_for_pixels(model: Captioner, io: dict[str, Tensor]) -> None:
    inputs = inputs_of(io)
    features = model.encode_images(inputs.pop("pixel_values"))
    with torch.no_grad():
        outputs = model(**inputs, image_features=features, labels=io["labels"])
    assert largest_difference(outputs.logits, io["logits"]) < STATES_TOLERANCE


@pytest.mark.parametrize("use_cache", [True, False], ids=["cached", "uncached"])
@pytest.mark.parametrize("name", GENERATIONS)
def test_generated_tokens(model: Captioner, io: dict[str, Tensor], name: str, use_cache: bool) -> None:
    prefix = {"decoder_input_ids": io["prefix_ids"]} if name.endswith("prefix") else {}
    tokens = model.generate(**inputs_of(io), **prefix, **GENERATIONS[name], use_cache=use_cache)
    assert tokens.tolist() == io[name].tolist()


@pytest.mark.parametrize("name", GENERATIONS)
def test_generated_tokens_one_by_one(model: Captioner, io: dict[str, Tensor], name: str) -> None:
    for row in range(len(io["labels"])):
        only = slice(row, row + 1)
        prefix = {"decoder_input_ids": io["prefix_ids"][only]} if name.endswith("prefix") else {}
        tokens = model.generate(**inputs_of(io, only), **prefix, **GENERATIONS[name])
        expected = io[name][only]
        assert tokens.tolist() == expected[:, : tokens.shape[1]].tolist()
        assert (expected[:, tokens.shape[1] :] == model.config.pad_token_id).all()


@pytest.mark.parametrize("kept", [[0, 2], [1, 3], [3]])
def test_cross_attention_where_the_weights_have_it(golden_fixtures: Path, tmp_path: Path, kept: list[int]) -> None:
    """A layer without the weights of cross-attention is as one with its gate closed."""
    sparse, closed = (copy_golden(golden_fixtures, "gemma2", tmp_path / name) for name in ("sparse", "closed"))
    weights = load_file(sparse / "model.safetensors")
    across = {name for name in weights if ".decoder." in name and ("encoder_attn" in name or "encoder_att" in name)}
    left_out = {name for name in across if int(name.split("layers.")[1].split(".")[0]) not in kept}
    save_file({name: weights[name] for name in weights if name not in left_out}, sparse / "model.safetensors")
    gates = {name: torch.zeros(1) for name in left_out if name.endswith("gate")}
    save_file(weights | gates, closed / "model.safetensors")
    sparse_model, closed_model, io = load_model(sparse), load_model(closed), load_file(sparse / "io")
    assert sparse_model.config.decoder_config.layers_with_cross_attention() == kept
    with torch.no_grad():
        ours = sparse_model(**inputs_of(io), labels=io["labels"]).logits
        theirs = closed_model(**inputs_of(io), labels=io["labels"]).logits
    assert largest_difference(ours, theirs) < 1e-5
    settings = GENERATIONS["generated_beam4"]
    cached = sparse_model.generate(**inputs_of(io), **settings)
    assert cached.tolist() == sparse_model.generate(**inputs_of(io), **settings, use_cache=False).tolist()
    assert cached.tolist() == closed_model.generate(**inputs_of(io), **settings).tolist()
