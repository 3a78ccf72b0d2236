"""Captioners of frozen parts and a bridge: every weight in its place, features as the backbones give them."""

from collections import Counter
from pathlib import Path
from shutil import copytree

import pytest
import torch
from torch import Tensor
from transformers import AutoModel, Gemma3ForCausalLM, PreTrainedTokenizerFast

from babelcap.coverage import Coverage
from babelcap.data.feed.images import IMAGENET_MEAN, IMAGENET_STD
from babelcap.errors import UserError
from babelcap.models import Captioner, load_model, load_processor
from babelcap.models.checkpoints.saving import save_captioner
from babelcap.models.generation.guidance import write_mean_image
from babelcap.models.generation.results import first_line
from babelcap.models.inference import load
from babelcap.models.network.bridge import BridgeConfig
from babelcap.models.sizing.freezing import apply_policy
from babelcap.models.sizing.info import model_info
from babelcap.models.surgery.bridge import is_bridge, prepare_bridge
from babelcap.models.surgery.packed_bridge import pack_bridge, read_bridge, shape_of

SHAPE = BridgeConfig(
    layers=(1, 3), num_heads=2, head_width=8, num_encoder_layers=1, width=16, num_encoder_heads=2,
    feed_forward_width=24, grid=2, max_positions=160, image_size_px=32, dropout=0.0,
)  # fmt: skip


@pytest.fixture(scope="module")
def folder(
    tiny_gemma: Path,
    tiny_backbones: dict[str, Path],
    bridge_tokenizer: PreTrainedTokenizerFast,
    tmp_path_factory: pytest.TempPathFactory,
) -> Path:
    place = tmp_path_factory.mktemp("bridge") / "captioner"
    prepare_bridge(list(tiny_backbones.values()), tiny_gemma, place, SHAPE, tokenizer=bridge_tokenizer)
    return place


@pytest.fixture(scope="module")
def model(folder: Path) -> Captioner:
    return load_model(folder)


def pixels(num: int = 2) -> Tensor:
    return torch.randn(num, 3, 32, 32, generator=torch.Generator().manual_seed(0))


def test_it_begins_as_gemma_itself(model: Captioner, tiny_gemma: Path) -> None:
    gemma = Gemma3ForCausalLM.from_pretrained(tiny_gemma).eval()
    ids = torch.tensor([[1, 2, 7, 9, 11]])
    with torch.no_grad():
        ours = model(input_ids=torch.tensor([[2, 5, 1]]), pixel_values=pixels(1), decoder_input_ids=ids).logits
        torch.testing.assert_close(ours, gemma(ids).logits, rtol=1e-5, atol=1e-5)


def test_features_are_the_backbones_maps_on_one_grid(model: Captioner, tiny_backbones: dict[str, Path]) -> None:
    images = pixels()
    with torch.no_grad():
        found = model.encode_images(images)
        unit = images * torch.tensor(IMAGENET_STD).view(3, 1, 1) + torch.tensor(IMAGENET_MEAN).view(3, 1, 1)
        own = (unit - torch.tensor(IMAGENET_MEAN).view(3, 1, 1)) / torch.tensor(IMAGENET_STD).view(3, 1, 1)
        vit = AutoModel.from_pretrained(tiny_backbones["vit"]).eval()(own).last_hidden_state[:, 1:]
        resnet = AutoModel.from_pretrained(tiny_backbones["resnet"]).eval()(own).last_hidden_state
    vit = torch.nn.functional.adaptive_avg_pool2d(vit.transpose(1, 2).unflatten(2, (4, 4)), 2)
    expected = torch.cat([vit, torch.nn.functional.adaptive_avg_pool2d(resnet, 2)], dim=1).flatten(2).transpose(1, 2)
    assert found.shape == (2, 4, 12 + 20)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


def test_a_backbone_gets_its_own_mean_and_deviation(model: Captioner) -> None:
    tower = model.encoder.vision_tower
    before = tower.statistics
    with torch.no_grad():
        usual = model.encode_images(pixels())
        tower.statistics = [([0.5] * 3, [0.5] * 3), before[1]]
        other = model.encode_images(pixels())
    tower.statistics = before
    assert not torch.allclose(usual[..., :12], other[..., :12])
    torch.testing.assert_close(usual[..., 12:], other[..., 12:])


def test_features_stand_in_for_pixels(model: Captioner) -> None:
    inputs = {"input_ids": torch.tensor([[2, 5, 6, 1], [2, 5, 1, 0]]), "labels": torch.tensor([[2, 7, 1], [2, 8, 1]])}
    inputs["attention_mask"] = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 0]])
    with torch.no_grad():
        direct = model(**inputs, pixel_values=pixels()).loss
        kept = model(**inputs, image_features=model.encode_images(pixels())).loss
    torch.testing.assert_close(direct, kept, rtol=0, atol=0)


