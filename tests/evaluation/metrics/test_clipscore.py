"""CLIPScore on tiny models that transformers saved, against values computed from their own embeddings."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    PreTrainedTokenizerFast,
    XLMRobertaConfig,
    XLMRobertaModel,
)

from babelcap.errors import UserError
from babelcap.evaluation.metrics import compare
from babelcap.evaluation.metrics.clipscore import ClipSettings, clip_score, scaled_cosines

WORDS = ["<s>", "<pad>", "</s>", "<unk>", "A", "photo", "depicts", "red", "dog", "blue", "cat", "ein", "Hund"]


def save_tokenizer(folder: Path) -> PreTrainedTokenizerFast:
    core = Tokenizer(models.WordLevel({word: number for number, word in enumerate(WORDS)}, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Whitespace()
    core.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=core, bos_token="<s>", eos_token="</s>", pad_token="<pad>", unk_token="<unk>"
    )
    tokenizer.save_pretrained(folder)
    return tokenizer


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("clip") / "tiny-clip"
    torch.manual_seed(0)
    small = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {"bos_token_id": 0, "pad_token_id": 1, "eos_token_id": 2}
    config = CLIPConfig(
        text_config={**small, **ids, "vocab_size": len(WORDS), "max_position_embeddings": 8, "projection_dim": 6},
        vision_config={**small, "image_size": 32, "patch_size": 16, "projection_dim": 6},
        projection_dim=6,
        **ids,
    )
    model = CLIPModel(config)
    # Pictures and texts on one side of the space, so that cosines are above 0.
    model.text_model.final_layer_norm.bias.data.fill_(3)
    model.vision_model.post_layernorm.bias.data.fill_(3)
    model.visual_projection.weight.data.copy_(model.text_projection.weight.data)
    model.save_pretrained(folder)
    save_tokenizer(folder)
    CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def multilingual(clip: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("mclip") / "tiny-mclip"
    torch.manual_seed(1)
    config = XLMRobertaConfig(
        hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, vocab_size=len(WORDS),
        max_position_embeddings=10, type_vocab_size=1, bos_token_id=0, pad_token_id=1, eos_token_id=2,
    )  # fmt: skip
    config.save_pretrained(folder)
    save_tokenizer(folder)
    weights = {f"transformer.{key}": value for key, value in XLMRobertaModel(config).state_dict().items()}
    linear = torch.nn.Linear(16, 6)
    linear.bias.data.copy_(CLIPModel.from_pretrained(clip).visual_projection.weight.sum(dim=1))
    weights |= {f"LinearTransformation.{key}": value.detach() for key, value in linear.state_dict().items()}
    save_file({key: value.contiguous() for key, value in weights.items()}, folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pictures")
    found = {}
    for number, name in enumerate("abc"):
        found[name] = folder / f"{name}.png"
        pixels = np.random.default_rng(number).integers(0, 256, (40, 48, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(found[name])
    return found


def test_by_hand() -> None:
    texts = torch.tensor([[3.0, 4.0], [1.0, 0.0], [1.0, 0.0]])
    images = torch.tensor([[4.0, 3.0], [0.0, 9.0], [-1.0, 0.0]])
    assert scaled_cosines(texts, images) == pytest.approx([2.5 * 24 / 25, 0, 0])


def test_from_the_models_own_embeddings(clip: Path, pictures: dict[str, Path]) -> None:
    captions = {"a": "red dog", "b": "blue cat", "c": ""}
    score = clip_score(pictures, captions, ClipSettings(clip, batch_size=1))
    model, processor = CLIPModel.from_pretrained(clip).eval(), CLIPImageProcessor.from_pretrained(clip)
    for key, words in (("a", [0, 7, 8, 2]), ("b", [0, 9, 10, 2])):
        pixels = processor(images=Image.open(pictures[key]), return_tensors="pt")
        with torch.inference_mode():
            both = model(input_ids=torch.tensor([words]), **pixels)
        cosine = float(both.text_embeds[0] @ both.image_embeds[0])
        assert cosine > 0.1
        assert score.per_item[key] == pytest.approx(2.5 * cosine, abs=1e-5)
    assert score.per_item["c"] == 0
    assert score.num_empty == 1
    # How captions are put into batches does not matter.
    assert clip_score(pictures, captions, ClipSettings(clip)) == pytest.approx(score.value, abs=1e-5)


def test_the_signature_tells_prefix_activation_and_dtype(clip: Path, pictures: dict[str, Path]) -> None:
    captions = dict.fromkeys(pictures, "red dog")
    plain = clip_score(pictures, captions, ClipSettings(clip))
    other = clip_score(pictures, captions, ClipSettings(clip, prefix="A photo depicts ", dtype="bfloat16"))
    assert "|activation:quick_gelu|" in plain.signature
    assert plain.per_item != other.per_item
    assert compare(plain.signature, other.signature) == (
        "not comparable: prefix none against A_photo_depicts, dtype float32 against bfloat16"
    )


def _multilingual_embedding(folder: Path, words: list[int]) -> torch.Tensor:
    """One text without padding: the mean of its states, mapped."""
    weights = load_file(folder / "model.safetensors")
    transformer = XLMRobertaModel(XLMRobertaConfig.from_pretrained(folder)).eval()
    transformer.load_state_dict({key[12:]: value for key, value in weights.items() if key.startswith("transformer.")})
    with torch.inference_mode():
        mean = transformer(torch.tensor([words])).last_hidden_state.mean(dim=1)
    return mean @ weights["LinearTransformation.weight"].T + weights["LinearTransformation.bias"]


def test_multilingual(clip: Path, multilingual: Path, pictures: dict[str, Path]) -> None:
    captions = {"a": "ein Hund", "b": "red dog A", "c": "ein"}
    score = clip_score(pictures, captions, ClipSettings(clip, text_model=multilingual))
    wanted = [_multilingual_embedding(multilingual, words) for words in ([0, 11, 12, 2], [0, 7, 8, 4, 2], [0, 11, 2])]
    model, processor = CLIPModel.from_pretrained(clip).eval(), CLIPImageProcessor.from_pretrained(clip)
    for key, text in zip("abc", wanted, strict=True):
        with torch.inference_mode():
            image = model.get_image_features(**processor(images=Image.open(pictures[key]), return_tensors="pt"))
        cosine = torch.nn.functional.cosine_similarity(text, image.pooler_output, dim=1)
        assert score.per_item[key] == pytest.approx(2.5 * max(0.0, float(cosine)), abs=1e-5)
    assert score > 0.1
    assert score.name == "multilingual CLIPScore"
    assert "|text:tiny-mclip|" in score.signature
    alone = clip_score(pictures, captions, ClipSettings(clip, text_model=multilingual, batch_size=1))
    assert list(score.per_item.values()) == pytest.approx(list(alone.per_item.values()), abs=1e-5)
    english = clip_score(pictures, captions, ClipSettings(clip))
    assert score.per_item != english.per_item


def test_mistakes_are_one_line(clip: Path, multilingual: Path, pictures: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="found 3 pictures and 1 captions"):
        clip_score(pictures, {"a": "x"}, ClipSettings(clip))
    with pytest.raises(UserError, match="no CLIP model saved by transformers there"):
        clip_score(pictures, dict.fromkeys(pictures, "x"), ClipSettings(tmp_path))
    with pytest.raises(UserError, match="no pickled weights are loaded"):
        clip_score(pictures, dict.fromkeys(pictures, "x"), ClipSettings(clip, text_model=tmp_path))
    with pytest.raises(UserError, match="dtype 'int8' is not known"):
        clip_score(pictures, dict.fromkeys(pictures, "x"), ClipSettings(clip, dtype="int8"))
    with pytest.raises(UserError, match=r"no\.png cannot be scored \(missing image"):
        clip_score({"a": tmp_path / "no.png"}, {"a": "x"}, ClipSettings(clip))
