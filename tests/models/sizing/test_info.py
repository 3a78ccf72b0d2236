"""MACs against a count by hand, memory against P and Pt, and the folders that info reads."""

import json
from pathlib import Path

import pytest
import torch

from babelcap.errors import UserError
from babelcap.models.network.captioner import Captioner
from babelcap.models.sizing.flops import activation_bytes, forward_macs, meta_captioner
from babelcap.models.sizing.freezing import apply_policy
from babelcap.models.sizing.info import model_info, read_size_or_folder
from babelcap.models.sizing.sizes import size_config


def test_macs_of_the_text_parts_by_hand() -> None:
    macs = forward_macs(meta_captioner(size_config("0.4B")), 224)
    width, ffn, num_layers, prompt, states, targets = 768, 3072, 6, 128, 178, 128
    encoder_layer = states * (4 * width**2 + 2 * width * ffn) + 2 * states**2 * width
    crossing = targets * 2 * width**2 + states * 2 * width**2 + 2 * targets * states * width
    decoder_layer = targets * (4 * width**2 + 2 * width * ffn) + 2 * targets**2 * width + crossing
    assert states == 1 + 7 * 7 + prompt
    assert macs["text encoder"] == num_layers * encoder_layer
    assert macs["decoder"] == num_layers * decoder_layer
    assert macs["head"] == targets * width * 257_024
    assert macs["total"] == sum(count for part, count in macs.items() if part != "total")


def test_macs_of_a_gemma_layer_by_hand() -> None:
    full = forward_macs(meta_captioner(size_config("micro-gemma-s")), 64)
    width, ffn, keys, num_layers, states, targets = 48, 144, 24, 2, 17 + 128, 128
    own = targets * (2 * width**2 + 2 * width * keys + 3 * width * ffn) + 2 * targets**2 * width
    crossing = targets * 2 * width**2 + states * 2 * width * keys + 2 * targets * states * width
    rotary = targets * width // 4 // 2  # positions times frequencies, once
    assert full["decoder"] - num_layers * (own + crossing) in (0, rotary)


def test_info_is_plain_data_and_adds_up() -> None:
    info = model_info(size_config("micro-gemma-m"), policy="cross-attention")
    assert json.loads(json.dumps(info)) == info
    assert info["Pt"]["all"] == info["P"]
    assert info["Pt"]["pretraining"] == info["Pt"]["finetuning"] < info["P"]
    assert sum(row["num_trained"] for row in info["table"]) == info["Pt"]["cross-attention"]
    full, half = info["memory_bytes"]["fp32"], info["memory_bytes"]["bf16"]
    assert full["inference"]["weights"] == 2 * half["inference"]["weights"] == 4 * info["P"]
    assert full["training"]["AdamW"] == half["training"]["AdamW"] == 8 * info["Pt"]["cross-attention"]
    assert full["training"]["total"] == sum(size for part, size in full["training"].items() if part != "total")


def test_frozen_parts_keep_no_activations() -> None:
    config = size_config("micro-florence-s")
    activations = {
        policy: model_info(config, policy=policy)["memory_bytes"]["fp32"]["training"]["activations of batch 8"]
        for policy in ("all", "pretraining")
    }
    assert 0 < activations["pretraining"] < activations["all"]


def test_reads_a_folder_of_ours(tmp_path: Path) -> None:
    Captioner(size_config("micro-florence-s")).save_pretrained(tmp_path)
    config = read_size_or_folder(str(tmp_path))
    assert model_info(config) == model_info(size_config("micro-florence-s"))


def test_reads_the_published_format(golden_fixtures: Path, tmp_path: Path) -> None:
    source = golden_fixtures / "gemma2"
    (tmp_path / "config.json").write_bytes((source / "reference_config.json").read_bytes())
    (tmp_path / "model.safetensors").write_bytes((source / "reference_weights.safetensors").read_bytes())
    info = model_info(read_size_or_folder(str(tmp_path)), image_size_px=224)
    assert info["decoder"] == "gemma2"


def test_bad_names_and_folders(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown size 'nothing'"):
        read_size_or_folder("nothing")
    with pytest.raises(UserError, match=r"config.json: no such file"):
        read_size_or_folder(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(UserError, match="model_type is 'bert'"):
        read_size_or_folder(str(tmp_path))
    (tmp_path / "config.json").write_text('{"model_type": "babelcap", "encoder_config": {"kind": "vit"}}')
    with pytest.raises(UserError, match="kind is 'vit'"):
        read_size_or_folder(str(tmp_path))


def test_kept_activations_are_those_of_a_real_pass() -> None:
    """On real tensors: all storages that the pass keeps for its backward, without the weights."""
    config = size_config("micro-gemma-s")
    model = apply_policy(Captioner(config).eval(), "pretraining")
    weights = {weight.untyped_storage().data_ptr() for weight in (*model.parameters(), *model.buffers())}
    kept = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.untyped_storage().data_ptr() not in weights:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    tokens = torch.zeros(1, 128, dtype=torch.long)
    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        model(input_ids=tokens, pixel_values=torch.zeros(1, 3, 64, 64), decoder_input_ids=tokens, logits_needed=False)
    estimate = activation_bytes(apply_policy(meta_captioner(config), "pretraining"), 64)
    assert estimate == pytest.approx(sum(storage.nbytes() for storage in kept.values()), rel=0.2)
