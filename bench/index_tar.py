"""Indexing a tar against rewriting it: `python bench/index_tar.py [--quick] [--json]`.

Rewriting is what an annotation change costs where images and texts share a tar: read every member, write it to a new
tar with its text. Indexing reads the headers and writes one Parquet file. Ratios are of one run on the same tar.
"""

import argparse
import io
import json
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from babelcap.coverage import Coverage
from babelcap.data.importers.assemble import Assembly, assemble_corpus
from babelcap.data.importers.webdataset import WebdatasetMaker
from babelcap.data.store.tar import scan_tar
from babelcap.storage import atomic_file

GOAL = 0.02
SIZES_PX = (224, 512)


def make_photo(generator: np.random.Generator, size_px: int) -> bytes:
    """A JPEG with the bulk of a photo: large soft shapes, edges and some grain."""
    shapes = Image.fromarray(generator.integers(0, 256, (14, 14, 3), dtype=np.uint8)).resize((size_px, size_px), 3)
    grain = generator.normal(0, 6, (size_px, size_px, 3))
    pixels = np.clip(np.asarray(shapes, dtype=np.float32) + grain, 0, 255).astype(np.uint8)
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "JPEG", quality=85)
    return stream.getvalue()


def add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    info = tarfile.TarInfo(name)
    info.size = len(content)
    tar.addfile(info, io.BytesIO(content))


def make_tar(path: Path, num_images: int, size_px: int) -> None:
    generator = np.random.default_rng(0)
    photos = [make_photo(generator, size_px) for _ in range(50)]
    with tarfile.open(path, "w") as tar:
        for number in range(num_images):
            add(tar, f"{number:09d}.jpg", photos[number % len(photos)])


def rewrite(source: Path, target: Path) -> None:
    """Written whole or not at all and made durable, as the index is."""
    with atomic_file(target) as partial, tarfile.open(source) as old, tarfile.open(partial, "w") as new:
        for info in old:
            file = old.extractfile(info)
            assert file is not None
            add(new, info.name, file.read())
            add(new, info.name.replace(".jpg", ".json"), b'{"caption": "a new text"}')


def index(source: Path, folder: Path, with_checksum: bool = False) -> None:
    maker = WebdatasetMaker(coverage=Coverage())
    options = Assembly({"source": "benchmark"}, images_only=True, with_checksum=with_checksum)
    corpus = assemble_corpus(folder, [source], maker, options)
    assert corpus.num_images() > 0


def best_seconds(function: Callable[[], object], repeats: int) -> tuple[float, float]:
    """Wall clock and processor time, each the best of all repeats: the second tells the work on a busy machine."""
    wall, processor = [], []
    for _ in range(repeats):
        start, start_processor = time.perf_counter(), time.process_time()
        function()
        wall.append(time.perf_counter() - start)
        processor.append(time.process_time() - start_processor)
    return min(wall), min(processor)


def measure(num_images: int, size_px: int, repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "photos.tar"
        make_tar(source, num_images, size_px)

        def index_afresh(with_checksum: bool = False) -> None:
            shutil.rmtree(folder / "corpus", ignore_errors=True)
            index(source, folder / "corpus", with_checksum)

        index_afresh()  # imports and the page cache are warm for all alike
        seconds = {
            "rewrite": best_seconds(lambda: rewrite(source, folder / "new.tar"), 3),
            "copy": best_seconds(lambda: shutil.copyfile(source, folder / "copy.tar"), 3),
            "scan headers": best_seconds(lambda: scan_tar(source), repeats),
            "index into a corpus": best_seconds(index_afresh, repeats),
            "index with --checksum": best_seconds(lambda: index_afresh(with_checksum=True), repeats),
        }
        megabytes = source.stat().st_size / 1e6
    ratios = {
        name: (wall / seconds["rewrite"][0], cpu / seconds["rewrite"][1]) for name, (wall, cpu) in seconds.items()
    }
    return {"size_px": size_px, "megabytes": megabytes, "seconds": seconds, "ratio_to_rewrite": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="1,000 images instead of 10,000")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    num_images, repeats = (1_000, 3) if arguments.quick else (10_000, 7)
    results = [measure(num_images, size_px, repeats) for size_px in SIZES_PX]
    if arguments.json:
        print(json.dumps({"num_images": num_images, "goal": GOAL, "results": results}))
        return
    for result in results:
        print(
            f"{num_images:,} images of {result['size_px']} px, {result['megabytes']:.0f} MB in one tar; best of several"
        )
        print(f"{'':<22}      wall   of rewriting  processor   of rewriting")
        for label, (wall, cpu) in result["seconds"].items():
            of_wall, of_cpu = result["ratio_to_rewrite"][label]
            print(f"{label:<22} {wall * 1000:6.0f} ms {of_wall:11.2%} {cpu * 1000:9.0f} ms {of_cpu:11.2%}")


if __name__ == "__main__":
    main()
