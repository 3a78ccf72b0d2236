"""Readers of foreign data: webdatasets, annotations, CC12M, Multi30K, COCO, folders, files of the hub."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from babelcap.coverage import CAPTION, Coverage
from babelcap.data.importers.assemble import Assembly, assemble_corpus
from babelcap.data.importers.cc12m import Cc12mSource, import_cc12m
from babelcap.data.importers.coco import import_coco
from babelcap.data.importers.datasets import DatasetColumns, import_datasets
from babelcap.data.importers.folder import import_folder
from babelcap.data.importers.multi30k import Multi30kMaker, import_multi30k, load_texts
from babelcap.data.importers.webdataset import WebdatasetMaker, exported_coverage
from babelcap.data.store.format import read_annotations
from babelcap.data.store.store import CorpusWriter
from babelcap.data.store.tar import TarFileWriter
from babelcap.records import Annotation
from babelcap.world.corpus import WorldConfig, load_truth, make_world
from torture.readers.target import Target, photo

COLUMNS = DatasetColumns(texts=(("en", "text"),))


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
        return import_multi30k(out, Multi30kMaker(folder / "t"), images=str(folder / "i"))

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
