"""The four sources and the benchmarks as they are distributed, in small: pictures and sentences of the world."""

import gzip
import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from PIL import Image

from babelcap.config import build_config
from babelcap.data.store.store import Corpus
from babelcap.generate.finetune.config import FinetuneConfig

NUM_MSCOCO = 461
LEAKED_BY_NAME = 3  # of COCO's eight training images


class Picture(NamedTuple):
    jpeg: bytes
    captions: dict[str, str]  # style -> English


def pictures_of(world: Path) -> Iterator[Picture]:
    corpus = Corpus.open(world)
    for row in corpus.rows():
        with corpus.tar_path(row.tar).open("rb") as file:
            file.seek(row.offset)
            image = Image.open(io.BytesIO(file.read(row.length))).convert("RGB")
        english = {str(entry.style): entry.target for entry in row.annotations
                   if entry.task == "caption" and entry.language == "en"}  # fmt: skip
        yield Picture(jpeg(image), english)


def jpeg(image: Image.Image, quality: int = 95) -> bytes:
    stream = io.BytesIO()
    image.save(stream, "JPEG", quality=quality)
    return stream.getvalue()


def saved_again(image: bytes) -> bytes:
    with Image.open(io.BytesIO(image)) as opened:
        return jpeg(opened.resize((opened.width * 2, opened.height * 2)), quality=50)


def put(path: Path, content: bytes | str | list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if isinstance(content, list):
        content = "".join(f"{line}\n" for line in content)
    found = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(found, mtime=0) if path.suffix == ".gz" else found)


def put_multi30k(root: Path, pictures: dict[str, list[Picture]], mscoco: list[str]) -> None:
    folder = root / "multi30k"
    for split, some in pictures.items():
        names = [f"{1000092795 + 7 * number + len(split) * 1000}.jpg" for number in range(len(some))]
        put(folder / f"data/task1/image_splits/{split}.txt", names)
        put(folder / f"data/task2/image_splits/{split}_images.txt", names)
        english = [picture.captions["short"] for picture in some]
        for code in ("en", "de", "fr"):
            put(
                folder / f"data/task1/raw/{split}.{code}.gz",
                [text if code == "en" else f"({code})" for text in english],
            )
        for number in range(1, 6):
            for code in ("en", "de"):
                lines = english if code == "en" else [f"Bild {number}."] * len(some)
                put(folder / f"data/task2/raw/{split}.{number}.{code}.gz", lines)
        for name, picture in zip(names, some, strict=True):
            put(folder / "images" / name, picture.jpeg)
    put(folder / "data/task1/image_splits/test_2017_mscoco.txt", [f"{name}#12345" for name in mscoco])
    for code in ("en", "de", "fr"):
        put(folder / f"data/task1/raw/test_2017_mscoco.{code}.gz", ["Text."] * len(mscoco))


def put_coco(root: Path, some: list[Picture]) -> list[str]:
    rows, names = [], []
    for number, picture in enumerate(some):
        split, folder = ("train", "train2014") if number % 2 == 0 else ("restval", "val2014")
        name = f"COCO_{folder}_{number + 500:012d}.jpg"
        sentences = [{"raw": picture.captions["short"]}] * 2
        rows.append(
            {"split": split, "filepath": folder, "filename": name, "cocoid": number + 500, "sentences": sentences}
        )
        put(root / "coco" / folder / name, picture.jpeg)
        names.append(name)
    test = {"split": "test", "filepath": "val2014", "filename": "COCO_val2014_000000000285.jpg", "cocoid": 285}
    put(root / "coco/dataset_coco.json", json.dumps({"images": [*rows, test | {"sentences": [{"raw": "A test."}]}]}))
    return names


