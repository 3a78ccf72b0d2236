"""`babelcap train` on two ranks of Slurm: preempted in the middle, it ends with the weights of an undisturbed run."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoTokenizer

from babelcap.models import Captioner, CaptionProcessor
from babelcap.models.sizes import size_config
from babelcap.world.corpus import WorldConfig, make_world

pytestmark = pytest.mark.cluster
NUM_STEPS = 150


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


def write_config(base: Path, output: Path) -> Path:
    path = output.with_suffix(".json")
    values = {
        "model": str(base / "model"),
        "output": str(output),
        "budgets": [NUM_STEPS],
        "batch_size": 16,
        "data": {"corpus": str(base / "world"), "image_size_px": 64, "num_workers": 1},
        "parallel": {"micro_batch_size": 4, "num_threads": 1},
        "checkpoint": {"every_steps": 1000},
        "log": {"trackers": []},
    }
    path.write_text(json.dumps(values))
    return path


@pytest.mark.parametrize("interruption", ["preempt", "warn"])
def test_interrupted_training_ends_the_same(cluster, base: Path, tmp_path: Path, interruption: str) -> None:  # type: ignore[no-untyped-def]
    ends = {}
    for name in ("whole", interruption):
        output = tmp_path / name
        command = [sys.executable, "-m", "babelcap", "train", str(write_config(base, output)), "--no-evaluate"]
        interrupt: Callable[[str], None] | None = getattr(cluster, name, None)
        ends[name] = cluster.run(
            command, output / "slurm", interrupt=interrupt, has_begun=lambda output=output: num_lines(output) > 3
        )
        assert ends[name]["JobState"] == "COMPLETED"
    assert ends["whole"]["Restarts"] == "0"
    assert int(ends[interruption]["Restarts"]) >= 1
    weights = [
        load_file(tmp_path / name / f"budget-{NUM_STEPS:06d}" / "model" / "model.safetensors")
        for name in ("whole", interruption)
    ]
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    metrics = [
        (tmp_path / name / f"budget-{NUM_STEPS:06d}" / "metrics.jsonl").read_text() for name in ("whole", interruption)
    ]
    assert metrics[0] == metrics[1]


def num_lines(output: Path) -> int:
    path = output / f"budget-{NUM_STEPS:06d}" / "metrics.jsonl"
    return path.read_text().count("\n") if path.exists() else 0
