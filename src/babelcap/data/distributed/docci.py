"""DOCCI: FOLDER/docci_descriptions.jsonlines, FOLDER/images/*.jpg; a long description of each picture."""

from pathlib import Path

from babelcap.data.distributed.files import Described, check_count, field_error, need_json_lines

FILE = "docci_descriptions.jsonlines"
ORIGIN = "https://storage.googleapis.com/docci/data/docci_descriptions.jsonlines"
IMAGES_ORIGIN = "https://storage.googleapis.com/docci/data/docci_images.tar.gz"
NUM_IMAGES = {"train": 9647, "test": 5000, "qual_dev": 100, "qual_test": 100}


def read_descriptions(folder: Path, split: str, num_images: int | None = None) -> list[Described]:
    """`num_images` is what the split has to have; None: what the distributed file has."""
    path = folder / FILE
    found = []
    try:
        for row in need_json_lines(path, ORIGIN):
            if row["split"] == split:
                image = folder / "images" / row["image_file"]
                found.append(Described(str(row["example_id"]), image, split, (row["description"].strip(),)))
    except (KeyError, TypeError, AttributeError) as error:
        raise field_error(path, error) from None
    check_count(path, f"{split} images", len(found), NUM_IMAGES[split] if num_images is None else num_images)
    return found
