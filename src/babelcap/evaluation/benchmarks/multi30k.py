"""Multi30K as distributed: task 1, translation in four test sets; task 2, five captions in English and in German.

multi30k/data/task1/{raw,image_splits}, multi30k/data/task2/{raw,image_splits}, multi30k/images/*.jpg
"""

from collections.abc import Sequence
from pathlib import Path

from babelcap.data.distributed.files import need_lines
from babelcap.evaluation.benchmarks.items import Item

ORIGIN = "https://github.com/multi30k/dataset"
IMAGES_ORIGIN = "https://shannon.cs.illinois.edu/DenotationGraph (Flickr30k) and https://cocodataset.org (mscoco)"
TEST_SETS = {"test_2016_flickr": 1000, "test_2017_flickr": 1000, "test_2018_flickr": 1071, "test_2017_mscoco": 461}
TRANSLATION_LANGUAGES = ("de", "fr")  # Czech is only in two of the four
CAPTION_LANGUAGES = ("en", "de")
NUM_CAPTION_IMAGES = 1000
NUM_CAPTIONS = 5


def read_translation(root: Path, test_set: str, languages: Sequence[str] = TRANSLATION_LANGUAGES) -> list[Item]:
    """Task 1: the English sentence is the source, its translation the one reference."""
    folder, expected = root / "multi30k" / "data" / "task1", TEST_SETS[test_set]
    images = [_name(line) for line in need_lines(folder / "image_splits" / f"{test_set}.txt", ORIGIN, expected)]
    sources = need_lines(folder / "raw" / f"{test_set}.en.gz", ORIGIN, expected)
    items = []
    for language in languages:
        targets = need_lines(folder / "raw" / f"{test_set}.{language}.gz", ORIGIN, expected)
        for number, (image, source, target) in enumerate(zip(images, sources, targets, strict=True)):
            path = root / "multi30k" / "images" / image
            key = f"{language}/{number:04d}"
            items.append(Item(key, path, language, "translation", source=source, references=(target,)))
    return items


def read_captions(root: Path, languages: Sequence[str] = CAPTION_LANGUAGES) -> list[Item]:
    """Task 2 on test_2016: five captions an image, written for each language on its own."""
    folder = root / "multi30k" / "data" / "task2"
    images = need_lines(folder / "image_splits" / "test_2016_images.txt", ORIGIN, NUM_CAPTION_IMAGES)
    items = []
    for language in languages:
        streams = [
            need_lines(folder / "raw" / f"test_2016.{number}.{language}.gz", ORIGIN, NUM_CAPTION_IMAGES)
            for number in range(1, NUM_CAPTIONS + 1)
        ]
        for image, texts in zip(map(_name, images), zip(*streams, strict=True), strict=True):
            key = f"{language}/{image.partition('.')[0]}"
            items.append(Item(key, root / "multi30k" / "images" / image, language, "caption", references=texts))
    return items


def _name(line: str) -> str:
    return line.partition("#")[0]  # some lists carry the number of a caption behind the name
