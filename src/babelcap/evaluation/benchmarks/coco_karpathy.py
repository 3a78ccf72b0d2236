"""COCO captions, Karpathy's test split: coco/dataset_coco.json, coco/val2014/*.jpg (5,000 images, 5 captions each)."""

from pathlib import Path

from babelcap.evaluation.benchmarks.items import Item, check_count, field_error, need_json

ORIGIN = "https://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip"
IMAGES_ORIGIN = "http://images.cocodataset.org/zips/val2014.zip"
NUM_IMAGES = 5000


def read_coco(root: Path, num_images: int = NUM_IMAGES) -> list[Item]:
    path = root / "coco" / "dataset_coco.json"
    items = []
    try:
        for row in need_json(path, ORIGIN)["images"]:
            if row["split"] == "test":
                texts = tuple(sentence["raw"].strip() for sentence in row["sentences"])
                image = root / "coco" / row["filepath"] / row["filename"]
                items.append(Item(f"en/{row['cocoid']}", image, "en", "caption", references=texts))
    except (KeyError, TypeError, AttributeError) as error:
        raise field_error(path, error) from None
    check_count(path, "test images", len(items), num_images)
    return items