def put_long(root: Path, paragraphs: list[Picture], described: list[Picture]) -> None:
    rows = [{"image_id": 9 + number, "paragraph": picture.captions["detailed"]}
            for number, picture in enumerate(paragraphs)]  # fmt: skip
    put(root / "image_paragraphs/paragraphs_v1.json", json.dumps(rows))
    put(root / "image_paragraphs/train_split.json", json.dumps([row["image_id"] for row in rows]))
    for row, picture in zip(rows, paragraphs, strict=True):
        put(root / f"image_paragraphs/VG_100K{'_2' * (int(row['image_id']) % 2)}/{row['image_id']}.jpg", picture.jpeg)
    genome = [{"image_id": 10, "coco_id": 285, "flickr_id": None}]  # which is one of COCO's test images
    put(root / "image_paragraphs/image_data.json", json.dumps(genome))
    lines = []
    for number, picture in enumerate(described):
        name = f"train_{number:05d}"
        values = {"split": "train", "example_id": name, "image_file": f"{name}.jpg"}
        lines.append(json.dumps(values | {"description": picture.captions["more_detailed"]}))
        put(root / f"docci/images/{name}.jpg", picture.jpeg)
    put(root / "docci/docci_descriptions.jsonlines", lines)


@pytest.fixture(scope="session")
def downloads(world: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """multi30k 8 for training and 4 for validation, coco 8, image_paragraphs 6, docci 6; and test images."""
    root = tmp_path_factory.mktemp("downloads")
    pictures = [picture for picture in pictures_of(world) if len(picture.captions) == 3]
    parts = [iter(pictures[start:]) for start in (0, 8, 12, 20, 26)]
    multi30k, validation, coco, paragraphs, docci = (
        [next(part) for _ in range(number)] for part, number in zip(parts, (8, 4, 8, 6, 6), strict=True)
    )
    names = put_coco(root, coco)
    others = [f"COCO_train2014_{number:012d}.jpg" for number in range(10_000, 10_000 + NUM_MSCOCO - LEAKED_BY_NAME)]
    put_multi30k(root, {"train": multi30k, "val": validation}, [*names[:LEAKED_BY_NAME], *others])
    put_long(root, paragraphs, docci)
    # Test images that are DOCCI's and Multi30K's for training, under other names and with other bytes.
    put(root / "xm3600/images/000411001ff7dd4f.jpg", saved_again(docci[2].jpeg))
    put(root / "xm3600/images/000411001ff7dd50.jpg", saved_again(multi30k[5].jpeg))
    put(root / "xm3600/images/000411001ff7dd51.jpg", pictures[40].jpeg)
    return root


@pytest.fixture(scope="session")
def finetune_settings(downloads: Path, world: Path) -> Callable[..., FinetuneConfig]:
    def make(output: Path, **changes: Any) -> FinetuneConfig:
        values: dict[str, Any] = {
            "output": output,
            "sources": {
                "multi30k": {"format": "multi30k", "folder": downloads / "multi30k", "licence": "research only"},
                "coco": {"format": "coco", "folder": downloads / "coco", "licence": "CC-BY-4.0",
                         "num_images": {"train": 4, "restval": 4}, "captions_as_pairs": True},
                "image_paragraphs": {"format": "image_paragraphs", "folder": downloads / "image_paragraphs"},
                "docci": {"format": "docci", "folder": downloads / "docci", "num_images": {"train": 6}},
            },
            "describe": {"backend": "world", "model": str(world)},
            "translate": {"backend": "world", "licence": "CC-BY-NC-4.0"},
            "leakage": {"without_pictures": ["multi30k-test_2017_mscoco", "coco"],
                        "ids": [downloads / "image_paragraphs/image_data.json"]},
            "images_per_tar": 5,
            "num_workers": 1,
        }  # fmt: skip
        return build_config(FinetuneConfig, values | changes)

    return make


@pytest.fixture(scope="session")
def tests_of(downloads: Path) -> dict[str, list[Path]]:
    """Benchmark -> pictures: the one that the published training holds by mistake, as its own reader reads it."""
    from babelcap.cli.leakage import benchmark_images

    found = benchmark_images(["multi30k-test_2017_mscoco"], downloads)
    found["coco"] = [downloads / "coco/val2014/COCO_val2014_000000000285.jpg"]
    found["xm3600"] = sorted((downloads / "xm3600/images").glob("*.jpg"))
    return found
