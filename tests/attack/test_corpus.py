"""Attacks on a corpus and on the readers of foreign data: seeded bit flips and mutations, counted.

A flipped bit is found when the corpus is opened, or does not change what is read, or is found by `data check --full`.
A mutated input is read, or refused in one line: never a traceback.
"""

import gzip
import io
import json
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from babelcap.coverage import CAPTION, Coverage
from babelcap.data.importers.assemble import Assembly, assemble_corpus
from babelcap.data.importers.cc12m import Cc12mSource, import_cc12m
from babelcap.data.importers.coco import import_coco
from babelcap.data.importers.datasets import DatasetColumns, import_datasets
from babelcap.data.importers.folder import import_folder
from babelcap.data.importers.multi30k import import_multi30k, load_texts
from babelcap.data.importers.webdataset import WebdatasetMaker, exported_coverage
from babelcap.data.inspect.check import check_corpus
from babelcap.data.store.format import read_annotations
from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.store import Corpus, CorpusWriter
from babelcap.data.store.tar import TarFileWriter
from babelcap.errors import BadSample, UserError
from babelcap.records import Annotation
from babelcap.storage import text_sha256
from babelcap.world.corpus import TEXT_KINDS, WorldConfig, load_truth, make_world, read_free_text

NUM_FLIPS, NUM_FLIPS_SLOW = 20, 200  # of each part of a corpus
NUM_MUTATIONS, NUM_MUTATIONS_SLOW = 12, 600  # of each importer's input
Flips = Callable[[str, dict[str, int]], None]
Wrong = Callable[[Any, random.Random], Any]
Attack = Callable[[Callable[..., object], int], None]
COLUMNS = DatasetColumns(texts=(("en", "text"),))


# ---------------------------------------------------------------------------------------------- bits of a corpus


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("attacked") / "world"
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


@pytest.mark.parametrize("part", PARTS)
def test_no_flipped_bit_is_used_silently(world: Path, part: str) -> None:
    ended = flip_bits(world, part, NUM_FLIPS, seed=1)
    assert ended.total() == NUM_FLIPS
    if part in {"annotations", "truth", "text", "tokenizers"}:
        assert ended == {"found when opened": NUM_FLIPS}
    if part == "tars":
        assert ended["changes nothing"] == 0


@pytest.mark.slow
@pytest.mark.parametrize("number", [NUM_FLIPS_SLOW])
@pytest.mark.parametrize("part", PARTS)
def test_no_flipped_bit_of_hundreds_is_used_silently(world: Path, part: str, number: int, flips: Flips) -> None:
    ended = flip_bits(world, part, number, seed=2)
    flips(f"corpus: {part}", ended)
    assert ended.total() == number


# ---------------------------------------------------------------------------------------------- values of the manifest


def test_no_altered_manifest_passes(world: Path, wrong: Wrong) -> None:
    """Wrong values with the right checksum, as a program with a fault would write them, and with the old one."""
    path = world / "corpus.json"
    whole, generator = path.read_bytes(), random.Random(3)
    values = json.loads(whole)
    stated = values.pop("sha256")
    num_tried, num_silent = 0, 0
    try:
        for _ in range(10 * NUM_MUTATIONS):
            changed = wrong(values, generator)
            if changed == values or not isinstance(changed, dict):
                continue
            num_tried += 1
            path.write_text(json.dumps({**changed, "sha256": stated}))
            with pytest.raises(UserError):
                Corpus.open(world)
            path.write_text(json.dumps({**changed, "sha256": text_sha256(json.loads(json.dumps(changed)))}))
            with suppress(UserError):
                CorpusIndex.open(world)
                num_silent += 1  # a provenance or a checksum that nothing was read by: no result depends on it here
    finally:
        path.write_bytes(whole)
    assert num_tried > 5 * NUM_MUTATIONS
    assert num_silent < num_tried


# ---------------------------------------------------------------------------------------------- inputs of importers


