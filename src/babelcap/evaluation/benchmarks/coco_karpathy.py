"""COCO captions, Karpathy's test split: coco/dataset_coco.json, coco/val2014/*.jpg (5,000 images, 5 captions each)."""

from pathlib import Path

from babelcap.data.distributed.coco import IMAGES_ORIGIN, read_karpathy
from babelcap.evaluation.benchmarks.items import Item

__all__ = ["IMAGES_ORIGIN", "read_coco"]


def read_coco(root: Path, num_images: int | None = None) -> list[Item]:
    rows = read_karpathy(root / "coco", "test", num_images)
    return [Item(f"en/{row.id}", row.image, "en", "caption", references=row.texts) for row in rows]
