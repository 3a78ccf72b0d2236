"""Image Paragraphs, test split: image_paragraphs/{paragraphs_v1,test_split}.json (2,489 images, one paragraph each).

The pictures are Visual Genome's: image_paragraphs/VG_100K/*.jpg and image_paragraphs/VG_100K_2/*.jpg.
"""

from pathlib import Path

from babelcap.data.distributed import image_paragraphs as distributed
from babelcap.data.distributed.image_paragraphs import IMAGES_ORIGIN
from babelcap.evaluation.benchmarks.items import Item

__all__ = ["IMAGES_ORIGIN", "read_paragraphs"]


def read_paragraphs(root: Path, num_images: int = distributed.NUM_TEST_IMAGES) -> list[Item]:
    rows = distributed.read_paragraphs(root / "image_paragraphs", "test", num_images)
    return [Item(f"en/{row.id}", row.image, "en", "caption", "detailed", references=row.texts) for row in rows]
