"""What verifying a corpus costs at the start of a run, in processor time: `python bench/verify.py [--quick] [--json]`.

A corpus of 100,000 images with eleven texts each, as long as captions and translations are. `first` compares every byte
of texts and index with their checksums; `later` finds size, time and inode as they were remembered. The share is of
building the index, which the very first run does. Tars are not read: their checksums are `data check --full`'s.
"""

import argparse
import json
import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from babelcap.coverage import Coverage
from babelcap.data.store.format import ANNOTATION_TYPE, SCHEMA
from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.manifest import Shard, SplitCounts, make_manifest, write_corpus_manifest
from babelcap.data.store.store import Corpus
from babelcap.storage import file_sha256

GOAL_SECONDS = 2.0
IMAGES_PER_TAR = 1000
WORDS = [
    "a",
    "red",
    "dog",
    "runs",
    "under",
    "the",
    "old",
    "tree",
    "beside",
    "two",
    "small",
    "blue",
    "houses",
    "and",
    "one",
    "large",
    "grey",
    "cat",
    "sleeps",
    "near",
    "it",
]


def make_texts(generator: np.random.Generator, number: int) -> list[str]:
    lengths = generator.integers(8, 28, number)
    return [" ".join(generator.choice(WORDS, length)) for length in lengths]


def make_corpus(folder: Path, num_images: int) -> Corpus:
    """Texts alone: opening a corpus does not read its tars."""
    (folder / "annotations").mkdir(parents=True)
    generator, coverage = np.random.default_rng(0), Coverage()
    pairs = [*coverage.seen_pairs, *coverage.seen_pairs[-4:]]
    texts = make_texts(generator, 5000)
    shards = []
    for tar in range(num_images // IMAGES_PER_TAR):
        number = IMAGES_PER_TAR * len(pairs)
        drawn = [texts[place] for place in generator.integers(0, len(texts), 2 * number)]
        fields = [
            pa.array([pair.task for pair in pairs] * IMAGES_PER_TAR),
            pa.array([pair.language for pair in pairs] * IMAGES_PER_TAR),
            pa.nulls(number, pa.string()),
            pa.array(drawn[:number]),
            pa.array(drawn[number:]),
            pa.array(["benchmark"] * number),
            pa.array(generator.random(number)),
        ]
        columns = {
            "key": [f"{tar * IMAGES_PER_TAR + image:09d}" for image in range(IMAGES_PER_TAR)],
            "tar": [f"{tar:05d}.tar"] * IMAGES_PER_TAR,
            "offset": np.arange(IMAGES_PER_TAR) * 65536 + 512,
            "length": np.full(IMAGES_PER_TAR, 60000),
            "split": ["train"] * IMAGES_PER_TAR,
            "annotations": pa.ListArray.from_arrays(
                pa.array(np.arange(0, number + 1, len(pairs), dtype=np.int32)),
                pa.StructArray.from_arrays(fields, fields=list(ANNOTATION_TYPE)),
            ),
        }
        path = folder / "annotations" / f"{tar:05d}.parquet"
        pq.write_table(pa.table(columns, schema=SCHEMA), path, compression="zstd")
        counts = {str(pair): IMAGES_PER_TAR * sum(other == pair for other in pairs) for pair in pairs}
        shard = Shard(
            tar=f"{tar:05d}.tar",
            tar_bytes=0,
            tar_headers_sha256="",
            annotations=path.name,
            annotations_sha256=file_sha256(path),
            splits={"train": SplitCounts(num_images=IMAGES_PER_TAR, pairs=counts)},
        )
        shards.append(shard)
    write_corpus_manifest(folder, make_manifest(shards, coverage, {}))
    return Corpus.open(folder)


def seconds_of(function: Callable[[], object], repeats: int, before: Callable[[], object] = lambda: None) -> float:
    """The best of several, with the files in the page cache: what verifying itself takes."""
    best = float("inf")
    for _ in range(repeats):
        before()
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return best


def measure(num_images: int, repeats: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "corpus"
        make_corpus(folder, num_images)
        build = seconds_of(
            lambda: CorpusIndex.open(folder), 1, lambda: shutil.rmtree(folder / "index", ignore_errors=True)
        )
        memory = folder / "index" / "checksums.json"
        index = CorpusIndex.open(folder).folder
        files = [*(folder / "annotations").iterdir(), *index.iterdir()]
        for path in files:
            os.utime(path, (0, 0))  # what changed within the last second is not remembered
        first = seconds_of(lambda: CorpusIndex.open(folder), repeats, lambda: memory.unlink(missing_ok=True))
        later = seconds_of(lambda: CorpusIndex.open(folder), repeats)
        return {
            "num_images": num_images,
            "num_annotations": Corpus.open(folder).manifest.num_annotations,
            "megabytes": sum(path.stat().st_size for path in files) / 1e6,
            "seconds": {"build the index": build, "first": first, "later": later},
            "goal_seconds": GOAL_SECONDS,
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="10,000 images instead of 100,000")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result = measure(10_000 if arguments.quick else 100_000, 3)
    if arguments.json:
        print(json.dumps(result))
        return
    print(
        f"{result['num_images']:,} images, {result['num_annotations']:,} texts, {result['megabytes']:.0f} MB verified"
    )
    for label, seconds in result["seconds"].items():
        print(f"{label:<16} {seconds:7.3f} s  {seconds / result['seconds']['build the index']:7.1%} of building")


if __name__ == "__main__":
    main()