def test_only_the_bridge_trains_and_all_of_it_learns(folder: Path) -> None:
    model = apply_policy(load_model(folder), "bridge")
    with torch.no_grad():
        for layer in model.decoder.layers:
            if hasattr(layer, "encoder_attn_gate"):
                layer.encoder_attn_gate.fill_(0.5)
    ids = {"input_ids": torch.tensor([[2, 5, 6, 1]]), "labels": torch.tensor([[2, 7, 9, 1]])}
    model(**ids, pixel_values=pixels(1), logits_needed=False).loss.backward()
    for name, parameter in model.named_parameters():
        assert parameter.requires_grad == is_bridge(name), name
        assert (parameter.grad is not None) == is_bridge(name), name


def test_generation_with_and_without_a_cache_agree(folder: Path) -> None:
    pipeline = load(folder)
    image = (pixels(1)[0].permute(1, 2, 0).clamp(0, 1) * 255).byte().numpy()
    (cached,) = pipeline.caption([image], "fr", max_new_tokens=6, prefix="always", num_beams=1)
    assert cached.text.startswith("La photo montre")
    inputs = pipeline.processor(image, pipeline.prompt_of(cached.request))
    ids = torch.tensor([pipeline.processor.prefix_ids("La photo montre")])
    plain = pipeline.model.generate(**inputs, decoder_input_ids=ids, max_new_tokens=6, num_beams=1, use_cache=False)
    assert pipeline.processor.decode(plain)[0] == cached.text


def test_no_caption_goes_round_in_circles(folder: Path) -> None:
    captioner = load_model(folder)
    with torch.no_grad():
        captioner.decoder.embed_tokens.weight[captioner.config.eos_token_id] = 0  # a text that does not end by itself
        prompt = torch.tensor([[5, 6]])
        guarded = captioner.generate(prompt, pixel_values=pixels(1), max_new_tokens=24)[0].tolist()
        free = captioner.generate(prompt, pixel_values=pixels(1), max_new_tokens=24, no_repeat_ngram_size=0)[0].tolist()
    assert max(Counter(zip(*(free[n:] for n in range(4)), strict=False)).values()) > 1
    assert max(Counter(zip(*(guarded[n:] for n in range(4)), strict=False)).values()) == 1


def test_costs_are_counted_without_weights(model: Captioner) -> None:
    found = model_info(model.config, policy="bridge")
    trained = sum(parameter.numel() for name, parameter in model.named_parameters() if is_bridge(name))
    assert found["Pt"]["bridge"] == trained
    assert found["P"] == sum(parameter.numel() for parameter in model.parameters())
    assert found["macs"]["vision tower"] > 0


def test_a_packed_bridge_makes_the_captioner_again(
    folder: Path, tiny_gemma: Path, tiny_backbones: dict[str, Path], bridge_tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
) -> None:  # fmt: skip
    pack_bridge(folder, tmp_path / "bridge.safetensors")
    trained = read_bridge(tmp_path / "bridge.safetensors")
    assert trained.shape == SHAPE
    assert shape_of(load_model(folder).config) == SHAPE
    parts = list(tiny_backbones.values())
    prepare_bridge(parts, tiny_gemma, tmp_path / "again", tokenizer=bridge_tokenizer, seed=5, trained=trained)
    first, again = load_model(folder).state_dict(), load_model(tmp_path / "again").state_dict()
    for name, tensor in first.items():
        torch.testing.assert_close(again[name], tensor.half().float() if is_bridge(name) else tensor, rtol=0, atol=0)
    assert len(load_processor(tmp_path / "again").decoder_tokenizer) == len(bridge_tokenizer)


def test_a_packed_bridge_takes_its_guidance_along(
    folder: Path, tiny_gemma: Path, tiny_backbones: dict[str, Path], bridge_tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
) -> None:  # fmt: skip
    copytree(folder, tmp_path / "guided")
    with pytest.raises(UserError, match="mean-image"):
        pack_bridge(tmp_path / "guided", tmp_path / "bridge.safetensors", guidance_scale=2.0)
    with torch.no_grad():
        mean = load_model(folder).encode_images(pixels()).mean(dim=0).half().float()
    write_mean_image(tmp_path / "guided", mean)
    pack_bridge(tmp_path / "guided", tmp_path / "bridge.safetensors", guidance_scale=2.0)
    trained = read_bridge(tmp_path / "bridge.safetensors")
    parts = list(tiny_backbones.values())
    prepare_bridge(parts, tiny_gemma, tmp_path / "again", tokenizer=bridge_tokenizer, trained=trained)
    again = load_model(tmp_path / "again")
    assert again.guidance_scale({}) == 2.0
    assert torch.equal(again.mean_image, mean)
    pack_bridge(tmp_path / "again", tmp_path / "same.safetensors")
    same = read_bridge(tmp_path / "same.safetensors")
    assert same.guidance_scale == trained.guidance_scale
    assert all(torch.equal(same.weights[name], tensor) for name, tensor in trained.weights.items())