class Target(NamedTuple):
    """Files to damage, and the reader that has to cope with them."""

    files: list[Path]
    read: Callable[[Path], object]  # with a new folder to write to


def photo(number: int) -> bytes:
    stream = io.BytesIO()
    Image.new("RGB", (8, 6), (number * 20, 9, 99)).save(stream, "JPEG")
    return stream.getvalue()


def write_tar(path: Path, files: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    writer = TarFileWriter(path)
    for name, content in files.items():
        writer.add(name, content)
    writer.close()


def webdataset(folder: Path) -> Target:
    files: dict[str, bytes] = {}
    for number in range(4):
        files[f"{number}.jpg"] = photo(number)
        files[f"{number}.json"] = json.dumps({"caption": f"photo {number}", "more": [1, {"a": None}]}).encode()
    write_tar(folder / "t.tar", files)
    maker = WebdatasetMaker(coverage=Coverage(), captions="json:caption")
    return Target([folder / "t.tar"], lambda out: assemble_corpus(out, [folder / "t.tar"], maker, Assembly({})))


def _with_annotations(folder: Path, texts: Path) -> Target:
    write_tar(folder / "t.tar", {f"{number}.jpg": photo(number) for number in range(4)})
    maker = WebdatasetMaker(coverage=Coverage(), annotations=texts)
    return Target([texts], lambda out: assemble_corpus(out, [folder / "t.tar"], maker, Assembly({})))


def annotation_rows() -> list[dict[str, Any]]:
    texts = [
        {"task": "caption", "language": "en", "style": "short", "target": "a photo", "origin": "o", "score": 0.5},
        {"task": "translation", "language": "fr", "source": "a", "target": "un", "origin": "o", "score": 1.0},
    ]
    return [{"key": str(number), "split": "train", "annotations": texts} for number in range(4)]


def annotations_parquet(folder: Path) -> Target:
    pq.write_table(pa.Table.from_pylist(annotation_rows()), folder / "a.parquet")
    return _with_annotations(folder, folder / "a.parquet")


def annotations_lines(folder: Path) -> Target:
    (folder / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in annotation_rows()))
    return _with_annotations(folder, folder / "a.jsonl")


def cc12m(folder: Path) -> Target:
    write_tar(folder / "i" / "cc-0000.tar", {f"{number}.jpg": photo(number) for number in range(4)})
    pair = ["There are some dogs in the garden.", "Es sind Hunde im Garten."]
    keys = [str(number) for number in range(3)]
    columns: dict[str, Any] = {"__key__": keys, "caption_en_de": [[pair]] * 3}
    columns |= {f"translation_en_{code}": [[pair, pair]] * 3 for code in ("de", "fr", "es", "ru", "zh")}
    (folder / "a").mkdir()
    pq.write_table(pa.table(columns), folder / "a" / "t-0000.parquet")
    held_out: dict[str, Any] = {"key": ["3"]}
    for code in ("en", "de", "es", "zh"):
        held_out |= {f"caption_{code}": [["a dog"]], f"caption_{code}_style": ["short"]}
    held_out |= {f"translation_en_{code}": [pair] for code in ("es", "zh")}
    pq.write_table(pa.table(held_out), folder / "a" / "eval.parquet")
    source = Cc12mSource(str(folder / "i"), str(folder / "a"), folder / "a" / "eval.parquet")
    return Target(sorted((folder / "a").iterdir()), lambda out: import_cc12m(out, source))


def multi30k(folder: Path) -> Target:
    write_tar(folder / "i" / "t.tar", {f"{number}.jpg": photo(number) for number in range(3)})
    raw, lists = folder / "t" / "task1" / "raw", folder / "t" / "task1" / "image_splits"
    raw.mkdir(parents=True)
    lists.mkdir()
    (lists / "test_2017_flickr.txt").write_text("0.jpg\n1.jpg\n2.jpg\n")
    for code in ("en", "de", "fr"):
        (raw / f"test_2017_flickr.{code}.gz").write_bytes(gzip.compress(b"one\ntwo\nthree\n", mtime=0))

    def read(out: Path) -> object:
        load_texts.cache_clear()
        return import_multi30k(out, images=str(folder / "i"), texts=folder / "t")

    return Target([*lists.iterdir(), *sorted(raw.iterdir())], read)


