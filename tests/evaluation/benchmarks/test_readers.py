"""Readers: published counts on the real files, small files in the format of the others, and files that are missing."""

import gzip
import json
from collections import Counter
from pathlib import Path

import pytest

from babelcap.errors import UserError
from babelcap.evaluation.benchmarks import BENCHMARKS, Item, read_benchmark, require_images, task_set
from babelcap.evaluation.benchmarks.coco_karpathy import read_coco
from babelcap.evaluation.benchmarks.docci import read_docci
from babelcap.evaluation.benchmarks.image_paragraphs import read_paragraphs
from babelcap.evaluation.benchmarks.xm3600 import LANGUAGES, TOKENISED, read_xm3600


@pytest.fixture(scope="session")
def real(shared: Path) -> Path:
    return shared / "data"


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())


@pytest.mark.parametrize(
    ("test_set", "num_items"),
    [("test_2016_flickr", 1000), ("test_2017_flickr", 1000), ("test_2018_flickr", 1071), ("test_2017_mscoco", 461)],
)
def test_multi30k_translation(real: Path, test_set: str, num_items: int) -> None:
    items = read_benchmark(f"multi30k-{test_set}", real)
    assert Counter(item.language for item in items) == {"de": num_items, "fr": num_items}
    assert len({item.id for item in items}) == len(items)
    assert all(item.task == "translation" and item.source and len(item.references) == 1 for item in items)
    assert {item.image.suffix for item in items} == {".jpg"}


def test_multi30k_captions(real: Path) -> None:
    items = read_benchmark("multi30k-captions", real)
    assert Counter(item.language for item in items) == {"en": 1000, "de": 1000}
    assert all(len(item.references) == 5 and all(item.references) for item in items)
    assert items[0].id == "en/1007129816"
    assert items[0].references[3] == "A man in an orange hat starring at something."


def test_commute(real: Path) -> None:
    items = read_benchmark("commute", real)
    assert Counter(item.language for item in items) == {"de": 300, "fr": 308, "ru": 324, "zh": 324}
    by_id = {item.id: item for item in items}
    first, second = by_id["de/000"], by_id["de/001"]
    assert first.source == second.source == "We'll have to get rid of that mole."
    assert first.references[0] == second.contrast == "Das Leberfleck muss entfernt werden."
    pairs = {
        code: [(by_id[f"{code}/{n:03d}"], by_id[f"{code}/{n + 1:03d}"]) for n in range(0, num, 2)]
        for code, num in Counter(item.language for item in items).items()
    }
    mirrored = {
        code: sum(a.references[0] == b.contrast and b.references[0] == a.contrast for a, b in found)
        for code, found in pairs.items()
    }
    assert mirrored == {"de": 150, "fr": 152, "ru": 162, "zh": 162}
    assert sum(item.references[0] == item.contrast for item in items if item.language == "ru") == 6


def test_coco(tmp_path: Path) -> None:
    def row(number: int, split: str) -> dict[str, object]:
        name = f"COCO_val2014_{number:012d}.jpg"
        sentences = [{"tokens": ["a"], "raw": f" Caption {n} of {number}.\n", "sentid": n} for n in range(5)]
        return {"filepath": "val2014", "filename": name, "cocoid": number, "split": split, "sentences": sentences}

    rows = [row(7, "test"), row(8, "train"), row(9, "restval"), row(11, "test")]
    put(tmp_path / "coco/dataset_coco.json", json.dumps({"dataset": "coco", "images": rows}))
    items = read_coco(tmp_path, num_images=2)
    assert [item.id for item in items] == ["en/7", "en/11"]
    assert items[0].image == tmp_path / "coco/val2014/COCO_val2014_000000000007.jpg"
    assert items[0].references[1] == "Caption 1 of 7."
    with pytest.raises(UserError, match="expected 5000 test images, found 2"):
        read_benchmark("coco", tmp_path)


def test_docci(tmp_path: Path) -> None:
    rows = [
        {"type": "original", "split": split, "example_id": f"{split}_0000{n}", "image_file": f"{split}_0000{n}.jpg",
         "description": f"A long view {n}. "}
        for split in ("train", "test", "qual_dev") for n in range(2)
    ]  # fmt: skip
    put(tmp_path / "docci/docci_descriptions.jsonlines", "".join(json.dumps(row) + "\n" for row in rows))
    items = read_docci(tmp_path, num_images=2)
    assert [item.id for item in items] == ["en/test_00000", "en/test_00001"]
    assert items[1] == Item(
        "en/test_00001", tmp_path / "docci/images/test_00001.jpg", "en", "caption", "more_detailed", None,
        ("A long view 1.",),
    )  # fmt: skip
    with pytest.raises(UserError, match="expected 5000 test images, found 2"):
        read_benchmark("docci", tmp_path)


