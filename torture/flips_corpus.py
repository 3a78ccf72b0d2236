"""Single bits of a corpus turned around: each is found, or built again, or changes nothing that anybody reads."""

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from babelcap.data.inspect.check import check_corpus
from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.store import Corpus
from babelcap.errors import BadSample, UserError
from babelcap.world.corpus import WorldConfig, load_truth, make_world, read_free_text


def make_attacked(folder: Path) -> Path:
    config = WorldConfig(num_images=8, num_eval_images=3, num_holdout_images=2, num_text_lines=120, size_px=16)
    make_world(folder, config)
    CorpusIndex.open(folder)
    return folder


PARTS: dict[str, Callable[[Path], list[Path]]] = {
    "tars": lambda folder: sorted((folder / "images").glob("*.tar")),
    "annotations": lambda folder: sorted((folder / "annotations").glob("*.parquet")),
    "index": lambda folder: sorted(path for path in (folder / "index").glob("v*/*") if path.stat().st_size),
    "manifest": lambda folder: [folder / "corpus.json"],
    "truth": lambda folder: [folder / "truth.parquet"],
    "text": lambda folder: sorted((folder / "text").iterdir()),
    "tokenizers": lambda folder: sorted(path for path in (folder / "tokenizers").rglob("*") if path.is_file()),
}


def all_that_is_read(folder: Path) -> dict[str, Any]:
    """What training, evaluation and base models get from a world."""
    corpus = Corpus.open(folder)
    index = CorpusIndex.open(corpus)
    return {
        "images": [index.read_image(number) for number in range(index.num_images)],
        "keys": [index.key(number) for number in range(index.num_images)],
        "texts": [index.annotation(row) for row in range(index.num_annotations)],
        "rows": {
            (split, pair): index.rows(split, pair).tolist() for split in corpus.splits for pair in index.pairs(split)
        },
        "by shard": list(corpus.rows()),
        "coverage": corpus.coverage,
        "content hash": corpus.content_hash,
        "truth": load_truth(folder),
        "free text": read_free_text(folder, corpus.coverage),
        "tokenizers": {
            name: corpus.file(name).read_bytes() for name in corpus.manifest.files if name.startswith("tokenizers/")
        },
    }


def flip_bits(world: Path, part: str, number: int, seed: int) -> Counter[str]:
    """How each flip ended. Fails at the first that was used silently."""
    generator = random.Random(f"{seed}/{part}")
    expected = all_that_is_read(world)
    assert check_corpus(Corpus.open(world), full=True).problems.counts == {}
    ended: Counter[str] = Counter()
    for _ in range(number):
        files = PARTS[part](world)
        path = generator.choices(files, [file.stat().st_size for file in files])[0]
        whole = path.read_bytes()
        place, bit = generator.randrange(len(whole)), generator.randrange(8)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        where = f"bit {bit} of byte {place} of {path.relative_to(world)}"
        ended[_ending(world, part, expected, where)] += 1
        if path.parent.is_dir() and part != "index":  # a damaged index was built again
            path.write_bytes(whole)
    assert all_that_is_read(world) == expected
    return ended


def _ending(world: Path, part: str, expected: dict[str, Any], where: str) -> str:
    if part == "index":
        found = all_that_is_read(world)
        assert found == expected, f"{where}: used silently"
        return "built again"
    try:
        same = all_that_is_read(world) == expected
    except (UserError, BadSample):
        return "found when opened"
    try:
        noticed = bool(check_corpus(Corpus.open(world), full=True).problems.counts)
    except UserError:
        noticed = True
    assert noticed or same, f"{where}: used silently, and `check --full` says all is well"
    assert noticed or part != "tars", f"{where}: `check --full` compares every byte of a tar"
    return "found by check --full" if noticed else "changes nothing"
