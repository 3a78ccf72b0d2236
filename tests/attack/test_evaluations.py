"""The readers of what is asked, answered, scored and predicted, and of what a study keeps: damaged, read or refused.

A flipped bit of an answer, a score or a record is found, or changes nothing that anybody reads.
"""

import importlib
import json
import random
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelcap.data.inspect.image_names import read_aliases
from babelcap.errors import UserError
from babelcap.evaluation.benchmarks.item_file import read_item_file
from babelcap.evaluation.predictions.folder import ITEM_SCORES, SCORES, Prediction, find_predictions
from babelcap.evaluation.predictions.score import ScoreOptions, read_item_scores, read_scores, score_predictions
from babelcap.evaluation.predictions.show import write_page
from babelcap.evaluation.tables.build import build_tables
from babelcap.evaluation.tables.formats import format_tables
from babelcap.generate.backends import given
from babelcap.generate.finetune.sources import read_source_shard
from babelcap.jobs.receipts import MadeBy, ShardOutput, is_done, write_shard
from babelcap.laws.ahead import read_prediction
from babelcap.laws.judged import judge
from babelcap.records import read_run_records, write_run_records
from babelcap.study.estimate import measured_rates, read_timing, write_timing
from babelcap.study.graph import read_done, write_done
from babelcap.training.record import read_record, read_results, write_record, write_results

NUM, NUM_SLOW = 10, 600  # damaged inputs of each reader
RESULTS = Path(__file__).parents[2] / "results" / "small"
Attack = Callable[[Callable[..., object], int], None]


class Target(NamedTuple):
    """Files to damage, and the reader that has to cope with them."""

    files: list[Path]
    read: Callable[[Path], object]  # with a new folder to write to


@pytest.fixture(scope="module", autouse=True)
def planted() -> Iterator[ModuleType]:
    """The system without a model that the tests of predictions have."""
    folder = str(Path(__file__).parents[1] / "evaluation")
    sys.path.insert(0, folder)
    yield importlib.import_module("planted")
    sys.path.remove(folder)


def put(path: Path, value: Any) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = isinstance(value, list) and path.suffix != ".json"
    path.write_text("".join(json.dumps(row) + "\n" for row in value) if lines else json.dumps(value))
    return path


# Benchmarks of one's own, predictions and their scores


def item_file(folder: Path) -> Target:
    path = sys.modules["planted"].make_benchmark(folder)
    return Target([path], lambda out: read_item_file(path))


def make_prediction(folder: Path) -> Prediction:
    planted = sys.modules["planted"]
    (found,) = planted.predict_planted(planted.read_file(planted.make_benchmark(folder / "data", 3)), folder / "out")
    return found


def prediction_folder(folder: Path) -> Target:
    """As `eval score` reads it."""
    made = make_prediction(folder)

    def read(out: Path) -> None:
        found = find_predictions([folder / "out"])
        for prediction in found:
            prediction.answers()
        write_page(found, out / "page.html", limit=9, image_size_px=32)

    return Target(sorted(path for path in made.folder.iterdir() if path.stat().st_size and path.suffix), read)


def scored_prediction(folder: Path) -> Target:
    """As `eval table` and `eval show` read it."""
    made = make_prediction(folder)
    score_predictions([made], ScoreOptions(), print)

    def read(out: Path) -> None:
        found = find_predictions([folder / "out"])
        for style in ("markdown", "latex", "csv", "html"):
            format_tables(build_tables(found, with_published=True), style)
        write_page(found, out / "page.html", limit=9, image_size_px=32)

    return Target([made.folder / name for name in (SCORES, ITEM_SCORES)], read)


# Laws, records and studies


def predicted_runs(folder: Path) -> Target:
    records = read_run_records(RESULTS / "runs.jsonl")[:6]
    rows = [
        {"run": record.run, "measure": "loss", "target": "UC", "value": 1.5, "low": 1.0, "high": 2.0, "form": "pst",
         "num_points": 9, "law_ps": 1.4, "last_budget": None, "nearest_size": 1.3}
        for record in records
    ]  # fmt: skip
    values = {"time": "2026-01-01T00:00:00+00:00", "records_sha256": "x", "runs": [], "predicted": rows}
    path = put(folder / "prediction.json", values)
    return Target([path], lambda out: judge(read_prediction(path), records))


def study_timing(folder: Path) -> Target:
    entry = {"name": "train/x", "kind": "train", "size": "micro-gemma-s", "units": 9.0, "seconds": 2.0}
    session = {"started": 1, "seconds": 2.0, "workers": 2}
    path = put(folder / "timing.json", {"steps": [entry, entry], "sessions": [session], "wall_seconds": 2.0})

    def read(out: Path) -> None:
        measured_rates(read_timing(folder))
        put(out / path.name, None).write_bytes(path.read_bytes())
        write_timing(out, [entry], session)

    return Target([path], read)


# What a dataset is built of


def given_captions(folder: Path) -> Target:
    rows = [{"image": f"{n}.jpg", "en": "A dog.", "en_captions": ["A dog.", "A hound."]} for n in range(4)]
    path = put(folder / "given.jsonl", rows)

    def read(out: Path) -> None:
        given._load.cache_clear()
        for text in ("en", "en_captions"):
            given._load(path, "image", text)

    return Target([path], read)


