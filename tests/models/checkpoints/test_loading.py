"""Loading and importing: both formats, shards, types, pickles; and everything that can be wrong with a folder."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from babelcap.errors import UserError
from babelcap.models import Captioner, CaptionProcessor, import_checkpoint, load_model, load_processor

FAMILIES = ["florence2", "gemma2"]


@pytest.fixture(params=FAMILIES)
def published(request: pytest.FixtureRequest, golden_fixtures: Path, tmp_path: Path) -> Path:
    source = golden_fixtures / request.param
    folder = tmp_path / "published"
    folder.mkdir()
    shutil.copy(source / "reference_config.json", folder / "config.json")
    shutil.copy(source / "reference_weights.safetensors", folder / "model.safetensors")
    shutil.copy(source / "generation_config.json", folder)
    return folder


@pytest.fixture
def ours(model_folder: Path, tmp_path: Path) -> Path:
    """Without a manifest, which would find every change before the reader does."""
    folder = Path(shutil.copytree(model_folder, tmp_path / "ours"))
    (folder / "manifest.json").unlink()
    return folder


def edit_weights(folder: Path, change: Callable[[dict[str, Tensor]], None]) -> None:
    weights = load_file(folder / "model.safetensors")
    change(weights)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def edit_config(folder: Path, change: Callable[[dict], None]) -> None:
    values = json.loads((folder / "config.json").read_text())
    change(values)
    (folder / "config.json").write_text(json.dumps(values))


def pickle_weights(folder: Path, name: str) -> None:
    torch.save(load_file(folder / "model.safetensors"), folder / name)
    (folder / "model.safetensors").unlink()


def same_weights(first: Captioner, second: Captioner) -> bool:
    others = second.state_dict()
    return all(torch.equal(tensor, others[name]) for name, tensor in first.state_dict().items())


def test_a_published_model_is_ready(published: Path) -> None:
    model = load_model(published)
    assert not model.training
    assert model.dtype == torch.float32  # as stored, whatever the configuration says
    assert model.generation_config.num_beams == 3
    assert load_model(published, dtype="bfloat16").dtype == torch.bfloat16
    with pytest.raises(UserError, match="dtype 'int3' is unknown"):
        load_model(published, dtype="int3")


def test_import_writes_ours(published: Path, tmp_path: Path) -> None:
    output = tmp_path / "imported"
    import_checkpoint(published, output, with_tokenizers=False)
    assert json.loads((output / "config.json").read_text())["model_type"] == "babelcap"
    first, second = load_model(published), load_model(output)
    assert same_weights(first, second)
    assert first.generation_config.to_dict() == second.generation_config.to_dict()
    with pytest.raises(UserError, match="exists already"):
        import_checkpoint(published, output, with_tokenizers=False)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "checkpoint.pt"])
def test_pickled_weights_are_read_by_import_only(published: Path, tmp_path: Path, name: str) -> None:
    expected = load_model(published)
    pickle_weights(published, name)
    with pytest.raises(UserError, match=f"{name} is a pickled checkpoint.*babelcap model import"):
        load_model(published)
    assert same_weights(expected, import_checkpoint(published, tmp_path / "imported", with_tokenizers=False))


def test_a_trainers_checkpoint(published: Path, tmp_path: Path) -> None:
    expected = load_model(published)
    weights = {f"module.{name}": tensor for name, tensor in load_file(published / "model.safetensors").items()}
    (published / "model.safetensors").unlink()
    torch.save({"state_dict": weights, "step": 7}, published / "last.pt")
    assert same_weights(
        expected, import_checkpoint(published / "last.pt", tmp_path / "imported", with_tokenizers=False)
    )


class Harmful:
    def __reduce__(self) -> tuple:
        return (print, ("code ran",))


def test_a_pickle_with_code_in_it(published: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    (published / "model.safetensors").unlink()
    torch.save({"weights": Harmful()}, published / "model.bin")
    with pytest.raises(UserError, match="could run code"):
        import_checkpoint(published, tmp_path / "imported", with_tokenizers=False)
    assert "code ran" not in capsys.readouterr().out
    assert not (tmp_path / "imported").exists()


def test_shards(model_folder: Path, tmp_path: Path) -> None:
    whole = load_model(model_folder)
    whole.save_pretrained(tmp_path, max_shard_size="100KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 2
    assert same_weights(whole, load_model(tmp_path))
    (tmp_path / "manifest.json").unlink()
    shard = sorted(tmp_path.glob("*.safetensors"))[1]
    content = shard.read_bytes()
    shard.write_bytes(content[: len(content) // 2])
    with pytest.raises(UserError, match=f"{shard.name} is damaged or cut short"):
        load_model(tmp_path)
    shard.unlink()
    with pytest.raises(UserError, match=f"{shard.name}: the index names this shard"):
        load_model(tmp_path)


def test_shards_of_a_published_model(published: Path) -> None:
    expected = load_model(published)
    weights = load_file(published / "model.safetensors")
    names = sorted(weights)
    parts = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, some in parts.items():
        save_file({name: weights[name] for name in some}, published / file)
    places = {name: file for file, some in parts.items() for name in some}
    (published / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    (published / "model.safetensors").unlink()
    assert same_weights(expected, load_model(published))


def test_a_missing_parameter(ours: Path) -> None:
    edit_weights(ours, lambda weights: weights.pop("decoder.layers.0.fc1.bias"))
    with pytest.raises(UserError, match=r"1 missing: decoder\.layers\.0\.fc1\.bias"):
        load_model(ours)


def test_a_surplus_parameter(ours: Path) -> None:
    edit_weights(ours, lambda weights: weights.update(extra=torch.zeros(2)))
    with pytest.raises(UserError, match="1 surplus: extra"):
        load_model(ours)


def test_a_misshapen_parameter(ours: Path) -> None:
    edit_weights(ours, lambda weights: weights.update({"decoder.layers.0.fc1.bias": torch.zeros(2)}))
    with pytest.raises(UserError, match=r"1 misshapen: decoder\.layers\.0\.fc1\.bias \[2\] instead of \[48\]"):
        load_model(ours)


def test_an_unknown_published_parameter(published: Path) -> None:
    edit_weights(published, lambda weights: weights.update({"language_model.adapter": torch.zeros(2)}))
    with pytest.raises(UserError, match=r"1 parameters have no place in a captioner: language_model\.adapter"):
        load_model(published)


def test_copies_of_tied_weights_are_dropped_by_name(published: Path) -> None:
    embedding = "language_model.model.decoder.embed_tokens.weight"
    expected = load_model(published)
    edit_weights(
        published, lambda weights: weights.update({"language_model.lm_head.weight": weights[embedding].clone()})
    )
    edit_weights(published, lambda weights: weights.update({"language_model.final_logits_bias": torch.zeros(1, 640)}))
    assert same_weights(expected, load_model(published))
    edit_weights(published, lambda weights: weights["language_model.lm_head.weight"].add_(1))
    with pytest.raises(UserError, match=r"lm_head\.weight differs from the decoder's embedding"):
        load_model(published)


def test_a_truncated_file(ours: Path) -> None:
    content = (ours / "model.safetensors").read_bytes()
    for length in (0, 5, len(content) // 2):
        (ours / "model.safetensors").write_bytes(content[:length])
        with pytest.raises(UserError, match=r"model\.safetensors is damaged or cut short"):
            load_model(ours)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda values: values.update(model_type="llama"), "model_type is 'llama'"),
        (lambda values: values["decoder_config"].update(kind="rnn"), r"decoder_config\.kind is 'rnn'"),
        (lambda values: values["decoder_config"].update(decoder_layers="three"), "decoder_layers"),
        (lambda values: values["decoder_config"].update(decoder_layers=2), "surplus: decoder.layers.2"),
        (lambda values: values["decoder_config"].update(decoder_attention_heads=5), "no model can be built of it"),
        (lambda values: values.update(coverage={"seen": ["caption-xx"]}), "caption-xx"),
    ],
)
def test_a_wrong_configuration(ours: Path, change: Callable[[dict], None], message: str) -> None:
    edit_config(ours, change)
    with pytest.raises(UserError, match=message) as caught:
        load_model(ours)
    assert "\n" not in str(caught.value)


def test_a_published_configuration_without_a_field(published: Path) -> None:
    edit_config(published, lambda values: values["vision_config"].pop("depths"))
    with pytest.raises(UserError, match=r"config\.json: depths is missing"):
        load_model(published)


def test_folders_that_are_none(tmp_path: Path, ours: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(UserError, match="not a model's folder"):
        load_model(tmp_path)
    with pytest.raises(UserError, match="is a file"):
        load_model(ours / "config.json")
    (ours / "config.json").write_text("{")
    with pytest.raises(UserError, match=r"config\.json is not valid JSON"):
        load_model(ours)


def test_tokenizers_that_are_elsewhere(published: Path, processor: CaptionProcessor, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such tokenizer"):
        load_processor(published)
    processor.encoder_tokenizer.save_pretrained(tmp_path / "bart")
    processor.decoder_tokenizer.save_pretrained(tmp_path / "gemma")
    with pytest.raises(UserError, match=r"no decoder_tokenizer beside the checkpoint.*--decoder-tokenizer"):
        import_checkpoint(published, tmp_path / "one", encoder_tokenizer=tmp_path / "bart")
    both = {"encoder_tokenizer": tmp_path / "bart", "decoder_tokenizer": tmp_path / "gemma"}
    import_checkpoint(published, tmp_path / "two", **both)
    assert load_processor(tmp_path / "two").decoder_tokenizer.eos_token_id == 1
