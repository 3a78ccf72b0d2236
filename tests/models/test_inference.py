"""Captioning and translating as a user does it in Python."""

import io
import shutil
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers
from PIL import Image
from transformers import AutoProcessor, AutoTokenizer

import babelcap
from babelcap.coverage import caption_prompt
from babelcap.data.feed.text import encode_after_prefix
from babelcap.errors import UserError
from babelcap.languages import LANGUAGES
from babelcap.models import CaptionPipeline, CaptionProcessor, GenerationResult, load_processor, write_shortlist

FEW = {"num_beams": 2, "max_new_tokens": 6}


@pytest.fixture(scope="module")
def pipeline(model_folder: Path) -> CaptionPipeline:
    return babelcap.load(model_folder, device="cpu")


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("images")
    paths = [folder / f"{name}.png" for name in ("red", "green", "blue")]
    for path in paths:
        Image.new("RGB", (40, 30), path.stem).save(path)
    return paths


def test_results_have_one_shape(pipeline: CaptionPipeline, images: list[Path]) -> None:
    (result,) = pipeline.caption(images[0], "de", **FEW)
    assert isinstance(result, GenerationResult)
    for given in (images[0].read_bytes(), Image.open(images[0]), io.BytesIO(images[0].read_bytes()), str(images[0])):
        assert [again.text for again in pipeline.caption(given, ["de"], **FEW)] == [result.text]
    assert pipeline.caption_one(images[0], "de", **FEW) == result.text
    assert pipeline.caption([], "de", **FEW) == []


def test_arrays_and_tensors_are_images(pipeline: CaptionPipeline, images: list[Path]) -> None:
    array = np.asarray(Image.open(images[1]))
    tensor = torch.from_numpy(array.copy()).permute(2, 0, 1)
    expected = pipeline.caption_one(images[1], "de", **FEW)
    for given in (array, tensor, tensor.float() / 255, np.stack([array]), [array], tensor[None]):
        assert [result.text for result in pipeline.caption(given, "de", **FEW)] == [expected]
    with pytest.raises(UserError, match=r"image 0: not an image: an array of shape \[7\]"):
        pipeline.caption([np.zeros(7)], "de")
    with pytest.raises(UserError, match="image 1: not an image: a int; give a path"):
        pipeline.caption([array, 7], "de")  # type: ignore[list-item]


def test_images_times_languages_in_order(pipeline: CaptionPipeline, images: list[Path]) -> None:
    results = pipeline.caption(images, ["es", "de", "ru"], batch_size=2, **FEW)
    assert [(result.request.image, result.request.language) for result in results] == [
        (image, code) for image in images for code in ("es", "de", "ru")
    ]
    for result in results:
        assert isinstance(result.request.image, Path)
        assert result.text == pipeline.caption_one(result.request.image, result.request.language, **FEW)


def test_the_prefix_is_given_where_captioning_was_never_seen(pipeline: CaptionPipeline, images: list[Path]) -> None:
    results = pipeline.caption(images[0], ["en", "de", "fr", "es", "ru"], **FEW)
    expected = {entry.code: entry.prefix for entry in LANGUAGES}
    assert [result.prefix for result in results] == ["", "", expected["fr"], expected["es"], expected["ru"]]
    for result in results:
        assert result.text.startswith(result.prefix)
        assert result.prefix + result.without_prefix == result.text
    (own,) = pipeline.caption(images[0], "de", prefix_text="La imagen muestra", **FEW)
    assert own.text.startswith("La imagen muestra")
    assert pipeline.caption(images[0], "de", prefix="none", **FEW)[0].text == results[1].text
    assert pipeline.caption(images[0], "de", prefix="always", **FEW)[0].prefix == expected["de"]


def test_a_misspelt_mode_is_no_prefix(pipeline: CaptionPipeline, images: list[Path]) -> None:
    with pytest.raises(UserError, match="prefix 'alway' is unknown; known are auto, always, none"):
        pipeline.caption(images[0], "de", prefix="alway")  # type: ignore[arg-type]


