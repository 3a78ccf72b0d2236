"""The mean of captioners' weights: by hand, what is the same stays the same, and what cannot be averaged is refused."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.errors import UserError
from babelcap.models import load_model
from babelcap.models.checkpoints.quantising import quantise_folder
from babelcap.models.surgery.average import average_folders
from babelcap.storage import MANIFEST

WEIGHTS = "model.safetensors"
MOVED = "decoder.layers.0.fc1.weight"


@pytest.fixture
def moved(tiny_model: Path, tmp_path: Path) -> Path:
    """The tiny captioner, with one matrix that is 3 more."""
    folder = tmp_path / "moved"
    shutil.copytree(tiny_model, folder)
    (folder / MANIFEST).unlink(missing_ok=True)
    weights = load_file(folder / WEIGHTS)
    weights[MOVED] += 3
    save_file(weights, folder / WEIGHTS, metadata={"format": "pt"})
    return folder


@pytest.mark.parametrize(("shares", "difference"), [((), 1.5), ((0.75, 0.25), 0.75), ((1.0, 0.0), 0.0)])
def test_shares_by_hand(
    tiny_model: Path, moved: Path, tmp_path: Path, shares: tuple[float, ...], difference: float
) -> None:
    found = average_folders([tiny_model, moved], tmp_path / "mean", shares)
    before, after = load_model(tiny_model).state_dict(), load_model(tmp_path / "mean", verify=True).state_dict()
    assert before.keys() == after.keys()
    for name, weight in before.items():
        if name == MOVED:
            torch.testing.assert_close(after[name], weight + difference)
        else:
            assert torch.equal(after[name], weight), name
    assert found.num_different == (before[MOVED].numel() if difference else 0)


def test_three_of_which_two_are_the_same(tiny_model: Path, moved: Path, tmp_path: Path) -> None:
    average_folders([moved, tiny_model, tiny_model], tmp_path / "mean")
    expected = load_model(tiny_model).state_dict()[MOVED] + 1
    torch.testing.assert_close(load_model(tmp_path / "mean").state_dict()[MOVED], expected)


def test_command_makes_a_captioner(tiny_model: Path, moved: Path, tmp_path: Path) -> None:
    output = tmp_path / "mean"
    found = CliRunner().invoke(app, ["model", "average", str(tiny_model), str(moved), "-o", str(output), "--json"])
    assert found.exit_code == 0, found.output
    assert json.loads(found.output)["num_models"] == 2
    assert CliRunner().invoke(app, ["model", "check", str(output)]).exit_code == 0
    assert {path.name for path in tiny_model.iterdir()} <= {path.name for path in output.iterdir()}


def test_what_is_refused(tiny_model: Path, moved: Path, tmp_path: Path) -> None:
    output = tmp_path / "mean"
    with pytest.raises(UserError, match="two or more"):
        average_folders([tiny_model], output)
    with pytest.raises(UserError, match="1 shares given for 2 models"):
        average_folders([tiny_model, moved], output, [1.0])
    with pytest.raises(UserError, match="their sum must be 1"):
        average_folders([tiny_model, moved], output, [0.5, 0.6])
    config = json.loads((moved / "config.json").read_text(encoding="utf-8"))
    (moved / "config.json").write_text(json.dumps(config | {"pad_token_id": 7}), encoding="utf-8")
    with pytest.raises(UserError, match=r"differs from that of .* in pad_token_id"):
        average_folders([tiny_model, moved], output)
    described = config["decoder_config"] | {"dtype": "float16"}  # says nothing of the network
    changed = config | {"decoder_config": described | {"dropout": 0.9}}
    (moved / "config.json").write_text(json.dumps(changed), encoding="utf-8")
    with pytest.raises(UserError, match=r"in decoder_config\.dropout$"):
        average_folders([tiny_model, moved], output)
    quantise_folder(tiny_model, tmp_path / "int8")
    with pytest.raises(UserError, match=r"differs .* in quantise|are quantised"):
        average_folders([tiny_model, tmp_path / "int8"], output)
    assert not output.exists()
