"""Readers of what lies beside a model, in a user's folder and in that of a training."""

import json
import shutil
from pathlib import Path

import torch

from babelcap.cli.language import write_language
from babelcap.cli.result_lines import ResultLines
from babelcap.models.generation.guidance import read_mean_image, write_mean_image
from babelcap.models.generation.shortlist import read_shortlist, write_shortlist
from babelcap.models.surgery.token_map import TokenMap
from babelcap.records import EvalResult, RunRecord, read_run_records
from babelcap.storage import RememberedChecksums, check_manifest, write_json, write_manifest
from babelcap.training.metrics import JsonLines
from babelcap.training.record import read_record, read_results, write_record, write_results
from torture.readers.target import RESULTS, Target, json_lines, put


def shortlist(folder: Path) -> Target:
    path = write_shortlist(folder, "de", range(2, 40, 2), 50, origin="test")
    (folder / "manifest.json").unlink()
    return Target([path], lambda out: read_shortlist(folder, "de", 50))


def mean_image(folder: Path) -> Target:
    path = write_mean_image(folder, torch.arange(12.0).view(3, 4))
    (folder / "manifest.json").unlink()
    return Target([path], lambda out: read_mean_image(folder))


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
