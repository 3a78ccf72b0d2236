"""Captioning and translating as a user does it: in Python and on the command line."""

import io
import json
import struct
import zlib
from pathlib import Path

import pytest
import torch
from PIL import Image
from transformers import AutoProcessor, AutoTokenizer
from typer.testing import CliRunner

import babelcap
from babelcap.cli import app
from babelcap.data.feed.text import encode_after_prefix
from babelcap.errors import UserError
from babelcap.languages import LANGUAGES
from babelcap.models import CaptionPipeline, CaptionProcessor, load_processor, write_shortlist

FEW = {"num_beams": 2, "max_new_tokens": 6}
COMMAND = ["--num-beams", "2", "--max-new-tokens", "6"]


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


def test_one_image_one_language(pipeline: CaptionPipeline, images: list[Path]) -> None:
    text = pipeline.caption(images[0], "de", **FEW)
    assert isinstance(text, str)
    assert text == pipeline.caption([Image.open(images[0])], "de", **FEW)[0]
    assert text == pipeline.caption(images[0].read_bytes(), "de", **FEW)


def test_several_images_and_languages(pipeline: CaptionPipeline, images: list[Path]) -> None:
    results = pipeline.caption(images, ["es", "de"], batch_size=2, **FEW)
    assert list(results) == ["es", "de"]
    assert [len(texts) for texts in results.values()] == [3, 3]
    assert results["es"] == [pipeline.caption(image, "es", **FEW) for image in images]
    assert pipeline.caption([], "es", **FEW) == []


def test_the_prefix_is_given_where_captioning_was_never_seen(
    pipeline: CaptionPipeline, images: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    starts = []
    original = pipeline.model.generate

    def watch(**inputs: object) -> torch.Tensor:
        starts.append("decoder_input_ids" in inputs)
        return original(**inputs)

    monkeypatch.setattr(pipeline.model, "generate", watch)
    texts = pipeline.caption(images[0], ["en", "de", "fr", "es", "ru"], **FEW)
    assert starts == [False, False, True, True, True]
    assert not texts["es"].startswith("La imagen muestra")
    assert pipeline.caption(images[0], "es", prefix="La imagen muestra", **FEW) == texts["es"]
    assert pipeline.caption(images[0], "de", prefix="none", **FEW) == texts["de"]
    starts.clear()
    pipeline.caption(images[0], "de", prefix="always", **FEW)
    assert starts == [True]


def test_translations(pipeline: CaptionPipeline, images: list[Path]) -> None:
    texts = ["What does the image", "Describe in detail"]
    results = pipeline.translate(images[0], texts, ["de", "es"], **FEW)
    assert results["de"] == [pipeline.translate(images[0], text, "de", **FEW) for text in texts]
    assert isinstance(pipeline.translate(None, texts[0], "de", **FEW), str)
    with pytest.raises(UserError, match="2 images and 1 texts"):
        pipeline.translate(images[:2], texts[:1], "de")


def test_shortlists_by_language(pipeline: CaptionPipeline, images: list[Path], model_folder: Path) -> None:
    write_shortlist(model_folder, "de", [1, 2, 60, 61, 62], vocab_size=90)
    text = pipeline.caption(images[0], "de", allowed_tokens="language", **FEW)
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
        assert targets[0][:num_given] == processor.encode_prefix(language.prefix, 1)[0].tolist()
        assert processor.decode(torch.tensor([[1, *targets[0], 0]]), language.prefix) == [text]


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


def test_wrong_words(pipeline: CaptionPipeline, images: list[Path]) -> None:
    with pytest.raises(UserError, match=r"unknown language 'xx' \(known: en, de, fr, es, ru, zh\)"):
        pipeline.caption(images[0], "xx")
    with pytest.raises(UserError, match="style 'long' is unknown; known are short"):
        pipeline.caption(images[0], "de", style="long")


def test_caption_command(model_folder: Path, images: list[Path], pipeline: CaptionPipeline) -> None:
    arguments = [
        "caption",
        *map(str, images[:2]),
        "--model",
        str(model_folder),
        "--language",
        "es,de",
        *COMMAND,
        "--json",
    ]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["image"], row["language"]) for row in rows] == [
        (str(image), code) for image in images[:2] for code in ("es", "de")
    ]
    assert rows[0]["caption"] == pipeline.caption(images[0], "es", **FEW)


def test_translate_command(model_folder: Path, images: list[Path]) -> None:
    arguments = ["translate", str(images[0]), "--text", "What does", "--language", "de", "--model", str(model_folder)]
    done = CliRunner().invoke(app, [*arguments, *COMMAND])
    assert done.exit_code == 0, done.output
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--language", "de"], "no model given"),
        (["--language", "xx", "--model", "MODEL"], "unknown language 'xx'"),
        (["--language", "de", "--model", "./nowhere"], "no such folder"),
    ],
)
def test_commands_say_what_is_wrong(model_folder: Path, images: list[Path], arguments: list[str], message: str) -> None:
    arguments = [str(model_folder) if word == "MODEL" else word for word in arguments]
    done = CliRunner().invoke(app, ["caption", str(images[0]), *arguments], env={"BABELCAP_MODEL": ""})
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
