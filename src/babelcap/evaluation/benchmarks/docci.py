"""DOCCI, its test split: docci/docci_descriptions.jsonlines, docci/images/*.jpg (5,000 images, a long description)."""

from pathlib import Path

from babelcap.evaluation.benchmarks.items import Item, check_count, field_error, need_json_lines

ORIGIN = "https://storage.googleapis.com/docci/data/docci_descriptions.jsonlines"
IMAGES_ORIGIN = "https://storage.googleapis.com/docci/data/docci_images.tar.gz"
SPLITS = {"train": 9647, "test": 5000, "qual_dev": 100, "qual_test": 100}


def read_docci(root: Path, split: str = "test", num_images: int | None = None) -> list[Item]:
    path = root / "docci" / "docci_descriptions.jsonlines"
    items = []
    try:
        for row in need_json_lines(path, ORIGIN):
            if row["split"] == split:
                image = root / "docci" / "images" / row["image_file"]
                texts = (row["description"].strip(),)
                items.append(Item(f"en/{row['example_id']}", image, "en", "caption", "more_detailed", references=texts))
    except (KeyError, TypeError, AttributeError) as error:
        raise field_error(path, error) from None
    check_count(path, f"{split} images", len(items), SPLITS[split] if num_images is None else num_images)
    return items
