"""A small whole study on a corpus folder, through Slurm and on this machine: the same records."""

import json
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from babelcap.coverage import Coverage
from babelcap.records import read_run_records
from babelcap.storage import write_json
from babelcap.world.corpus import TRUTH, WorldConfig, make_world

pytestmark = pytest.mark.cluster
PATIENCE_SECONDS = 1800
FINAL = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY"}


def foreign_corpus(folder: Path, **settings: Any) -> Path:
    """A world used as if it had come from elsewhere: nobody knows what is in its pictures."""
    counts = {"num_images": 40, "num_eval_images": 6, "num_holdout_images": 0, "num_text_lines": 0}
    make_world(folder, WorldConfig(**(counts | settings)))
    (folder / TRUTH).unlink()
    return folder


def study_values(corpus: Path, full: Path, output: Path) -> dict[str, Any]:
    steps = {"num_pictures": 20, "tower_steps": 1, "caption_steps": 1, "language_steps": 1, "num_decoder_tokens": 1500}
    return {
        "name": "small",
        "output": str(output),
        "source": "corpus",
        "corpus": {"folder": str(corpus)},
        "base": {**steps, "use_shipped": False},
        "grid": [
            {"sizes": ["micro-gemma-s"], "budgets": [2, 4], "seeds": [0]},
            {"kind": "unfit-translation", "sizes": ["micro-gemma-s"], "budgets": [4], "seeds": [0]},
        ],
        "finetune": [{"sizes": ["micro-gemma-s"], "seeds": [0], "num_steps": 2, "corpus": str(full)}],
        "training": {
            "batch_size": 8,
            "schedule": {"kind": "wsd", "warmup_steps": 1},
            "parallel": {"micro_batch_size": 4, "num_threads": 1},
            "log": {"trackers": []},
            "data": {"image_features": "cache", "num_workers": 0},
        },
        "evaluation": {"loss_samples": 4},
        "cluster": {"default": {"partition": "scavenge", "time_hours": 0.5}},
    }


def records_of(study: Path) -> list[dict[str, Any]]:
    """Without what a clock measured; versions are the same machine's."""
    records = read_run_records(study / "runs.jsonl")
    return [json.loads(record.model_dump_json()) | {"seconds": 0} for record in records]  # NaN as text, equal to itself


def test_a_study_through_slurm_gives_the_records_of_one_on_this_machine(cluster, tmp_path: Path) -> None:
    corpus, full = foreign_corpus(tmp_path / "corpus"), tmp_path / "full"
    foreign_corpus(full, seed=5, coverage=Coverage().full(), num_eval_images=0)
    command = [sys.executable, "-m", "babelcap", "study"]
    configs = {}
    for name in ("slurm", "local"):
        configs[name] = str(tmp_path / f"{name}.json")
        write_json(configs[name], study_values(corpus, full, tmp_path / name))
    submit = [*command, "run", configs["slurm"], "--submit", "slurm", "--json"]
    jobs = json.loads(cluster.call(*submit))["jobs"]
    kinds = {name.split(" ")[0] for name in jobs}
    assert kinds == {"base", "prepare", "corpus", "train", "finetune", "loss", "report"}  # no truth, no captions
    assert json.loads(cluster.call(*submit))["jobs"] == {}  # all are queued
    states = {
        step["state"] for step in json.loads(cluster.call(*command, "status", configs["slurm"], "--json"))["steps"]
    }
    assert states <= {"pending", "running", "configuring", "completing", "completed", "done"}
    until = time.monotonic() + PATIENCE_SECONDS
    while (end := cluster.show(jobs["report"])["JobState"]) not in FINAL and time.monotonic() < until:
        time.sleep(1)
    for log in sorted((tmp_path / "slurm" / "slurm").rglob("*_log.err")):
        print(f"--- {log}\n{log.read_text()}")
    assert end == "COMPLETED", cluster.call("squeue", "--all", "--states=all")
    assert (tmp_path / "slurm" / "report" / "index.html").is_file()
    status = json.loads(cluster.call(*command, "status", configs["slurm"], "--json"))
    assert status["num_done"] == status["num_steps"]
    assert json.loads(cluster.call(*submit))["jobs"] == {}  # all are done
    cluster.call(*command, "run", configs["local"])
    assert len(records_of(tmp_path / "slurm")) == 4
    assert records_of(tmp_path / "slurm") == records_of(tmp_path / "local")
