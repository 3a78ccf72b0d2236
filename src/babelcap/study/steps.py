"""What each kind of step does, in a worker process: reads its inputs' folders, writes its own, then says it is done.

A step that was stopped starts anew in an empty folder; a training goes on from its last checkpoint.
"""

import hashlib
import json
import math
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from babelcap.bases.config import BaseConfig
from babelcap.bases.recipe import DECODER_TOKENIZER, Base, build_part
from babelcap.config import build_config
from babelcap.coverage import Coverage, Style
from babelcap.data.feed.batches import BatchConfig
from babelcap.data.store.index import CorpusIndex
from babelcap.evaluation.captions import CaptionEvaluation, Generated, corpus_shortlists, evaluate_captions
from babelcap.evaluation.loss import LossEvaluation, evaluate_loss
from babelcap.measures import EVAL
from babelcap.models.checkpoints.loading import load_model
from babelcap.models.checkpoints.processor import CaptionProcessor, load_processor
from babelcap.models.network.captioner import Captioner
from babelcap.models.surgery.prepare import prepare
from babelcap.records import EvalResult
from babelcap.storage import locked, read_json, write_json, write_text
from babelcap.study.graph import DONE
from babelcap.training.config import OptimiserConfig, TrainConfig
from babelcap.training.features import FeatureStore, open_features
from babelcap.training.parallel import World
from babelcap.training.run import train
from babelcap.world.corpus import WorldConfig, make_world

RESULTS, CAPTIONS = "results.json", "captions.jsonl"
MICRO_BATCH_SIZE = 16  # samples grouped by length: a fifth less padding than whole batches of 32
Job = dict[str, Any]


def run_job(job: Job) -> dict[str, Any]:
    """Runs a step to its end and marks it done. What a step leaves behind is the same however often it was stopped."""
    torch.set_num_threads(1)
    folder = Path(job["folder"])
    with locked(Path(job["study"]) / "locks" / f"{folder.parent.name}-{folder.name}"):
        marker = folder / DONE
        if marker.is_file():
            found: dict[str, Any] = read_json(marker)
            return found
        if job["kind"] not in RESUMABLE:
            shutil.rmtree(folder, ignore_errors=True)
        started, busy = time.perf_counter(), time.process_time()
        torch.manual_seed(0)  # nothing may depend on it; but if it did, it would not depend on the worker's past
        STEPS[job["kind"]](job, folder)
        values = {name: job[name] for name in ("hash", "kind", "name", "size", "units")}
        # A training that was stopped took longer than what is measured here; its records know.
        values["seconds"] = round(time.perf_counter() - started, 3)
        values["cpu_seconds"] = round(time.process_time() - busy, 3)  # less, where others used the core
        write_json(marker, values)
        return values


def _make_world(job: Job, folder: Path) -> None:
    make_world(folder, build_config(WorldConfig, job["settings"] | {"num_workers": 1}))
    CorpusIndex.open(folder)


def _make_base(job: Job, folder: Path) -> None:
    config = build_config(BaseConfig, job["resources"]["config"])
    recipe = job["settings"]
    base = Base(recipe["kind"], recipe["letter"], recipe["variant"], recipe["recipe"])
    build_part(folder.parent, config, base)


def _prepare(job: Job, folder: Path) -> None:
    """The surgery, exactly as it is done with published models."""
    inputs, settings = job["inputs"], job["settings"]
    gemma = inputs.get("gemma") or Path(inputs["florence"]) / DECODER_TOKENIZER
    prepare(settings["size"], inputs["florence"], gemma, folder, seed=settings["seed"], overwrite=True)


def _train(job: Job, folder: Path) -> None:
    """Also fine-tuning, whose model is a leg of another training."""
    settings, corpus = job["settings"], Path(job["inputs"]["corpus"])
    model = Path(job["inputs"]["model"])
    if "model" in settings:
        model = model / settings["model"] / "model"
    train(train_config(job, model, corpus, folder))