def test_translations(pipeline: CaptionPipeline, images: list[Path]) -> None:
    texts = ["What does the image", "Describe in detail"]
    results = pipeline.translate(images[0], texts, ["de", "es"], **FEW)
    assert [(result.request.source, result.request.language) for result in results] == [
        (text, code) for text in texts for code in ("de", "es")
    ]
    assert [result.text for result in results[::2]] == [
        pipeline.translate_one(text, "de", images[0], **FEW) for text in texts
    ]
    assert isinstance(pipeline.translate_one(texts[0], "de", **FEW), str)
    with pytest.raises(UserError, match="2 images and 1 texts"):
        pipeline.translate(images[:2], texts[:1], "de")
    with pytest.raises(UserError, match=r"no translation into 'en' \(known: de, fr, es, ru, zh\)"):
        pipeline.translate(None, texts[0], "en")
    for empty in ("", "  \n"):
        with pytest.raises(UserError, match="the text is empty"):
            pipeline.translate(None, [texts[0], empty], "de")


def test_shortlists_by_language(pipeline: CaptionPipeline, images: list[Path], model_folder: Path) -> None:
    write_shortlist(model_folder, "de", [1, 2, 60, 61, 62], vocab_size=90)
    text = pipeline.caption_one(images[0], "de", allowed_tokens="language", **FEW)
    tokenizer = pipeline.processor.decoder_tokenizer
    assert set(tokenizer(text, add_special_tokens=False)["input_ids"]) <= {60, 61, 62}
    assert text


def test_a_processor_comes_back(processor: CaptionProcessor, model_folder: Path, images: list[Path]) -> None:
    for again in (load_processor(model_folder), AutoProcessor.from_pretrained(model_folder)):
        ours, theirs = processor(images, "What does the image"), again(images, "What does the image")
        assert ours.keys() == theirs.keys() == {"input_ids", "attention_mask", "pixel_values"}
        assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert ours["pixel_values"].shape == (3, 3, 32, 32)


def test_prompts_are_padded_on_the_right(processor: CaptionProcessor) -> None:
    prompts = processor.encode_prompts(["What does the image", "Describe"])
    assert prompts["attention_mask"].tolist() == [[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]]
    assert prompts["input_ids"][1, 3:].tolist() == [processor.encoder_tokenizer.pad_token_id] * 3


def test_prefixes_with_the_real_tokenizers(shared: Path) -> None:
    tokenizers = [AutoTokenizer.from_pretrained(shared / "data/tokenizers" / name) for name in ("florence2", "gemma2")]
    processor = CaptionProcessor(*tokenizers)
    texts = {"zh": "一只狗在草地上。", "ru": "пёс на траве."}
    for language in LANGUAGES:
        text = texts.get(language.code, "a dog, on the grass.")
        targets, num_given = encode_after_prefix(processor.decoder_tokenizer, language, [text], 64)
        assert targets[0][:num_given] == processor.prefix_ids(language.prefix)
        space = "" if language.code == "zh" else " "
        assert processor.decode(torch.tensor([[1, *targets[0], 0]])) == [f"{language.prefix}{space}{text}"]


