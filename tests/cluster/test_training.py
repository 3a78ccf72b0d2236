"""`babelcap train --submit slurm` on two ranks: interrupted in the middle, it ends with the weights of a whole run."""

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from babelcap.models import Captioner, CaptionProcessor
from babelcap.models.sizing.sizes import size_config
from babelcap.world.corpus import WorldConfig, make_world

pytestmark = pytest.mark.cluster
NUM_STEPS = 24


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("base")
    make_world(
        folder / "world", WorldConfig(num_images=60, num_eval_images=4, num_holdout_images=4, num_text_lines=200)
    )
    tokenizers = [
        AutoTokenizer.from_pretrained(str(folder / "world" / "tokenizers" / side)) for side in ("encoder", "decoder")
    ]
    torch.manual_seed(0)
    vocabularies = dict(zip(("encoder_vocab_size", "decoder_vocab_size"), map(len, tokenizers), strict=True))
    Captioner(size_config("micro-gemma-s", **vocabularies)).save_pretrained(folder / "model")
    CaptionProcessor(*tokenizers, image_size_px=64).save_pretrained(folder / "model")
    return folder


def train(cluster, base: Path, output: Path, interrupt: Callable[[str], None] | None = None) -> dict[str, str]:
    """Submits the training as a job, interrupted once it has made a few steps; returns what Slurm says of it."""
    values = {
        "model": str(base / "model"),
        "output": str(output),
        "budgets": [NUM_STEPS],
        "batch_size": 16,
        "data": {"corpus": str(base / "world"), "image_size_px": 64, "num_workers": 1},
        "parallel": {"micro_batch_size": 4, "num_threads": 1},
        "checkpoint": {"every_steps": 1000},
        "log": {"trackers": []},
        "cluster": {"partition": "scavenge", "tasks_per_node": 2, "time_hours": 0.25},
    }
    config = output.with_suffix(".json")
    config.write_text(json.dumps(values))
    options = ["--no-evaluate", "--submit", "slurm", "--json"]
    job = json.loads(cluster.call(sys.executable, "-m", "babelcap", "train", str(config), *options))["job"]
    return cluster.follow(job, output / "slurm", interrupt, has_begun=lambda: len(metrics_of(output)) >= 3)


def metrics_of(output: Path) -> list[str]:
    path = output / f"budget-{NUM_STEPS:06d}" / "metrics.jsonl"
    return path.read_text().splitlines() if path.exists() else []


def weights_of(output: Path) -> dict[str, torch.Tensor]:
    return load_file(output / f"budget-{NUM_STEPS:06d}" / "model" / "model.safetensors")


@pytest.fixture(scope="module")
def whole(cluster, base: Path) -> Path:
    """The run that nothing interrupts."""
    end = train(cluster, base, base / "whole")
    assert (end["JobState"], end["Restarts"]) == ("COMPLETED", "0")
    return base / "whole"


@pytest.mark.parametrize("interruption", ["preempt", "warn"])
def test_interrupted_training_ends_the_same(
    cluster, base: Path, whole: Path, tmp_path: Path, interruption: str
) -> None:
    output = tmp_path / interruption
    end = train(cluster, base, output, getattr(cluster, interruption))
    assert (end["JobState"], end["Restarts"]) == ("COMPLETED", "1")
    log = (output / "slurm" / f"{end['JobId']}_0_log.err").read_text()
    step = int(re.search(r"saved step (\d+)", log)[1])
    assert 3 <= step < NUM_STEPS
    assert metrics_of(output) == metrics_of(whole)
    assert len(metrics_of(whole)) == NUM_STEPS
    weights, expected = weights_of(output), weights_of(whole)
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], expected[name]) for name in expected)