def test_image_paragraphs(tmp_path: Path) -> None:
    folder = tmp_path / "image_paragraphs"
    rows = [{"url": "u", "image_id": n, "paragraph": f" Of {n}.  More. "} for n in (5, 6, 7)]
    put(folder / "paragraphs_v1.json", json.dumps([*rows, {"url": "u", "image_id": 6, "paragraph": "Again."}]))
    put(folder / "test_split.json", "[6, 7]")
    put(folder / "VG_100K_2/7.jpg", "")
    items = read_paragraphs(tmp_path, num_images=2)
    assert [item.id for item in items] == ["en/6", "en/7"]
    assert items[0].references == ("Of 6. More.", "Again.")
    assert items[0].style == "detailed"
    assert [item.image.parent.name for item in items] == ["VG_100K", "VG_100K_2"]
    with pytest.raises(UserError, match="expected 2489 images, found 2"):
        read_benchmark("image-paragraphs", tmp_path)


def test_xm3600(tmp_path: Path) -> None:
    texts = {"caption": ["A dog.", "A hound."], "caption/tokenized": ["A dog .", "A hound ."]}
    rows: list[dict[str, object]] = [{"image/key": f"k{n}", "image/locale": "en", "en": texts} for n in range(2)]
    rows[0]["mi"] = {"caption": [], "caption/tokenized": []}
    rows[1]["mi"] = {"caption": ["He kuri."], "caption/tokenized": ["He kuri ."]}
    put(tmp_path / "xm3600/captions.jsonl", "".join(json.dumps(row) + "\n" for row in rows))
    items = read_xm3600(tmp_path, ["en", "mi"], num_images=2)
    assert [item.id for item in items] == ["en/k0", "en/k1", "mi/k1"]
    assert items[0].references == ("A dog.", "A hound.")
    assert items[0].image == tmp_path / "xm3600/images/k0.jpg"
    assert read_xm3600(tmp_path, ["en"], TOKENISED, 2)[0].references == ("A dog .", "A hound .")
    assert len(LANGUAGES) == len(set(LANGUAGES)) == 36
    with pytest.raises(UserError, match="no language 'xx'"):
        read_xm3600(tmp_path, ["xx"])


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_missing_file_is_named_with_where_to_get_it(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match=r": no such file; get it from (https://|`babelcap world)") as caught:
        read_benchmark(name, tmp_path)
    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "path", "text", "message"),
    [
        ("coco", "coco/dataset_coco.json", '{"images": [{"split": "test"}]}', "not in the distributed format"),
        ("coco", "coco/dataset_coco.json", "[1]", "not in the distributed format"),
        ("coco", "coco/dataset_coco.json", "{", "not valid JSON"),
        ("docci", "docci/docci_descriptions.jsonlines", '{"split": "test"}\n', "not in the distributed format"),
        ("docci", "docci/docci_descriptions.jsonlines", "[]\n", "1: expected an object"),
        ("commute", "commute/en-de/src.en", "one line", "expected 300 lines, found 1"),
        ("image-paragraphs", "image_paragraphs/paragraphs_v1.json", '[{"image_id": "x"}]', "not in the distributed"),
        (
            "world-ambiguity",
            "world/ambiguity.jsonl",
            '{"image": "x.png", "references": []}\n',
            "not in the distributed",
        ),
        ("world-captioning", "world/captioning.jsonl", "", "has no items; make it anew"),
    ],
)
def test_a_damaged_file_is_one_line(tmp_path: Path, name: str, path: str, text: str, message: str) -> None:
    put(tmp_path / path, text)
    with pytest.raises(UserError, match=message):
        read_benchmark(name, tmp_path)


def test_a_damaged_archive_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / "multi30k/data/task1"
    put(folder / "image_splits/test_2017_mscoco.txt", "a.jpg#1\n" * 461)
    (folder / "raw").mkdir()
    (folder / "raw/test_2017_mscoco.en.gz").write_bytes(gzip.compress(b"x\n" * 461)[:-9])
    with pytest.raises(UserError, match="may be damaged; get it from"):
        read_benchmark("multi30k-test_2017_mscoco", tmp_path)


def test_task_sets_and_unknown_names(real: Path) -> None:
    twins = task_set("world")[0]
    assert twins == ("world-captioning", "world-translation", "world-ambiguity")
    assert set(task_set("full")[0]) == set(BENCHMARKS) - set(twins)
    assert task_set("ambiguity") == (("commute",), None)
    assert "coco" not in task_set("translation")[0]
    assert set(task_set("english")[0]) == {"multi30k-captions", "coco", "docci", "image-paragraphs", "xm3600"}
    assert {item.language for item in read_benchmark("multi30k-captions", real, ["en"])} == {"en"}
    with pytest.raises(UserError, match="did you mean 'commute'"):
        read_benchmark("comute", real)
    with pytest.raises(UserError, match="unknown task set 'all'"):
        task_set("all")
    with pytest.raises(UserError, match="no language 'ru' in it; it has en, de"):
        read_benchmark("multi30k-captions", real, ["ru"])


def test_missing_pictures_are_counted(tmp_path: Path) -> None:
    put(tmp_path / "a.jpg", "x")
    items = [Item(name, tmp_path / f"{name}.jpg", "en", "caption") for name in "abc"]
    with pytest.raises(UserError, match=r"b\.jpg: no such picture \(2 of 3 missing\); get it from somewhere"):
        require_images(items, "somewhere")
    require_images(items[:1], "somewhere")
