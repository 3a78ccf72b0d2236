"""Image Paragraphs, test split: image_paragraphs/{paragraphs_v1,test_split}.json (2,489 images, one paragraph each).

The pictures are Visual Genome's: image_paragraphs/VG_100K/*.jpg and image_paragraphs/VG_100K_2/*.jpg.
"""

from pathlib import Path

from babelcap.evaluation.benchmarks.items import Item, check_count, field_error, need_json

ORIGIN = "https://cs.stanford.edu/people/ranjaykrishna/im2p"
IMAGES_ORIGIN = "https://homes.cs.washington.edu/~ranjay/visualgenome/api.html"
FOLDERS = ("VG_100K", "VG_100K_2")
NUM_IMAGES = 2489


def read_paragraphs(root: Path, num_images: int = NUM_IMAGES) -> list[Item]:
    folder = root / "image_paragraphs"
    path, split_path = folder / "paragraphs_v1.json", folder / "test_split.json"
    paragraphs: dict[int, list[str]] = {}
    try:
        for row in need_json(path, ORIGIN):  # a few images come twice
            paragraphs.setdefault(int(row["image_id"]), []).append(" ".join(row["paragraph"].split()))
        keys = list(dict.fromkeys(map(int, need_json(split_path, ORIGIN))))
        check_count(split_path, "images", len(keys), num_images)
        found = [(key, tuple(dict.fromkeys(paragraphs[key]))) for key in keys]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise field_error(path, error) from None
    return [
        Item(f"en/{key}", _image(folder, key), "en", "caption", "detailed", references=texts) for key, texts in found
    ]


def _image(folder: Path, key: int) -> Path:
    """Visual Genome comes in two archives, and no file says which picture is in which."""
    places = [folder / name / f"{key}.jpg" for name in FOLDERS]
    return next((place for place in places if place.is_file()), places[0])
