"""The readers that no other attack has: benchmarks, parallel text, journals, records, what lies beside a model.

Importers and corpora are attacked in `test_corpus`, weights in `test_weights`, checkpoints in `test_training`.
"""

import gzip
import io
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from babelcap.cli.language import write_language
from babelcap.cli.result_lines import ResultLines
from babelcap.coverage import CAPTION
from babelcap.data.inspect.check import check_corpus
from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.store import Corpus, CorpusWriter
from babelcap.evaluation.benchmarks import commute, multi30k
from babelcap.evaluation.benchmarks.coco_karpathy import read_coco
from babelcap.evaluation.benchmarks.docci import read_docci
from babelcap.evaluation.benchmarks.image_paragraphs import read_paragraphs
from babelcap.evaluation.benchmarks.xm3600 import read_xm3600
from babelcap.generate.backends.captioners import Answer
from babelcap.generate.backends.server import Journal, parse_answer
from babelcap.generate.text_sources import TextSource, read_pairs
from babelcap.jobs.receipts import MadeBy, ShardOutput, is_done, read_receipt, write_shard
from babelcap.models.generation.shortlist import read_shortlist, write_shortlist
from babelcap.models.surgery.token_map import TokenMap
from babelcap.records import Annotation, EvalResult, RunRecord, read_run_records
from babelcap.storage import RememberedChecksums, check_manifest, write_json, write_manifest
from babelcap.training.metrics import JsonLines
from babelcap.training.record import read_record, read_results, write_record, write_results

NUM, NUM_SLOW = 12, 600  # damaged inputs of each reader
RESULTS = Path(__file__).parents[2] / "results" / "small"
Attack = Callable[[Callable[..., object], int], None]


class Target(NamedTuple):
    """Files to damage, and the reader that has to cope with them."""

    files: list[Path]
    read: Callable[[Path], object]  # with a new folder to write to


def put(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(content, mtime=0) if path.suffix == ".gz" else content)
    return path


def json_lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


# Corpora


def small_corpus(folder: Path) -> Path:
    with CorpusWriter(folder, provenance={}) as writer:
        for number in range(3):
            stream = io.BytesIO()
            Image.new("RGB", (8, 6), (number * 20, 9, 99)).save(stream, "PNG")
            texts = [Annotation(task=CAPTION, language="en", target=f"dog {number}", score=0.5)]
            writer.add(str(number), stream.getvalue(), "png", "train", texts)
    return folder


def read_all(folder: Path) -> list[object]:
    index = CorpusIndex.open(folder)
    return [(index.key(n), index.read_image(n)) for n in range(index.num_images)] + [
        index.annotation(row) for row in range(index.num_annotations)
    ]


def corpus_manifest(folder: Path) -> Target:
    corpus = small_corpus(folder / "c")
    return Target([corpus / "corpus.json"], lambda out: read_all(corpus))


def corpus_index(folder: Path) -> Target:
    """Whatever was done to the index, what is read is what it was."""
    corpus = small_corpus(folder / "c")
    expected = read_all(corpus)

    def read(out: Path) -> None:
        shutil.copytree(corpus, out)
        assert read_all(out) == expected

    return Target(sorted(path for path in corpus.glob("index/v*/*") if path.stat().st_size), read)


def corpus_check(folder: Path) -> Target:
    corpus = small_corpus(folder / "c")
    files = [*corpus.glob("images/*"), *corpus.glob("annotations/*")]
    return Target(files, lambda out: check_corpus(Corpus.open(corpus), full=True))


# Benchmarks


def coco_karpathy(folder: Path) -> Target:
    rows = [
        {"filepath": "v", "filename": f"{n}.jpg", "cocoid": n, "split": "test", "sentences": [{"raw": " A dog."}] * 2}
        for n in range(3)
    ]
    path = put(folder / "coco/dataset_coco.json", json.dumps({"dataset": "coco", "images": rows}))
    return Target([path], lambda out: read_coco(folder, num_images=3))


def docci(folder: Path) -> Target:
    rows = [{"split": "test", "example_id": f"t{n}", "image_file": f"{n}.jpg", "description": "A."} for n in range(3)]
    path = put(folder / "docci/docci_descriptions.jsonlines", json_lines(rows))
    return Target([path], lambda out: read_docci(folder, num_images=3))


