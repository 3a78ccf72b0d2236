"""What the describer and the translator are asked: pictures, captions, context; never those of test images."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from babelcap.data.store.tar import TarFileWriter
from babelcap.errors import UserError
from babelcap.generate.backends.captioners import Answer, Question
from babelcap.generate.backends.server import ChatServer
from babelcap.generate.finetune import texts as module
from babelcap.generate.finetune.config import DescribeConfig, FinetuneConfig
from babelcap.generate.finetune.leaks import LEAKS
from babelcap.generate.finetune.sources import TEXTS, SourceConfig, Text, read_source_shard, text_files
from babelcap.generate.finetune.texts import describe_shard, prepare_shard

LONG = "A dog runs. It is black. It barks."


class Listening:
    """A captioner that remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[Question] = []

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        self.asked += questions
        return [Answer("a dog  on grass" if question.key != "c" else "") for question in questions]


@pytest.fixture
def inputs(tmp_path: Path, make_picture: Callable[[int], bytes]) -> dict[str, Path]:
    """Pictures a to e: a and c have a short caption, b a translation, d is a test image, e has a long text alone."""
    writer = TarFileWriter(tmp_path / "some.tar")
    for number, key in enumerate("abcde"):
        writer.add(f"{key}.jpg", make_picture(number))
    writer.close()
    rows = [
        Text("a", "", "train", 0, "caption", "en", "short", None, "A dog.", "x"),
        Text("a", "", "train", 1, "caption", "de", "short", None, "Ein Hund.", "x"),
        Text("a", "", "train", 2, "caption", "en", "short", None, "A dog.", "x"),
        Text("b", "", "train", 0, "translation", "de", None, "A cat.", "Eine Katze.", "x"),
        Text("b", "", "train", 1, "translation", "fr", None, "A cat.", "Un chat.", "x"),
        Text("c", "", "train", 0, "caption", "en", "short", None, "A bird.", "x"),
        Text("d", "", "train", 0, "caption", "en", "short", None, "A test.", "x"),
        Text("e", "", "train", 0, "caption", "en", "detailed", None, LONG, "x"),
    ]
    pq.write_table(pa.table(list(zip(*rows, strict=True)), schema=TEXTS), tmp_path / "texts.parquet")
    leak = [["d"], ["coco"], ["coco/val2014/1.jpg"], ["name"], [None]]
    pq.write_table(pa.table(leak, schema=LEAKS), tmp_path / "leaks.parquet")
    return {"tar": tmp_path / "some.tar", "texts": tmp_path / "texts.parquet", "leaks": tmp_path / "leaks.parquet"}


@pytest.fixture
def make_picture() -> Callable[[int], bytes]:
    import io

    def make(number: int) -> bytes:
        stream = io.BytesIO()
        Image.new("RGB", (30, 20), (number * 40, 90, 90)).save(stream, "JPEG")
        return stream.getvalue()

    return make


def test_descriptions_are_asked_for_once_a_picture(
    inputs: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    captioner = Listening()
    monkeypatch.setattr(module, "load_captioner", lambda *_: captioner)
    settings: dict[str, Any] = {"with_caption": True, "output": str(tmp_path / "out.parquet")}
    made = describe_shard(inputs, settings)
    assert [question.key for question in captioner.asked] == ["a", "b", "c"]  # no test image, none of a long text
    assert {question.answer_start for question in captioner.asked} == {"The image shows "}
    assert captioner.asked[1].prompt == f"{DescribeConfig().prompt} People described it so: A cat."
    assert dict(zip(*made.table.to_pydict().values(), strict=True)) == {
        "a": "The image shows a dog on grass",
        "b": "The image shows a dog on grass",
    }
    assert made.drops == {"empty description": 1}
    describe_shard(inputs, {"output": str(tmp_path / "out.parquet")})
    assert captioner.asked[-1].prompt == DescribeConfig().prompt


def test_what_is_to_be_translated(inputs: dict[str, Path], tmp_path: Path) -> None:
    described = pa.table({"key": ["a", "b"], "text": ["The image shows a dog.", "The image shows a cat."]})
    pq.write_table(described, tmp_path / "described.parquet")
    inputs |= {"descriptions": tmp_path / "described.parquet"}
    captions = prepare_shard(inputs, {"task": "caption"})
    assert captions.table.to_pylist() == [
        {"key": "a#0", "sentences": ["A dog."], "description": "The image shows a dog."},  # its copy once
        {"key": "c#0", "sentences": ["A bird."], "description": None},
        {"key": "e#0", "sentences": ["A dog runs.", "It is black.", "It barks."], "description": None},
    ]
    assert captions.drops == {"of a test image": 1}
    pairs = prepare_shard(inputs, {"task": "translation"})
    assert pairs.table.to_pylist() == [{"key": "b#0", "sentences": ["A cat."], "description": "The image shows a cat."}]


def test_a_server_goes_on_from_the_start_of_the_answer() -> None:
    server = ChatServer("some-model")
    picture = Image.new("RGB", (8, 8))
    plain = server._body(Question("a", picture, "Describe it."))
    assert len(plain["messages"]) == 1
    assert "continue_final_message" not in plain
    body = server._body(Question("a", picture, "Describe it.", "The image shows "))
    assert body["messages"][1] == {"role": "assistant", "content": "The image shows "}
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


@pytest.mark.parametrize("name", ["../../secret.jpg", "/etc/passwd", ".jpg", "a\\b.jpg"])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str) -> None:
    row = {"split": "train", "example_id": "x", "image_file": name, "description": "A dog."}
    (tmp_path / "docci_descriptions.jsonlines").write_text(json.dumps(row))
    source = SourceConfig(format="docci", folder=tmp_path, num_images={"train": 1})
    settings = {"name": "docci", "source": {"format": "docci", "num_images": {"train": 1}}}
    settings |= {"folder": str(tmp_path), "tars": []}
    with pytest.raises(UserError, match="is not the name of a picture below"):
        read_source_shard({"texts": text_files(source)}, settings)


def test_bad_texts_are_counted(tmp_path: Path) -> None:
    rows = [
        {"split": "train", "example_id": "x", "image_file": f"train_{number:05d}.jpg", "description": text}
        for number, text in enumerate(["A dog.", " ", "x" * 100_001])
    ]
    (tmp_path / "docci_descriptions.jsonlines").write_text("\n".join(map(json.dumps, rows)))
    settings = {"name": "docci", "source": {"format": "docci", "num_images": {"train": 3}}}
    made = read_source_shard({}, settings | {"folder": str(tmp_path), "tars": []})
    assert made.table["key"].to_pylist() == ["docci/train_00000"]
    assert sum(made.drops.values()) == 2


def test_descriptions_reach_the_translator(
    world: Path, tmp_path: Path, finetune_settings: Callable[..., FinetuneConfig], here: Any
) -> None:
    from babelcap.generate.finetune.build import build_finetune

    source = {"format": "corpus", "folder": world, "captions_into": ["fr"]}
    translate = {"backend": "world"}
    config = finetune_settings(tmp_path / "out", sources={"world": source}, translate=translate, leakage={})
    assert build_finetune(config, {}, here).corpus is not None
    rows = [row for path in config.work_folder.glob("prepare-*/*.parquet") for row in pq.read_table(path).to_pylist()]
    short = [row["description"] for row in rows if len(row["sentences"]) == 1 and row["description"]]
    assert len(short) >= 60
    assert all(text.startswith("The image shows ") for text in short)
    for path in config.work_folder.glob("translate-*/*.parquet"):
        for row in pq.read_table(path).to_pylist():
            assert not [text for text in row["fr"] or () if "#" in text or "(" in text]
