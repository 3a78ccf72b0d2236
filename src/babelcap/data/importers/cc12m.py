"""`import cc12m`: finds or downloads the files, then makes the corpus shard by shard."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from babelcap.data.importers.assemble import Assembly, assemble_corpus
from babelcap.data.importers.cc12m_rows import (
    ANNOTATIONS_REPOSITORY,
    IMAGES_REPOSITORY,
    Cc12mMaker,
    match_annotations,
    number_of,
)
from babelcap.data.importers.download import download_dataset
from babelcap.data.importers.files import find_files
from babelcap.data.store.store import Corpus
from babelcap.errors import UserError

MAX_DOWNLOADED = 10_000  # shards; the published set has 2176


@dataclass(frozen=True)
class Cc12mSource:
    """Where the published files lie, or that they are to be fetched."""

    images: str | None = None  # folder or pattern
    annotations: str | None = None
    eval_file: Path | None = None
    download: bool = False
    shards: str | None = None  # only these tars, by number
    seed: int = 0  # of the paragraphs


def import_cc12m(
    output: str | Path, source: Cc12mSource, *, with_checksum: bool = False, num_workers: int = 1
) -> Corpus:
    numbers = parse_numbers(source.shards) if source.shards is not None else None
    source = _fetched(source, output, numbers) if source.download else source
    if not source.images or not source.annotations:
        raise UserError("name the tars with --images and the Parquet files with --annotations, or add --download")
    found = find_files([source.images], ".tar")
    tars = [tar for tar in found if numbers is None or _is_among(number_of(tar), numbers)]
    if not tars:
        raise UserError(f"--shards {source.shards}: none of these numbers is that of a tar in {source.images}")
    eval_file = source.eval_file
    if eval_file is not None and not eval_file.is_file():
        raise UserError(f"--eval {eval_file}: no such file")
    files = [path for path in find_files([source.annotations], ".parquet") if not _is_eval(path, eval_file)]
    parameters = {
        "images": source.images,
        "annotations": source.annotations,
        "eval": str(eval_file) if eval_file else None,
        "shards": source.shards,
    }
    provenance = {
        "source": f"{IMAGES_REPOSITORY} with {ANNOTATIONS_REPOSITORY}",
        "command": "babelcap data import cc12m",
        "parameters": parameters,
        "seed": source.seed,
    }
    maker = Cc12mMaker(match_annotations(tars, files), eval_file, source.seed)
    options = Assembly(provenance, with_checksum=with_checksum, num_workers=num_workers)
    return assemble_corpus(output, tars, maker, options)


def _fetched(source: Cc12mSource, output: str | Path, numbers: tuple[range, ...] | None) -> Cc12mSource:
    images = source.images or f"{output}-download/images"
    annotations = source.annotations or f"{output}-download/annotations"
    download_dataset(IMAGES_REPOSITORY, Path(images), _patterns(numbers, ".tar"))
    download_dataset(ANNOTATIONS_REPOSITORY, Path(annotations), [*_patterns(numbers, ".parquet"), "*eval*"])
    eval_file = source.eval_file or next(iter(sorted(Path(annotations).rglob("*eval*.parquet"))), None)
    return replace(source, images=images, annotations=annotations, eval_file=eval_file)


def parse_numbers(text: str) -> tuple[range, ...]:
    """'0-9,2175' -> the ranges it names, which may be of any length."""
    ranges = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d{1,18})\s*(?:-\s*(\d{1,18})\s*)?", part, re.ASCII)
        if not found:
            raise UserError(f"--shards '{text[:80]}' is not a list of numbers and ranges such as '0-9,2175'")
        ranges.append(range(int(found[1]), int(found[2] or found[1]) + 1))
    return tuple(ranges)


def _is_among(number: int | None, ranges: tuple[range, ...]) -> bool:
    return number is not None and any(number in numbers for numbers in ranges)


def _patterns(ranges: tuple[range, ...] | None, ending: str) -> list[str]:
    if ranges is None:
        return [f"*{ending}"]
    # Not `len`, which a range may be too long for.
    if sum(numbers.stop - numbers.start for numbers in ranges) > MAX_DOWNLOADED:
        raise UserError(f"--shards names more than {MAX_DOWNLOADED} shards to download; leave it out to get them all")
    return [f"*{number:04d}{ending}" for number in sorted({number for numbers in ranges for number in numbers})]


def _is_eval(path: Path, eval_file: Path | None) -> bool:
    return "eval" in path.stem or (eval_file is not None and path.samefile(eval_file))