def image_aliases(folder: Path) -> Target:
    genome = [{"image_id": n, "coco_id": 285 + n, "flickr_id": None} for n in range(3)]
    photos = [{"id": n, "flickr_url": f"http://x.example/913814760{n}_c6225224b8_z.jpg"} for n in range(3)]
    files = [put(folder / "image_data.json", genome), put(folder / "captions.json", {"images": photos})]
    return Target(files, lambda out: read_aliases(files))


def finetune_sources(folder: Path) -> Target:
    images = [
        {"split": "train", "filepath": "train2014", "filename": f"{n}.jpg", "cocoid": n, "sentences": [{"raw": "A."}]}
        for n in range(3)
    ]
    paragraphs = [{"image_id": n, "paragraph": "A dog. A cat."} for n in range(3)]
    described = [{"split": "train", "example_id": n, "image_file": f"{n}.jpg", "description": "A"} for n in range(3)]
    files = [
        put(folder / "coco/dataset_coco.json", {"images": images}),
        put(folder / "image_paragraphs/paragraphs_v1.json", paragraphs),
        put(folder / "image_paragraphs/train_split.json", [0, 1, 2]),
        put(folder / "docci/docci_descriptions.jsonlines", described),
    ]

    def read(out: Path) -> None:
        for form, counts in (("coco", {"train": 3, "restval": 0}), ("image_paragraphs", {}), ("docci", {"train": 3})):
            source = {"format": form, "num_images": counts}
            settings = {"name": form, "source": source, "folder": str(folder / form), "tars": []}
            read_source_shard({}, settings)

    return Target(files, read)


TARGETS = [
    item_file, prediction_folder, scored_prediction, predicted_runs, study_timing, given_captions, image_aliases,
    finetune_sources,
]  # fmt: skip


@pytest.mark.parametrize("number", [NUM, pytest.param(NUM_SLOW, marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", TARGETS, ids=lambda make: make.__name__)
def test_damaged_files(make: Callable[[Path], Target], number: int, attack: Attack) -> None:
    attack(make, number)


# Flipped bits of results


def scored_values(folder: Path) -> object:
    """What tables and pages are made of: items, answers and scores."""
    (found,) = find_predictions([folder / "out"])
    answers = {key: {**row, "seconds": 0} for key, row in found.answers().items()}
    return [vars(found.description), found.items, answers, read_scores(found), read_item_scores(found)]


def flipped_prediction(folder: Path) -> Target:
    made = make_prediction(folder)
    score_predictions([made], ScoreOptions(), print)
    return Target(sorted(path for path in made.folder.iterdir() if path.suffix), lambda out: scored_values(folder))


def flipped_records(folder: Path) -> Target:
    records = read_run_records(RESULTS / "runs.jsonl")[:2]
    write_run_records(folder / "runs.jsonl", records)
    write_record(folder, records[0])
    write_results(folder / "initial.json", records[0].initial)
    files = sorted(folder.iterdir())

    def read(out: Path) -> object:
        return read_run_records(folder / "runs.jsonl"), read_record(folder), read_results(folder / "initial.json")

    return Target(files, read)


def flipped_stage(folder: Path) -> Target:
    """A shard of the dataset pipeline: what is damaged was not made, and is made again."""
    path, made_by = folder / "s.parquet", MadeBy("stage", "hash", {"i": "0"})
    write_shard(path, ShardOutput(pa.table({"x": list(range(500))}), 500, 500), made_by)

    def read(out: Path) -> object:
        if not is_done(path, "hash", {"i": "0"}):
            raise UserError("made again")
        return pq.read_table(path).to_pylist()

    return Target(sorted(folder.iterdir()), read)


def flipped_step(folder: Path) -> Target:
    """What a study's step has measured."""
    put(folder / "captions.jsonl", [{"key": str(number), "text": "a dog"} for number in range(9)])
    write_results(folder / "results.json", read_run_records(RESULTS / "runs.jsonl")[0].results[:4])
    write_done(folder, {"hash": "h", "kind": "captions", "name": "x", "size": "", "units": 3, "seconds": 1.5})

    def read(out: Path) -> object:
        if (found := read_done(folder, "h")) is None:
            raise UserError("run again")
        return found, (folder / "captions.jsonl").read_bytes(), read_results(folder / "results.json")

    return Target(sorted(folder.iterdir()), read)


@pytest.mark.parametrize("number", [20, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize("make", [flipped_prediction, flipped_records, flipped_stage, flipped_step])
def test_no_flipped_bit_of_a_result_is_used(
    make: Callable[[Path], Target], number: int, tmp_path: Path, flips: Callable[[str, Counter[str]], None]
) -> None:
    target, draw, ended = make(tmp_path), random.Random(number), Counter[str]()
    expected = repr(target.read(tmp_path))  # NaN is not NaN
    for case in range(number):
        path = target.files[case % len(target.files)]
        whole = path.read_bytes()
        place, bit = draw.randrange(len(whole)), draw.randrange(8)
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1 << bit]) + whole[place + 1 :])
        try:
            assert repr(target.read(tmp_path)) == expected, f"bit {bit} of byte {place} of {path.name}: used silently"
            ended["changes nothing"] += 1
        except UserError:
            ended["found"] += 1
        path.write_bytes(whole)
    assert repr(target.read(tmp_path)) == expected
    assert ended["found"] > number / 2
    flips(make.__name__.replace("flipped_", "results: "), ended)
