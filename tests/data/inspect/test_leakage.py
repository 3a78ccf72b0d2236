"""Leakage: test pictures in a corpus are found, whatever they are called; `babelcap data leakage`."""

import io
import json
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.coverage import CAPTION, Coverage
from babelcap.data.store.store import Corpus, CorpusWriter
from babelcap.data.store.tar import scan_tar
from babelcap.records import Annotation

CAPTIONS = [Annotation(task=CAPTION, language="en", target="A photograph.")]


def write_corpus(folder: Path, images: dict[str, bytes], split: str = "train") -> Path:
    with CorpusWriter(folder, provenance={}, coverage=Coverage(seen=("caption-en",)), images_per_tar=100) as writer:
        for key, image in images.items():
            writer.add(key, image, "jpg", split, CAPTIONS)
    return folder


def saved_again(image: bytes, quality: int = 50, scale: float = 0.8) -> bytes:
    with Image.open(io.BytesIO(image)) as opened:
        smaller = opened.convert("RGB").resize((round(opened.width * scale), round(opened.height * scale)))
    stream = io.BytesIO()
    smaller.save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["data", "leakage", *map(str, arguments), "--workers", "1"])
    return done.exit_code, done.output


@pytest.fixture(scope="module")
def photographs(shared: Path) -> dict[str, bytes]:
    """Sixty training photographs of Multi30K."""
    with tarfile.open(shared / "data/multi30k/images/flickr30k-subset-0001.tar") as tar:
        found = {}
        for member in tar.getmembers()[:60]:
            file = tar.extractfile(member)
            assert file is not None
            found[member.name.partition(".")[0]] = file.read()
    return found


def test_a_test_image_planted_in_training_renamed_and_re_encoded_is_found(
    shared: Path, photographs: dict[str, bytes], tmp_path: Path
) -> None:
    """Must show 7, on real photographs: 85 test images of COCO, two of them among the training images."""
    tests = shared / "data/coco/val2017"
    planted = {"holiday": "000000000285.jpg", "zz/other_name": "000000397133.jpg"}
    images = photographs | {key: saved_again((tests / name).read_bytes()) for key, name in planted.items()}
    corpus = write_corpus(tmp_path / "corpus", images)
    code, output = run(corpus, "--against", tests, "--json")
    found = json.loads(output)
    assert code == 1
    assert {leak["key"]: Path(leak["name"]).name for leak in found["leaks"]} == planted
    assert {leak["how"] for leak in found["leaks"]} == {"picture"}
    assert (found["num_images"], found["num_against"], found["num_leaked"]) == (62, 85, 2)
    clean = write_corpus(tmp_path / "clean", photographs)
    code, output = run(clean, "--against", tests)
    assert code == 0
    assert "0 of 60 images are among 85 test images" in output


def test_a_name_is_enough_where_there_is_no_picture(
    shared: Path, make_image: Callable[..., bytes], tmp_path: Path
) -> None:
    """The published case: an image of test_2017_mscoco that COCO has under the same number."""
    images = {"coco/COCO_train2014_000000117071": make_image(1), "coco/COCO_train2014_000000000009": make_image(2)}
    corpus = write_corpus(tmp_path / "corpus", images)
    code, output = run(corpus, "--against", "multi30k-test_2017_mscoco", "--root", shared / "data")
    assert code == 1
    assert "coco/COCO_train2014_000000117071 is " in output
    assert "COCO_train2014_000000117071.jpg of multi30k-test_2017_mscoco (by name)" in output
    assert "1 of 2 images are among 461 test images" in output
    assert "compared by name alone: 461 pictures: missing image" in output


def test_a_corpus_against_itself_compares_its_splits(
    small_corpus: Path, make_image: Callable[..., bytes], tmp_path: Path
) -> None:
    code, output = run(small_corpus, "--against", small_corpus)
    assert code == 0
    assert "0 of 60 images are among 12 test images" in output
    # Its own training images, in another corpus and under other keys.
    corpus = Corpus.open(small_corpus)
    rows = list(corpus.rows("train"))[:3]
    copies = {}
    for row in rows:
        content = corpus.tar_path(row.tar).read_bytes()[row.offset : row.offset + row.length]
        copies[f"copy{row.key}"] = saved_again(content, quality=90, scale=2)
    other = write_corpus(tmp_path / "other", copies, split="test")
    code, output = run(small_corpus, "--against", other, "--json")
    assert code == 1
    assert {leak["key"]: leak["name"] for leak in json.loads(output)["leaks"]} == {
        row.key: f"copy{row.key}" for row in rows
    }
    assert json.loads(output)["leaks"][0]["set"] == f"{other} (test)"


def test_ids_of_another_dataset(make_image: Callable[..., bytes], tmp_path: Path) -> None:
    """A picture of Visual Genome that is one of COCO's test images."""
    corpus = write_corpus(
        tmp_path / "corpus", {"image_paragraphs/5": make_image(1), "image_paragraphs/6": make_image(2)}
    )
    (tmp_path / "tests" / "val2014").mkdir(parents=True)
    (tmp_path / "tests/val2014/COCO_val2014_000000000285.jpg").write_bytes(make_image(3))
    (tmp_path / "image_data.json").write_text(json.dumps([{"image_id": 5, "coco_id": 285, "flickr_id": None}]))
    assert run(corpus, "--against", tmp_path / "tests")[0] == 0
    code, output = run(corpus, "--against", tmp_path / "tests", "--ids", tmp_path / "image_data.json")
    assert code == 1
    assert "image_paragraphs/5 is " in output


def test_a_damaged_picture_is_counted(make_image: Callable[..., bytes], tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", {"a": make_image(1), "b": b"not a picture"})
    assert len(scan_tar(corpus / "images/00000.tar").names) == 2
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests/t.jpg").write_bytes(make_image(1))
    code, output = run(corpus, "--against", tmp_path / "tests")
    assert code == 1
    assert "a is " in output
    assert "compared by name alone: 1 pictures: not an image" in output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--against", "nine"],
            "'nine' is no folder, no corpus and no benchmark (known: all, multi30k-test_",
        ),
        (["--against", "coco"], "coco is a benchmark; say which folder holds the benchmarks with --root"),
        (["--against", "EMPTY"], "holds no pictures"),
        (["--against", "EMPTY", "--split", "nine"], "has no split 'nine'"),
        (["--against", "coco", "--root", "EMPTY"], "dataset_coco.json: no such file; get it from https://cs.stanford"),
    ],
)
def test_mistakes_are_one_line(small_corpus: Path, tmp_path: Path, arguments: list[str], message: str) -> None:
    code, output = run(small_corpus, *(str(tmp_path) if word == "EMPTY" else word for word in arguments))
    assert code == 2
    assert message in " ".join(output.split())
