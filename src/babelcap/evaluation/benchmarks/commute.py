"""CoMMuTE as distributed: an ambiguous English sentence, a picture that decides, the right and the wrong translation.

commute/en-{de,fr,ru,zh}/{src.en,correct.xx,incorrect.xx,img.order}, commute/images/*. Items are in pairs: lines 1 and 2
share a sentence, and what is right for one picture is wrong for the other.
"""

from collections.abc import Sequence
from pathlib import Path

from babelcap.data.distributed.files import need_lines
from babelcap.evaluation.benchmarks.items import Item

ORIGIN = "https://github.com/MatthieuFP/CoMMuTE"
IMAGES_ORIGIN = "https://github.com/MatthieuFP/CoMMuTE (images.tar.gz, linked in its README)"
NUM_ITEMS = {"de": 300, "fr": 308, "ru": 324, "zh": 324}


def read_commute(root: Path, languages: Sequence[str] = tuple(NUM_ITEMS)) -> list[Item]:
    items = []
    for language in languages:
        folder, expected = root / "commute" / f"en-{language}", NUM_ITEMS[language]
        names = ("src.en", f"correct.{language}", f"incorrect.{language}", "img.order")
        columns = [need_lines(folder / name, ORIGIN, expected) for name in names]
        for number, (source, right, wrong, image) in enumerate(zip(*columns, strict=True)):
            items.append(
                Item(
                    id=f"{language}/{number:03d}",
                    image=root / "commute" / "images" / image,
                    language=language,
                    task="translation",
                    source=source,
                    references=(right,),
                    contrast=wrong,
                )
            )
    return items


def pair_numbers(num_items: int) -> list[int]:
    """The pair of each item, in the order of the file."""
    return [number // 2 for number in range(num_items)]
