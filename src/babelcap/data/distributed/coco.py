"""COCO captions in Karpathy's splits: FOLDER/dataset_coco.json, FOLDER/{train2014,val2014}/*.jpg."""

from pathlib import Path

from babelcap.data.distributed.files import Described, check_count, field_error, need_json

FILE = "dataset_coco.json"
ORIGIN = "https://cs.stanford.edu/people/karpathy/deepimagesent/caption_datasets.zip"
IMAGES_ORIGIN = "http://images.cocodataset.org/zips/val2014.zip"
TRAINING_IMAGES_ORIGIN = "http://images.cocodataset.org/zips/train2014.zip and val2014.zip"
NUM_IMAGES = {"train": 82_783, "restval": 30_504, "val": 5_000, "test": 5_000}


def read_karpathy(folder: Path, split: str, num_images: int | None = None) -> list[Described]:
    """`num_images` is what the split has to have; None: what the distributed file has."""
    path = folder / FILE
    found = []
    try:
        for row in need_json(path, ORIGIN)["images"]:
            if row["split"] == split:
                texts = tuple(sentence["raw"].strip() for sentence in row["sentences"])
                found.append(Described(str(row["cocoid"]), folder / row["filepath"] / row["filename"], split, texts))
    except (KeyError, TypeError, AttributeError) as error:
        raise field_error(path, error) from None
    check_count(path, f"{split} images", len(found), NUM_IMAGES[split] if num_images is None else num_images)
    return found
