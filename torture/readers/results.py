"""Readers of what is asked, answered, scored and predicted, and of what a study keeps."""

import shutil
from pathlib import Path

import planted
from babelcap.evaluation.benchmarks.item_file import read_item_file
from babelcap.evaluation.photographs import KeptCaptions
from babelcap.evaluation.predictions.folder import ITEM_SCORES, SCORES, Prediction, find_predictions
from babelcap.evaluation.predictions.score import ScoreOptions, score_predictions
from babelcap.evaluation.predictions.show import write_page
from babelcap.evaluation.tables.build import build_tables
from babelcap.evaluation.tables.formats import format_tables
from babelcap.laws.ahead import read_prediction
from babelcap.laws.judged import judge
from babelcap.records import read_run_records, write_run_records
from babelcap.storage import read_json_object
from babelcap.study.estimate import measured_rates, read_timing, write_timing
from babelcap.study.kept import KEPT, read_kept_captions, rejudge, write_kept_captions
from torture.readers.target import RESULTS, Target, put_json

KEPT_RUN = "micro-gemma-xs.balanced.s0.b000100"


def item_file(folder: Path) -> Target:
    path = planted.make_benchmark(folder)
    return Target([path], lambda out: read_item_file(path))


def make_prediction(folder: Path) -> Prediction:
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
    path = put_json(folder / "prediction.json", values)
    return Target([path], lambda out: judge(read_prediction(path), records))


def study_timing(folder: Path) -> Target:
    entry = {"name": "train/x", "kind": "train", "size": "micro-gemma-s", "units": 9.0, "seconds": 2.0}
    session = {"started": 1, "seconds": 2.0, "workers": 2}
    path = put_json(folder / "timing.json", {"steps": [entry, entry], "sessions": [session], "wall_seconds": 2.0})

    def read(out: Path) -> None:
        measured_rates(read_timing(folder))
        put_json(out / path.name, None).write_bytes(path.read_bytes())
        write_timing(out, [entry], session)

    return Target([path], read)


def kept_captions(folder: Path) -> Target:
    """What `eval photos` has asked for before."""
    asked = {"model": "m", "prefix": "own"}
    path = folder / "captions.jsonl"
    KeptCaptions(path, asked).add({"fr": {"1": "un chien", "2": "un chat"}, "zh": {"1": "一只狗"}})
    return Target([path], lambda out: KeptCaptions(path, asked))


def kept_study(folder: Path) -> Target:
    """As `study rejudge` reads it: settings, captions, records, gallery."""
    study, kept = RESULTS, folder / "kept"
    shutil.copytree(study, kept, ignore=shutil.ignore_patterns("*.csv", "laws.json", "timing.json", "prediction.json"))
    (record,) = [found for found in read_run_records(study / "runs.jsonl") if found.run == KEPT_RUN]
    write_run_records(kept / "runs.jsonl", [record])
    lines = [
        line for line in read_kept_captions(study / KEPT) if line.run == KEPT_RUN and line.language in ("es", "zh")
    ]
    few = [line.model_copy(update={"captions": dict(list(line.captions.items())[:2])}) for line in lines]
    write_kept_captions(kept / KEPT, few)
    gallery = read_json_object(study / "gallery.json")
    put_json(kept / "gallery.json", {"pictures": gallery["pictures"][:1]})

    def read(out: Path) -> None:
        shutil.copytree(kept, out / "kept")
        rejudge(out / "kept")

    return Target(sorted(kept.iterdir()), read)