def train_config(job: Job, model: Path, corpus: Path, folder: Path) -> TrainConfig:
    settings = job["settings"]
    batch = ("image_size_px", "max_prompt_tokens", "max_target_tokens", "prefix_probability", "source_mask_probability")
    values = {
        "name": job["slug"],
        "model": str(model),
        "output": str(folder),
        **{name: settings[name] for name in ("policy", "budgets", "batch_size", "dropout", "seed", "coverage")},
        "data": {
            "corpus": str(corpus),
            "mixture": {"weights": settings["weights"]},
            "image_features": "cache",
            "num_workers": 0,
            **{name: settings[name] for name in batch},
        },
        "optimiser": {name: value for name, value in settings.items() if name in OptimiserConfig.model_fields},
        "schedule": settings["schedule"],
        "parallel": {
            "micro_batch_size": math.gcd(settings["batch_size"], MICRO_BATCH_SIZE),
            "num_threads": 1,
            "precision": "fp32",
        },
        "checkpoint": {"every_steps": job["resources"].get("checkpoint_every_steps", 500), "keep": 1},
        "log": {"trackers": [], "every_steps": 100},
    }
    return build_config(TrainConfig, values, job["name"])


def _open(job: Job) -> tuple[Captioner, CaptionProcessor, CorpusIndex, FeatureStore]:
    """The model to be measured, and the main world to measure it on."""
    folder = Path(job["inputs"]["model"]) / job["settings"]["model"]
    model, processor = load_model(folder, dtype=torch.float32), load_processor(folder)
    index = CorpusIndex.open(Path(job["inputs"]["world"]))
    config = BatchConfig(image_size_px=job["settings"]["image_size_px"])
    cpu = torch.device("cpu")
    return model, processor, index, open_features(model, index, config, World(0, 1, cpu), cpu)


def _measure_loss(job: Job, folder: Path) -> None:
    settings = job["settings"]
    model, processor, index, features = _open(job)
    names = ("image_size_px", "max_prompt_tokens", "max_target_tokens")
    options = LossEvaluation(
        BatchConfig(**{name: settings[name] for name in names}),
        split=EVAL,
        pairs=index.corpus.coverage.evaluated_pairs,
        batch_size=job["resources"]["batch_size"],
        limit=settings["loss_samples"],
        image_features=features,
    )
    results = evaluate_loss(model, processor, index, index.corpus.coverage, options)
    _write_results(folder, results)


def _measure_captions(job: Job, folder: Path) -> None:
    settings = job["settings"]
    model, processor, index, features = _open(job)
    results: list[EvalResult] = []
    generated: list[tuple[str, Generated]] = []
    for split, num_pictures in settings["num_pictures"].items():
        options = CaptionEvaluation(
            split=split,
            variants=tuple(settings["variants"]),
            num_pictures=num_pictures,
            style=Style(settings["style"]),
            num_beams=settings["num_beams"],
            max_new_tokens=settings["max_new_tokens"],
            batch_size=job["resources"]["batch_size"],
            shortlists=_shortlists(index, processor),
            image_features=features,
        )
        found, captions = evaluate_captions(model, processor, index, index.corpus.coverage, options)
        results += found
        generated += [(split, caption) for caption in captions]
    lines = [_caption_line(split, caption) for split, caption in generated]
    _write_results(folder, results)
    write_text(folder / CAPTIONS, "".join(lines))


def _caption_line(split: str, caption: Generated) -> str:
    return json.dumps(caption.values() | {"split": split}, ensure_ascii=False) + "\n"


def _shortlists(index: CorpusIndex, processor: CaptionProcessor) -> dict[str, list[int]]:
    """Of the main world's training text, kept beside it for each decoder tokenizer."""
    folder = index.corpus.folder / "shortlists"
    words = processor.decoder_tokenizer.backend_tokenizer.to_str()
    path = folder / f"{_digest(words)}.json"
    with locked(folder / f"{path.stem}.lock"):
        if not path.is_file():
            coverage: Coverage = index.corpus.coverage
            write_json(path, corpus_shortlists(index.corpus, coverage, processor))
        found: dict[str, list[int]] = read_json(path)
        return found


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _write_results(folder: Path, results: list[EvalResult]) -> None:
    write_json(folder / RESULTS, [json.loads(result.model_dump_json()) for result in results])  # NaN as text


def read_results(folder: Path) -> list[EvalResult]:
    return [EvalResult.model_validate(values) for values in read_json(folder / RESULTS)]


STEPS: dict[str, Callable[[Job, Path], None]] = {
    "world": _make_world,
    "base": _make_base,
    "prepare": _prepare,
    "train": _train,
    "finetune": _train,
    "loss": _measure_loss,
    "captions": _measure_captions,
}
RESUMABLE = {"base", "train", "finetune"}  # what they have is whole, or known to be partial