def image_paragraphs(folder: Path) -> Target:
    place = folder / "image_paragraphs"
    rows = [{"url": "u", "image_id": n, "paragraph": f" Of {n}.  More. "} for n in (5, 6, 7)]
    files = [put(place / "paragraphs_v1.json", json.dumps(rows)), put(place / "test_split.json", "[6, 7]")]
    return Target(files, lambda out: read_paragraphs(folder, num_images=2))


def xm3600(folder: Path) -> Target:
    rows = [{"image/key": f"k{n}", "en": {"caption": ["A dog.", "A hound."]}, "mi": {"caption": []}} for n in range(3)]
    path = put(folder / "xm3600/captions.jsonl", json_lines(rows))
    return Target([path], lambda out: read_xm3600(folder, ["en", "mi"], num_images=3))


def multi30k_and_commute(folder: Path) -> Target:
    task, place = folder / "multi30k/data/task1", folder / "commute/en-de"
    files = [put(task / "image_splits/test_2017_mscoco.txt", "".join(f"{n}.jpg#1\n" for n in range(461)))]
    files += [put(task / f"raw/test_2017_mscoco.{code}.gz", "A dog.\n" * 461) for code in ("en", "de")]
    files += [put(place / name, "A mole.\n" * 300) for name in ("src.en", "correct.de", "incorrect.de", "img.order")]

    def read(out: Path) -> None:
        multi30k.read_translation(folder, "test_2017_mscoco", ["de"])
        commute.read_commute(folder, ["de"])

    return Target(files, read)


# Parallel text, receipts and journals of the dataset pipeline


def text_target(files: list[Path], form: str, **options: Any) -> Target:
    source = TextSource(files=tuple(files), format=form, **options)  # type: ignore[arg-type]
    return Target(files, lambda out: list(read_pairs(source, "de")))


def text_moses(folder: Path) -> Target:
    texts = {"t.en": "A dog.\nA cat.\n" * 9, "t.de.gz": "Ein Hund.\nEine Katze.\n" * 9, "t.scores": "1.1\n0.9\n" * 9}
    return text_target([put(folder / name, text) for name, text in texts.items()], "moses", min_score=1.0)


