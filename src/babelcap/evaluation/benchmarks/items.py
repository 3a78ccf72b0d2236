"""One item type for all benchmarks; pictures that are missing are named, as files are by `data.distributed`."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from babelcap.errors import UserError


@dataclass(frozen=True)
class Item:
    """What a system is asked, and what its answer is held against."""

    id: str  # unique in its benchmark
    image: Path
    language: str  # of the answer
    task: str  # caption | translation
    style: str = "short"  # of a caption: short | detailed | more_detailed
    source: str | None = None  # what is to be translated, in English
    references: tuple[str, ...] = ()
    contrast: str | None = None  # an answer that fits the source but not the picture


def require_images(items: Iterable[Item], origin: str) -> None:
    """All pictures are there, or a line that says how many are not, which is the first, and where to get them."""
    images = {item.image for item in items}
    missing = sorted(image for image in images if not image.is_file())
    if missing:
        raise UserError(
            f"{missing[0]}: no such picture ({len(missing)} of {len(images)} missing); get it from {origin}"
        )
