"""Readers of benchmarks as they are distributed."""

import json
from pathlib import Path

from babelcap.evaluation.benchmarks import commute, multi30k
from babelcap.evaluation.benchmarks.coco_karpathy import read_coco
from babelcap.evaluation.benchmarks.docci import read_docci
from babelcap.evaluation.benchmarks.image_paragraphs import read_paragraphs
from babelcap.evaluation.benchmarks.xm3600 import read_xm3600
from torture.readers.target import Target, json_lines, put


def coco_karpathy(folder: Path) -> Target:
    rows = [
        {"filepath": "v", "filename": f"{n}.jpg", "cocoid": n, "split": "test", "sentences": [{"raw": " A dog."}] * 2}
        for n in range(3)
    ]
    path = put(folder / "coco/dataset_coco.json", json.dumps({"dataset": "coco", "images": rows}))
    return Target([path], lambda out: read_coco(folder, num_images=3))


def docci(folder: Path) -> Target:
    rows = [{"split": "test", "example_id": f"t{n}", "image_file": f"{n}.jpg", "description": "A."} for n in range(3)]
    path = put(folder / "docci/docci_descriptions.jsonlines", json_lines(rows))
    return Target([path], lambda out: read_docci(folder, num_images=3))


def image_paragraphs(folder: Path) -> Target:
    place = folder / "image_paragraphs"
    rows = [{"url": "u", "image_id": n, "paragraph": f" Of {n}.  More. "} for n in (5, 6, 7)]
    files = [put(place / "paragraphs_v1.json", json.dumps(rows)), put(place / "test_split.json", "[6, 7]")]
    return Target(files, lambda out: read_paragraphs(folder, num_images=2))


def xm3600(folder: Path) -> Target:
    rows = [{"image/key": f"k{n}", "en": {"caption": ["A dog.", "A hound."]}, "mi": {"caption": []}} for n in range(3)]
    path = put(folder / "xm3600/captions.jsonl", json_lines(rows))
    return Target([path], lambda out: read_xm3600(folder, ["en", "mi"], num_images=3))


def multi30k_and_commute(folder: Path) -> Target:
    task, place = folder / "multi30k/data/task1", folder / "commute/en-de"
    files = [put(task / "image_splits/test_2017_mscoco.txt", "".join(f"{n}.jpg#1\n" for n in range(461)))]
    files += [put(task / f"raw/test_2017_mscoco.{code}.gz", "A dog.\n" * 461) for code in ("en", "de")]
    files += [put(place / name, "A mole.\n" * 300) for name in ("src.en", "correct.de", "incorrect.de", "img.order")]

    def read(out: Path) -> None:
        multi30k.read_translation(folder, "test_2017_mscoco", ["de"])
        commute.read_commute(folder, ["de"])

    return Target(files, read)