def text_zip(folder: Path) -> Target:
    with zipfile.ZipFile(folder / "t.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("t.en", "A dog.\n" * 90)
        archive.writestr("t.de", "Ein Hund.\n" * 90)
    return text_target([folder / "t.zip"], "moses")


def text_tsv(folder: Path) -> Target:
    files = [put(folder / name, "1.1\tA dog.\tEin Hund.\n" * 9) for name in ("a.tsv", "b.tsv.gz")]
    return text_target(files, "tsv", min_score=1.0)


def text_parquet(folder: Path) -> Target:
    pairs = [{"translation": {"en": f"A dog {n}.", "de": "Ein Hund."}, "score": n / 2} for n in range(4)]
    pq.write_table(pa.Table.from_pylist(pairs), folder / "a.parquet")
    pq.write_table(pa.table({"en": ["A dog."] * 3, "de": ["Ein Hund."] * 3}), folder / "b.parquet")
    return text_target([folder / "a.parquet", folder / "b.parquet"], "parquet", min_score=1.0)


def receipt(folder: Path) -> Target:
    path = folder / "s.parquet"
    table = pa.table({"x": list(range(50))})
    made = ShardOutput(table, 50, 50, beside={"v": torch.ones(3).numpy()})
    write_shard(path, made, MadeBy("stage", "hash", {"i": "0"}))
    memory = RememberedChecksums(put(folder / "sums.json", json.dumps({str(path): {"marks": [1, 2, 3]}})))

    def read(out: Path) -> None:
        read_receipt(path)
        is_done(path, "hash", {"i": "0"}, RememberedChecksums(memory.path))

    return Target(sorted(folder.iterdir()), read)


def server_journal(folder: Path) -> Target:
    journal = Journal(folder / "journal.jsonl")
    for number in range(3):
        journal.add(f"{number}", Answer("A dog.", drop="refused by the server" if number else None))
    lines = [line for line in journal.path.read_text().splitlines() if line]
    put(journal.path, "\n".join(lines))
    return Target([journal.path], lambda out: journal.read())


def server_answers(folder: Path) -> Target:
    choice = {"index": 0, "message": {"role": "assistant", "content": " A dog. "}, "finish_reason": "stop"}
    path = put(folder / "answer.json", json.dumps({"id": "x", "choices": [choice], "usage": {"total_tokens": 9}}))

    def read(out: Path) -> None:
        answer = parse_answer(path.read_bytes())
        if answer is not None:
            Journal(out / "journal.jsonl").add("x", answer)

    return Target([path], read)


# What lies beside a model


def shortlist(folder: Path) -> Target:
    path = write_shortlist(folder, "de", range(2, 40, 2), 50, origin="test")
    (folder / "manifest.json").unlink()
    return Target([path], lambda out: read_shortlist(folder, "de", 50))


def token_map(folder: Path) -> Target:
    TokenMap(torch.tensor([0, 2, 3, 3]), torch.tensor([1, 2, 0]), 4, {2: "x"}, {"bos": "<s>"}).save(folder)

    def read(out: Path) -> None:
        loaded = TokenMap.load(folder)
        loaded.remap(torch.zeros(4, 2))
        loaded.summary()

    return Target([folder / "token_map.safetensors"], read)


def folder_manifest(folder: Path) -> Target:
    for name in ("a", "b"):
        put(folder / name, name * 100)
    write_manifest(folder)
    return Target([folder / "manifest.json", folder / "a"], lambda out: check_manifest(folder, full=True))


def language_rows(folder: Path) -> Target:
    text = '# mine\nmodel = "0.4B"\n[coverage]\nlanguages = ["en", "de"]\nseen = ["caption-en"]\nsplits = {}\n'
    row = {"code": "it", "name": "Italian", "nllb": "ita_Latn", "prefix": "L'immagine mostra", "script": "Latn"}
    files = [put(folder / "run.toml", text)]
    files.append(
        put(folder / "run.json", json.dumps({"coverage": {"languages": ["en", "de"], "seen": [], "splits": {}}}))
    )

    def read(out: Path) -> None:
        for path in files:
            out.mkdir(exist_ok=True)
            write_language(Path(shutil.copy(path, out)), row)

    return Target(files, read)


def result_lines(folder: Path) -> Target:
    with ResultLines("caption", None, {}, json_output=True, total=1) as lines:
        signature = lines.signature
    rows = [{"image": f"{n}.jpg", "language": "de", "caption": "Ein Hund.", "settings": signature} for n in range(4)]
    path = put(folder / "captions.jsonl", json_lines(rows))

    def read(out: Path) -> None:
        out.mkdir()
        with ResultLines("caption", Path(shutil.copy(path, out)), {}, json_output=True, total=1) as lines:
            lines.has({"image": "1.jpg", "language": "de"})

    return Target([path], read)


# What a training leaves


def training_records(folder: Path) -> Target:
    record: RunRecord = read_run_records(RESULTS / "runs.jsonl")[0]
    short: list[EvalResult] = record.results[:3]
    write_record(folder, record.model_copy(update={"results": short}))
    write_results(folder / "initial.json", short)
    put(folder / "metrics.jsonl", json_lines([{"step": step, "loss": 1 / step} for step in range(1, 9)]))
    write_json(folder / "sums.json", {"a": {"marks": [1, 2, 3], "sha256": "x"}})

    def read(out: Path) -> None:
        out.mkdir()
        JsonLines(Path(shutil.copy(folder / "metrics.jsonl", out))).rewind(5)
        RememberedChecksums(folder / "sums.json").sha256(folder / "metrics.jsonl")
        read_record(folder)
        read_results(folder / "initial.json")

    return Target(sorted(folder.iterdir()), read)


TARGETS = [
    corpus_manifest, corpus_index, corpus_check, coco_karpathy, docci, image_paragraphs, xm3600, multi30k_and_commute,
    text_moses, text_zip, text_tsv, text_parquet, receipt, server_journal, server_answers, shortlist, token_map,
    folder_manifest, language_rows, result_lines, training_records,
]  # fmt: skip


@pytest.mark.parametrize("number", [NUM, pytest.param(NUM_SLOW, marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", TARGETS, ids=lambda make: make.__name__)
def test_damaged_files(make: Callable[[Path], Target], number: int, attack: Attack) -> None:
    attack(make, number)