def coco(folder: Path) -> Target:
    (folder / "p").mkdir()
    for number in range(3):
        (folder / "p" / f"{number}.jpg").write_bytes(photo(number))
    values = {
        "images": [{"id": number, "file_name": f"{number}.jpg"} for number in range(3)],
        "annotations": [{"image_id": number, "caption": f"photo {number}"} for number in range(3)],
    }
    (folder / "c.json").write_text(json.dumps(values))
    return Target([folder / "c.json"], lambda out: import_coco(out, images=folder / "p", captions=folder / "c.json"))


def folder_csv(folder: Path) -> Target:
    (folder / "p").mkdir()
    for number in range(3):
        (folder / "p" / f"{number}.jpg").write_bytes(photo(number))
    (folder / "t.csv").write_text("image,text,language\n" + "".join(f'{n}.jpg,"photo, {n}",de\n' for n in range(3)))
    (folder / "t.jsonl").write_text("".join(json.dumps({"image": f"{n}.jpg", "text": "x"}) + "\n" for n in range(3)))

    def read(out: Path) -> object:
        import_folder(out / "csv", folder / "p", folder / "t.csv")
        return import_folder(out / "lines", folder / "p", folder / "t.jsonl")

    return Target([folder / "t.csv", folder / "t.jsonl"], read)


def hub_files(folder: Path) -> Target:
    table = pa.table(
        {"image": [{"bytes": photo(n), "path": "x"} for n in range(3)], "text": [["a", "b"], ["c"], ["d"]]}
    )
    pq.write_table(table, folder / "train-0.parquet")
    with pa.OSFile(str(folder / "data.arrow"), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return Target(sorted(folder.iterdir()), lambda out: import_datasets(out, str(folder), COLUMNS))


def corpus_without_checksums(folder: Path) -> Target:
    """Parquet of a corpus, a world's truth and an export's receipt, read where no checksum protects them."""
    texts = [Annotation(task=CAPTION, language="en", target="a dog", score=0.5)] * 2
    with CorpusWriter(folder / "c", provenance={}) as writer:
        for number in range(3):
            writer.add(str(number), photo(number), "jpg", "train", texts)
    make_world(folder / "w", WorldConfig(num_images=2, num_eval_images=0, num_holdout_images=0, num_text_lines=0))
    (folder / "w" / "corpus.json").unlink()
    (folder / "e").mkdir()
    (folder / "e" / "export.json").write_text(json.dumps({"coverage": Coverage().model_dump(mode="json")}))
    annotations = folder / "c" / "annotations" / "00000.parquet"

    def read(out: Path) -> object:
        exported_coverage([str(folder / "e")])
        load_truth(folder / "w")
        return list(read_annotations(annotations))

    return Target([annotations, folder / "w" / "truth.parquet", folder / "e" / "export.json"], read)


TARGETS = [
    webdataset,
    annotations_parquet,
    annotations_lines,
    cc12m,
    multi30k,
    coco,
    folder_csv,
    hub_files,
    corpus_without_checksums,
]


@pytest.mark.parametrize("number", [NUM_MUTATIONS, pytest.param(NUM_MUTATIONS_SLOW, marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", TARGETS, ids=lambda make: make.__name__)
def test_damaged_inputs_are_read_or_refused(make: Callable[[Path], Target], number: int, attack: Attack) -> None:
    attack(make, number)


def test_what_the_attacks_read_is_what_a_world_has(world: Path) -> None:
    """An attack on nothing would find nothing."""
    found = all_that_is_read(world)
    assert all(found.values())
    assert len(found["free text"]) == 6 * len(TEXT_KINDS)