def test_prefixes_of_unseen_languages_may_be_chosen_when_it_is_packed(folder: Path, tmp_path: Path) -> None:
    model = load_model(folder)
    model.config.coverage = Coverage(seen=("caption-en", "caption-de")).model_dump(mode="json")
    save_captioner(tmp_path / "taught", model, load_processor(folder))
    pack_bridge(tmp_path / "taught", tmp_path / "b.safetensors", {"ru": "На фото"})
    known = Coverage.model_validate(read_bridge(tmp_path / "b.safetensors").coverage)
    assert known.language("ru").prefix == "На фото"
    assert known.language("fr").prefix == "La photo montre"
    with pytest.raises(UserError, match="was trained with its own"):
        pack_bridge(tmp_path / "taught", tmp_path / "c.safetensors", {"de": "Foto:"})
    with pytest.raises(UserError, match="does not say what it was taught"):
        pack_bridge(folder, tmp_path / "c.safetensors", {"ru": "На фото"})


def test_a_prefix_that_is_a_label_is_not_shown(folder: Path) -> None:
    pipeline = load(folder)
    image = (pixels(1)[0].permute(1, 2, 0).clamp(0, 1) * 255).byte().numpy()
    shown = {}
    for text in ("La photo montre", "La photo montre :"):
        (result,) = pipeline.caption([image], "fr", max_new_tokens=6, prefix_text=text, num_beams=1)
        assert result.prefix == text
        shown[text] = result
    assert shown["La photo montre"].text.startswith("La photo montre")
    labelled = shown["La photo montre :"]
    assert labelled.text == labelled.without_prefix.strip()


def test_a_short_caption_is_one_line() -> None:
    assert first_line(" un chien.\n\nLa photo montre un chien.") == " un chien."
    assert first_line("\n un chat.\n") == " un chat."
    assert first_line("\n \n") == ""


def test_a_bridge_that_does_not_fit_is_refused(
    folder: Path, tiny_gemma: Path, tiny_backbones: dict[str, Path], bridge_tokenizer: PreTrainedTokenizerFast,
    tmp_path: Path,
) -> None:  # fmt: skip
    pack_bridge(folder, tmp_path / "bridge.safetensors")
    trained = read_bridge(tmp_path / "bridge.safetensors")
    fewer = trained._replace(weights=dict(list(trained.weights.items())[1:]))
    with pytest.raises(UserError, match="the bridge does not fit: 1 weights are missing"):
        prepare_bridge(
            list(tiny_backbones.values()), tiny_gemma, tmp_path / "m", tokenizer=bridge_tokenizer, trained=fewer
        )
    assert not (tmp_path / "m").exists()
    (tmp_path / "other.safetensors").write_bytes((folder / "model.safetensors").read_bytes())
    with pytest.raises(UserError, match="is no bridge"):
        read_bridge(tmp_path / "other.safetensors")
    with pytest.raises(UserError, match="layers 0 to 3"):
        prepare_bridge(list(tiny_backbones.values()), tiny_gemma, tmp_path / "m", tokenizer=bridge_tokenizer)


def test_the_bridge_learns_to_tell_pictures_apart(folder: Path) -> None:
    """Four pictures with four captions: afterwards a caption is likelier with its own picture than with another's."""
    torch.manual_seed(0)
    model = apply_policy(load_model(folder), "bridge").train()
    ids = {"input_ids": torch.tensor([[2, 5, 6, 1]] * 4)}
    ids["labels"] = torch.tensor([[2, 7, 20, 1], [2, 9, 21, 1], [2, 11, 22, 1], [2, 13, 23, 1]])
    features = model.encode_images(pixels(4)).detach()
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=1e-2)
    for _ in range(40):
        optimiser.zero_grad()
        model(**ids, image_features=features, logits_needed=False).loss.backward()
        optimiser.step()
    with torch.no_grad():
        own = model(**ids, image_features=features).loss
        shuffled = model(**ids, image_features=features.roll(1, dims=0)).loss
    assert own < shuffled - 1, (own, shuffled)
