"""Image Paragraphs: FOLDER/paragraphs_v1.json, FOLDER/{train,val,test}_split.json; a paragraph a picture, rarely two.

The pictures are Visual Genome's: FOLDER/VG_100K/*.jpg and FOLDER/VG_100K_2/*.jpg.
"""

from pathlib import Path

from babelcap.data.distributed.files import Described, check_count, field_error, need_json

FILE = "paragraphs_v1.json"
SPLIT_FILE = "{split}_split.json"
ORIGIN = "https://cs.stanford.edu/people/ranjaykrishna/im2p"
IMAGES_ORIGIN = "https://homes.cs.washington.edu/~ranjay/visualgenome/api.html"
FOLDERS = ("VG_100K", "VG_100K_2")
NUM_TEST_IMAGES = 2489


def read_paragraphs(folder: Path, split: str, num_images: int | None = None) -> list[Described]:
    """`num_images` is what the split has to have; None: whatever it has."""
    path, split_path = folder / FILE, folder / SPLIT_FILE.format(split=split)
    paragraphs: dict[int, list[str]] = {}
    try:
        for row in need_json(path, ORIGIN):  # a few images come twice
            paragraphs.setdefault(int(row["image_id"]), []).append(" ".join(row["paragraph"].split()))
        keys = list(dict.fromkeys(map(int, need_json(split_path, ORIGIN))))
        if num_images is not None:
            check_count(split_path, "images", len(keys), num_images)
        found = [(key, tuple(dict.fromkeys(paragraphs[key]))) for key in keys]
    except (KeyError, TypeError, ValueError, OverflowError, AttributeError) as error:
        raise field_error(path, error) from None
    return [Described(str(key), _image(folder, key), split, texts) for key, texts in found]


def _image(folder: Path, key: int) -> Path:
    """Visual Genome comes in two archives, and no file says which picture is in which."""
    places = [folder / name / f"{key}.jpg" for name in FOLDERS]
    return next((place for place in places if place.is_file()), places[0])
