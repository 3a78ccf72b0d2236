"""Results whose every bit matters: a flipped one is found, or changes nothing that anybody reads."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from babelcap.errors import UserError
from babelcap.evaluation.predictions.folder import find_predictions
from babelcap.evaluation.predictions.score import ScoreOptions, read_item_scores, read_scores, score_predictions
from babelcap.jobs.receipts import MadeBy, ShardOutput, is_done, write_shard
from babelcap.records import read_run_records, write_run_records
from babelcap.study.graph import read_done, write_done
from babelcap.training.record import read_record, read_results, write_record, write_results
from torture.readers.results import make_prediction
from torture.readers.target import RESULTS, Target, put_json


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
    put_json(folder / "captions.jsonl", [{"key": str(number), "text": "a dog"} for number in range(9)])
    write_results(folder / "results.json", read_run_records(RESULTS / "runs.jsonl")[0].results[:4])
    write_done(folder, {"hash": "h", "kind": "captions", "name": "x", "size": "", "units": 3, "seconds": 1.5})

    def read(out: Path) -> object:
        if (found := read_done(folder, "h")) is None:
            raise UserError("run again")
        return found, (folder / "captions.jsonl").read_bytes(), read_results(folder / "results.json")

    return Target(sorted(folder.iterdir()), read)
