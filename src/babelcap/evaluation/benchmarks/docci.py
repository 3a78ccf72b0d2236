"""DOCCI, its test split: docci/docci_descriptions.jsonlines, docci/images/*.jpg (5,000 images, a long description)."""

from pathlib import Path

from babelcap.data.distributed.docci import IMAGES_ORIGIN, read_descriptions
from babelcap.evaluation.benchmarks.items import Item

__all__ = ["IMAGES_ORIGIN", "read_docci"]


def read_docci(root: Path, split: str = "test", num_images: int | None = None) -> list[Item]:
    rows = read_descriptions(root / "docci", split, num_images)
    return [Item(f"en/{row.id}", row.image, "en", "caption", "more_detailed", references=row.texts) for row in rows]
