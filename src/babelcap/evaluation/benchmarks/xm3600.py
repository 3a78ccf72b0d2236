"""Crossmodal-3600: xm3600/captions.jsonl, xm3600/images/*.jpg: 3,600 images with captions in 36 languages."""

from collections.abc import Sequence
from pathlib import Path

from babelcap.data.distributed.files import check_count, field_error, need_json_lines
from babelcap.errors import UserError
from babelcap.evaluation.benchmarks.items import Item

ORIGIN = "https://google.github.io/crossmodal-3600/web-data/captions.zip"
IMAGES_ORIGIN = "https://open-images-dataset.s3.amazonaws.com/crossmodal-3600/images.tgz"
_CODES = "ar bn cs da de el en es fa fi fil fr he hi hr hu id it ja ko mi nl no pl pt quz ro ru sv sw te th tr uk vi zh"
LANGUAGES = tuple(_CODES.split())
NUM_IMAGES = 3600
RAW, TOKENISED = "caption", "caption/tokenized"


def read_xm3600(
    root: Path, languages: Sequence[str] = LANGUAGES, field: str = RAW, num_images: int = NUM_IMAGES
) -> list[Item]:
    """`field`: raw captions, or the dataset's own tokens. An image without a caption in a language is no item of it."""
    for language in languages:
        if language not in LANGUAGES:
            raise UserError(f"XM3600 has no language '{language}'; it has {', '.join(LANGUAGES)}")
    path = root / "xm3600" / "captions.jsonl"
    rows = need_json_lines(path, ORIGIN)
    check_count(path, "images", len(rows), num_images)
    items, images = [], path.parent / "images"
    try:
        for language in languages:
            for row in rows:
                key, texts = row["image/key"], tuple(row.get(language, {}).get(field, ()))
                if texts:
                    image = images / f"{key}.jpg"
                    items.append(Item(f"{language}/{key}", image, language, "caption", references=texts))
    except (KeyError, TypeError, AttributeError) as error:
        raise field_error(path, error) from None
    return items
