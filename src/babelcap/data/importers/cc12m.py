"""`import cc12m`: finds or downloads the files, then makes the corpus shard by shard."""

from pathlib import Path

from babelcap.data.importers.assemble import assemble_corpus, find_files
from babelcap.data.importers.cc12m_rows import (
    ANNOTATIONS_REPOSITORY,
    IMAGES_REPOSITORY,
    Cc12mMaker,
    match_annotations,
    number_of,
)
from babelcap.data.importers.download import download_dataset
from babelcap.data.store.store import Corpus
from babelcap.errors import UserError


def import_cc12m(
    output: str | Path,
    *,
    images: str | None = None,
    annotations: str | None = None,
    eval_file: Path | None = None,
    download: bool = False,
    shards: str | None = None,
    seed: int = 0,
    with_checksum: bool = False,
    num_workers: int = 1,
) -> Corpus:
    numbers = parse_numbers(shards) if shards is not None else None
    if download:
        images = images or f"{output}-download/images"
        annotations = annotations or f"{output}-download/annotations"
        download_dataset(IMAGES_REPOSITORY, Path(images), _patterns(numbers, ".tar"))
        download_dataset(ANNOTATIONS_REPOSITORY, Path(annotations), [*_patterns(numbers, ".parquet"), "*eval*"])
        eval_file = eval_file or next(iter(sorted(Path(annotations).rglob("*eval*.parquet"))), None)
    if not images or not annotations:
        raise UserError("name the tars with --images and the Parquet files with --annotations, or add --download")
    tars = [tar for tar in find_files([images], ".tar") if numbers is None or number_of(tar) in numbers]
    if not tars:
        raise UserError(f"--shards {shards}: none of these numbers is that of a tar in {images}")
    if eval_file is not None and not eval_file.is_file():
        raise UserError(f"--eval {eval_file}: no such file")
    files = [path for path in find_files([annotations], ".parquet") if not _is_eval(path, eval_file)]
    maker = Cc12mMaker(match_annotations(tars, files), eval_file, seed)
    parameters = {
        "images": images,
        "annotations": annotations,
        "eval": str(eval_file) if eval_file else None,
        "shards": shards,
    }
    provenance = {
        "source": f"{IMAGES_REPOSITORY} with {ANNOTATIONS_REPOSITORY}",
        "command": "babelcap data import cc12m",
        "parameters": parameters,
        "seed": seed,
    }
    return assemble_corpus(
        output, tars, maker, provenance=provenance, with_checksum=with_checksum, num_workers=num_workers
    )


def parse_numbers(text: str) -> set[int]:
    """'0-9,2175' -> the numbers it names."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise UserError(f"--shards '{text}' is not a list of numbers and ranges such as '0-9,2175'")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def _patterns(numbers: set[int] | None, ending: str) -> list[str]:
    return [f"*{ending}"] if numbers is None else [f"*{number:04d}{ending}" for number in sorted(numbers)]


def _is_eval(path: Path, eval_file: Path | None) -> bool:
    return "eval" in path.stem or (eval_file is not None and path.samefile(eval_file))