def bomb() -> bytes:
    """A PNG of a few bytes that says it has 40,000 x 40,000 pixels."""
    header = struct.pack(">IIBBBBB", 40_000, 40_000, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(b"")), (b"IEND", b"")]
    body = b"".join(struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + body


def test_images_that_cannot_be_used(pipeline: CaptionPipeline, images: list[Path], tmp_path: Path) -> None:
    (tmp_path / "text.png").write_text("no image")
    with pytest.raises(UserError, match=r"text\.png: not an image"):
        pipeline.caption([images[0], tmp_path / "text.png"], "de")
    with pytest.raises(UserError, match="image 0: decompression bomb"):
        pipeline.caption(bomb(), "de")
    encoded = io.BytesIO()
    Image.effect_noise((64, 64), 9).save(encoded, "PNG")
    with pytest.raises(UserError, match="image 0: corrupt image"):
        pipeline.caption(encoded.getvalue()[:500], "de")
    with pytest.raises(UserError, match=r"missing\.png: missing image"):
        pipeline.caption(tmp_path / "missing.png", "de")
    with pytest.raises(UserError, match="this is a folder; name the image files in it"):
        pipeline.caption(tmp_path, "de")


def test_wrong_words(pipeline: CaptionPipeline, images: list[Path]) -> None:
    with pytest.raises(UserError, match=r"unknown language 'xx' \(known: en, de, fr, es, ru, zh\)"):
        pipeline.caption(images[0], "xx")
    with pytest.raises(UserError, match="an image is None; a caption needs one"):
        pipeline.caption([images[0], None], "de")  # type: ignore[list-item]
    with pytest.raises(UserError, match="no language given"):
        pipeline.caption(images[0], [])
    with pytest.raises(UserError, match="style 'long' is unknown; known are short"):
        pipeline.caption(images[0], "de", style="long")


def test_a_folder_without_tokenizers(model_folder: Path, images: list[Path], tmp_path: Path) -> None:
    for file in model_folder.iterdir():
        if file.is_file():
            shutil.copy(file, tmp_path)
    with pytest.raises(UserError, match="--encoder-tokenizer"):
        babelcap.load(tmp_path)
    sides = {f"{side}_tokenizer": model_folder / f"{side}_tokenizer" for side in ("encoder", "decoder")}
    pipeline = babelcap.load(tmp_path, device="cpu", **sides)
    expected = babelcap.load(model_folder, device="cpu").caption_one(images[0], "de", **FEW)
    assert pipeline.caption_one(images[0], "de", **FEW) == expected


@pytest.mark.parametrize("device", ["cuda:99", "nonsense", "xpu"])
def test_a_device_that_is_not_there(model_folder: Path, device: str) -> None:
    with pytest.raises(UserError, match=f"device '{device}' cannot be used here"):
        babelcap.load(model_folder, device=device)


def test_a_text_ends_where_the_positions_do(pipeline: CaptionPipeline, images: list[Path]) -> None:
    (result,) = pipeline.caption(images[0], "de", num_beams=1, max_new_tokens=5000)
    assert result.score is not None
    assert result.score.num_tokens <= 64  # what the tiny decoder has
    with pytest.raises(UserError, match="the decoder is given 82 tokens to continue; it has 64 positions"):
        pipeline.caption(images[0], "de", prefix_text="w1 " * 80)


def test_a_damaged_model_is_told(model_folder: Path, images: list[Path]) -> None:
    pipeline = babelcap.load(model_folder, device="cpu")
    with torch.no_grad():
        pipeline.model.decoder.layers[1].fc1.weight[0, 0] = torch.nan
    for options in (FEW, {"max_new_tokens": 3, "num_beams": 1}, {"max_new_tokens": 3, "temperature": 1.0}):
        with pytest.raises(UserError, match="logits are not finite"):
            pipeline.caption(images[0], "de", **options)


def test_transformers_own_pipeline(model_folder: Path, images: list[Path], pipeline: CaptionPipeline) -> None:
    theirs = transformers.pipeline("image-text-to-text", model=str(model_folder), trust_remote_code=False, device="cpu")
    prompt = caption_prompt(LANGUAGES[1])
    picture = Image.open(images[0])
    (found,) = theirs(picture, text=prompt, generate_kwargs=dict(FEW), return_full_text=False)
    assert found["generated_text"].strip() == pipeline.caption_one(picture, "de", **FEW)


def test_the_processor_saves_the_same_files(processor: CaptionProcessor, tmp_path: Path) -> None:
    processor.save_pretrained(tmp_path)
    assert isinstance(processor, transformers.ProcessorMixin)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "decoder_tokenizer",
        "encoder_tokenizer",
        "processor_config.json",
    ]
    assert processor.tokenizer is processor.decoder_tokenizer
