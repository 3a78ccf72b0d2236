"""Readers of the dataset pipeline: parallel text, receipts, a server's answers and journal, given captions, sources."""

import json
import zipfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import torch

from babelcap.data.inspect.image_names import read_aliases
from babelcap.generate.backends import given
from babelcap.generate.backends.captioners import Answer
from babelcap.generate.backends.server import Journal, parse_answer
from babelcap.generate.finetune.sources import read_source_shard
from babelcap.generate.text_sources import TextSource, read_pairs
from babelcap.jobs.receipts import MadeBy, ShardOutput, is_done, read_receipt, write_shard
from babelcap.storage import RememberedChecksums
from torture.readers.target import Target, put, put_json


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


def given_captions(folder: Path) -> Target:
    rows = [{"image": f"{n}.jpg", "en": "A dog.", "en_captions": ["A dog.", "A hound."]} for n in range(4)]
    path = put_json(folder / "given.jsonl", rows)

    def read(out: Path) -> None:
        given._load.cache_clear()
        for text in ("en", "en_captions"):
            given._load(path, "image", text)

    return Target([path], read)


def image_aliases(folder: Path) -> Target:
    genome = [{"image_id": n, "coco_id": 285 + n, "flickr_id": None} for n in range(3)]
    photos = [{"id": n, "flickr_url": f"http://x.example/913814760{n}_c6225224b8_z.jpg"} for n in range(3)]
    files = [put_json(folder / "image_data.json", genome), put_json(folder / "captions.json", {"images": photos})]
    return Target(files, lambda out: read_aliases(files))


def finetune_sources(folder: Path) -> Target:
    images = [
        {"split": "train", "filepath": "train2014", "filename": f"{n}.jpg", "cocoid": n, "sentences": [{"raw": "A."}]}
        for n in range(3)
    ]
    paragraphs = [{"image_id": n, "paragraph": "A dog. A cat."} for n in range(3)]
    described = [{"split": "train", "example_id": n, "image_file": f"{n}.jpg", "description": "A"} for n in range(3)]
    files = [
        put_json(folder / "coco/dataset_coco.json", {"images": images}),
        put_json(folder / "image_paragraphs/paragraphs_v1.json", paragraphs),
        put_json(folder / "image_paragraphs/train_split.json", [0, 1, 2]),
        put_json(folder / "docci/docci_descriptions.jsonlines", described),
    ]

    def read(out: Path) -> None:
        for form, counts in (("coco", {"train": 3, "restval": 0}), ("image_paragraphs", {}), ("docci", {"train": 3})):
            source = {"format": form, "num_images": counts}
            settings = {"name": form, "source": source, "folder": str(folder / form), "tars": []}
            read_source_shard({}, settings)

    return Target(files, read)
