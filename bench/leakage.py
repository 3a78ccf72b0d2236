"""What fingerprints withstand, and what finding near ones costs: `python bench/leakage.py [--quick] [--json]`.

On the photographs of Multi30K and COCO that lie beside the repository: pairs of different photographs within the
distance (false ones, and copies that are in the data), and of photographs that were changed, how many are known again.
The time is the processor's, of near pairs against comparing all with all, in one run on random prints; its limit is
sorting all prints once, without which not even equal ones are found.
"""

import argparse
import io
import json
import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from PIL import Image

from babelcap.data.inspect.fingerprints import distances, fingerprint
from babelcap.data.inspect.leakage import MAX_DISTANCE
from babelcap.data.inspect.near_prints import MAX_DISTANCE as MAX_EXACT
from babelcap.data.inspect.near_prints import near_pairs

SHARED = Path(__file__).parent.parent.parent / "shared" / "data"
EVERY = 10  # photographs of which one is changed
Change = Callable[[Image.Image], Image.Image]


def photographs() -> Iterator[tuple[str, Image.Image]]:
    for path in sorted((SHARED / "multi30k/images").glob("*.tar")):
        with tarfile.open(path) as tar:
            for member in tar:
                file = tar.extractfile(member)
                assert file is not None
                yield member.name, Image.open(io.BytesIO(file.read())).convert("RGB")
    for path in sorted((SHARED / "coco/val2017").glob("*.jpg")):
        yield path.name, Image.open(path).convert("RGB")


def saved(image: Image.Image, kind: str, quality: int) -> Image.Image:
    stream = io.BytesIO()
    image.save(stream, kind, quality=quality)
    return Image.open(stream)


def scaled(image: Image.Image, factor: float) -> Image.Image:
    return image.resize((round(image.width * factor), round(image.height * factor)), Image.Resampling.BICUBIC)


def cropped(image: Image.Image, share: float) -> Image.Image:
    """So much of the width and of the height cut from each side."""
    x, y = share * image.width, share * image.height
    return image.crop((round(x), round(y), round(image.width - x), round(image.height - y)))


def bordered(image: Image.Image, share: float) -> Image.Image:
    x, y = round(share * image.width), round(share * image.height)
    canvas = Image.new("RGB", (image.width + 2 * x, image.height + 2 * y), "white")
    canvas.paste(image, (x, y))
    return canvas


CHANGES: dict[str, Change] = {
    "JPEG, quality 50": lambda image: saved(image, "JPEG", 50),
    "JPEG, quality 20": lambda image: saved(image, "JPEG", 20),
    "WebP, quality 50": lambda image: saved(image, "WEBP", 50),
    "half the size, JPEG 75": lambda image: saved(scaled(image, 0.5), "JPEG", 75),
    "twice the size": lambda image: scaled(image, 2),
    "a square of 224 px": lambda image: image.resize((224, 224)),
    "without colour": lambda image: image.convert("L"),
    "30 % brighter": lambda image: image.point(lambda value: min(255, int(value * 1.3))),
    "1 % cut from each side": lambda image: cropped(image, 0.01),
    "2 % cut from each side": lambda image: cropped(image, 0.02),
    "3 % cut from each side": lambda image: cropped(image, 0.03),
    "5 % cut from each side": lambda image: cropped(image, 0.05),
    "10 % cut from each side": lambda image: cropped(image, 0.1),
    "a border of 5 %": lambda image: bordered(image, 0.05),
    "mirrored": lambda image: image.transpose(Image.Transpose.FLIP_LEFT_RIGHT),
}


def measure_photographs(quick: bool) -> dict[str, object]:
    names, prints, known = [], [], {name: [] for name in CHANGES}
    for number, (name, image) in enumerate(photographs()):
        names.append(name)
        prints.append(fingerprint(image))
        if number % (EVERY * (10 if quick else 1)) == 0:
            for change, make in CHANGES.items():
                known[change].append(int(distances(prints[-1], fingerprint(make(image)))))
    together = np.stack(prints)
    bits = np.concatenate([distances(together[row], together[row + 1 :]) for row in range(len(together) - 1)])
    near = near_pairs(together, together, MAX_EXACT)
    copies = [(names[left], names[right], int(distance))
              for left, right, distance in zip(*near, strict=True) if left < right]  # fmt: skip
    return {
        "num_photographs": len(names),
        "num_pairs": len(bits),
        "pairs_within": {limit: int((bits <= limit).sum()) for limit in range(MAX_DISTANCE, 41, 4)},
        "copies": copies,
        "num_changed": len(next(iter(known.values()))),
        "known_again": {change: float(np.mean(np.array(some) <= MAX_DISTANCE)) for change, some in known.items()},
    }


def measure_time(num_left: int, num_right: int) -> dict[str, float]:
    generator = np.random.default_rng(0)
    left = generator.integers(0, 2**64, (num_left, 2), dtype=np.uint64)
    right = generator.integers(0, 2**64, (num_right, 2), dtype=np.uint64)
    began = time.process_time()
    near_pairs(left, right, MAX_DISTANCE)
    near = time.process_time() - began
    began = time.process_time()
    for row in left:
        (distances(row, right) <= MAX_DISTANCE).any()
    compared = time.process_time() - began
    began = time.process_time()
    np.sort(np.concatenate([left, right]).view("u8,u8"), axis=0)
    return {"near_seconds": near, "all_seconds": compared, "sort_seconds": time.process_time() - began}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer changed photographs, fewer prints")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    sizes = (10_000, 20_000) if options.quick else (50_000, 20_000)
    found: dict[str, object] = {"prints": sizes, **measure_time(*sizes)}
    if SHARED.is_dir():
        found |= measure_photographs(options.quick)
    else:
        print("skipped: the shared folder with real photographs is not beside the repository")
    if options.json:
        print(json.dumps(found, indent=2))
        return
    for name, value in found.items():
        if isinstance(value, dict):
            print(f"{name}:")
            for inner, number in value.items():
                print(f"  {inner}: {number:.3f}" if isinstance(number, float) else f"  {inner}: {number:,}")
        else:
            print(f"{name}: {value}")


if __name__ == "__main__":
    main()
