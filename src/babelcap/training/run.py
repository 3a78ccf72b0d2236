"""A run: the checks before any compute is spent, then its legs one after the other, each ending in a RunRecord.

    <output>/config.json  run.json           what is run, with which versions, on what
    <output>/<leg>/metrics.jsonl ...         one leg: checkpoints/, tensorboard/, model/, eval.json, record.json

The same command goes on where a run stopped; a leg that has its record is done.
"""

import hashlib
import importlib.metadata
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from babelcap.config import content_hash, write_config
from babelcap.data.feed.exchange import ExchangedImages
from babelcap.data.feed.loader import LoaderConfig, TrainingLoader, check_division
from babelcap.data.feed.mixture import Mixture
from babelcap.data.feed.reader import BatchReader
from babelcap.data.feed.text import Tokenizers
from babelcap.data.store.index import CorpusIndex
from babelcap.errors import UserError
from babelcap.jobs.signals import StopRequest, stop_requests
from babelcap.models.checkpoints.loading import load_model, resolve_folder
from babelcap.models.checkpoints.processor import CaptionProcessor, load_processor
from babelcap.models.network.captioner import Captioner
from babelcap.models.sizing.flops import forward_macs, meta_captioner
from babelcap.models.sizing.freezing import apply_policy
from babelcap.records import EvalResult, RunRecord, compute_macs
from babelcap.storage import atomic_folder, read_json, write_json
from babelcap.training.checkpoint import full_state, list_checkpoints, load_checkpoint
from babelcap.training.config import TrainConfig
from babelcap.training.features import FeatureStore, open_features
from babelcap.training.loop import AfterStep, LegRun, Progress, run_leg
from babelcap.training.optimiser import make_optimiser
from babelcap.training.parallel import World, check_replicas, join_world, shard
from babelcap.training.schedule import Leg, branch_steps, plan_legs

RECORD = "record.json"
T_MEASURE = "cross_entropy/sample_mean/raw"
_COUNTED: dict[tuple[str, int], float] = {}
Evaluate = Callable[[Captioner, CaptionProcessor], list[EvalResult]]


@dataclass
class Run:
    """What all legs of a run share."""

    config: TrainConfig
    world: World
    legs: list[Leg]
    mixture: Mixture
    index: CorpusIndex
    processor: CaptionProcessor
    hashes: dict[str, str]
    evaluate: Evaluate | None = None
    exchanged: ExchangedImages | None = None  # the corpus as the training reads it, where that is not as it is


def train(
    config: TrainConfig, evaluate: Evaluate | None = None, after_step: AfterStep = lambda step: None
) -> list[RunRecord]:
    """Runs or finishes a run and returns the records of its budgets. `after_step` is called with each step's number."""
    if config.parallel.num_threads is not None:
        torch.set_num_threads(config.parallel.num_threads)
    with stop_requests() as stop, join_world() as world:
        run = open_run(config, world, evaluate)
        for leg in run.legs:
            if not (config.output / leg.name / RECORD).exists():
                _train_leg(run, leg, stop, after_step)
            world.wait()
        results = [leg for leg in run.legs if leg.budget is not None]
        return [RunRecord.model_validate(read_json(config.output / leg.name / RECORD)) for leg in results]


def open_run(config: TrainConfig, world: World, evaluate: Evaluate | None = None) -> Run:
    """Everything that can be wrong with a configuration is found here, before compute is spent."""
    check_replicas(config.parallel, world.size)
    check_division(_loader_config(config), world.size)
    model_folder = resolve_folder(config.model)
    index = CorpusIndex.open(config.data.corpus)
    mixture = Mixture(index, config.data.mixture, config.coverage, config.seed, config.data.split)
    exchange = config.data.exchange_images
    exchanged = ExchangedImages(index, exchange, config.data.split, config.seed) if exchange else None
    hashes = {"model_hash": folder_hash(model_folder), "corpus_hash": index.corpus.content_hash}
    hashes["config_hash"] = content_hash(config)
    if world.is_first:
        _claim_output(config, hashes)
    world.wait()
    legs = plan_legs(config.budgets, config.schedule)
    return Run(config, world, legs, mixture, index, load_processor(model_folder), hashes, evaluate, exchanged)


def _claim_output(config: TrainConfig, hashes: dict[str, str]) -> None:
    described = config.output / "run.json"
    if described.exists():
        before = read_json(described)
        for name in ("config_hash", "model_hash", "corpus_hash"):
            if before.get(name) != hashes[name]:
                what = name.removesuffix("_hash")
                raise UserError(f"{config.output} holds a run of another {what}; choose another output or remove it")
        return
    write_config(config.output / "config.json", config)
    write_json(described, hashes | {"seed": config.seed, "versions": versions()})


def _train_leg(run: Run, leg: Leg, stop: StopRequest, after_step: AfterStep) -> None:
    config, world = run.config, run.world
    folder = config.output / leg.name
    model = load_model(config.model, dtype=torch.float32)
    _set_dropout(model, config.dropout)
    apply_policy(model, config.policy)
    numbers = _numbers(model, config)
    initial = _initial_results(run, model)
    loader = _make_loader(run, model)
    if config.parallel.activation_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    layers = [model.encoder.vision_tower, *model.encoder.text_encoder.layers, *model.decoder.layers]
    shard(model, layers, config.parallel, world)
    optimiser = make_optimiser(model, config.optimiser)
    progress = _restore(run, leg, model, optimiser)
    macs = numbers["F"] * (2 + numbers["Pt"] / numbers["P"])  # forward, gradients of activations, and of what trains
    kept = branch_steps(run.legs, leg)
    leg_run = LegRun(config, leg, folder, world, model, optimiser, loader, progress, run.hashes, kept, macs)
    run_leg(leg_run, stop, after_step)
    if leg.budget is None:
        if world.is_first:
            write_json(folder / RECORD, {"trunk": leg._asdict()})
        return
    _finish(run, leg_run, numbers, initial)


def _restore(run: Run, leg: Leg, model: nn.Module, optimiser: torch.optim.Optimizer) -> Progress:
    """The leg's own last checkpoint, else its parent's at the branch, else the beginning."""
    own = list_checkpoints(run.config.output / leg.name / "checkpoints")
    place = own[-1][1] if own else None
    if place is None and leg.parent is not None:
        places = dict(list_checkpoints(run.config.output / leg.parent / "checkpoints"))
        if leg.start not in places:
            raise UserError(
                f"{run.config.output / leg.parent}: no checkpoint of step {leg.start}; remove it to train anew"
            )
        place = places[leg.start]
    if place is None:
        return Progress()
    return Progress.load(load_checkpoint(place, model, optimiser, run.hashes, run.world))


def _finish(run: Run, leg_run: LegRun, numbers: dict[str, Any], initial: list[EvalResult]) -> None:
    """Exports the model, evaluates it and writes the record, which marks the leg as done."""
    config, world, folder = run.config, run.world, leg_run.folder
    state = full_state(leg_run.model)
    if world.is_first:
        model = load_model(config.model, dtype=torch.float32)
        model.load_state_dict(state)
        model.config.coverage = config.coverage.model_dump(mode="json")
        model.config.image_size_px = config.data.image_size_px
        if config.export:
            with atomic_folder(folder / "model", overwrite=True) as partial:
                model.save_pretrained(partial)
                run.processor.save_pretrained(partial)
        results = run.evaluate(model.to(world.device), run.processor) if run.evaluate is not None else []
        if results:
            write_json(folder / "eval.json", [result.model_dump(mode="json") for result in results])
        record = _record(run, leg_run, numbers, initial, results)
        write_json(folder / RECORD, record.model_dump(mode="json"))
        shutil.rmtree(folder / "checkpoints")
    world.wait()


def _record(
    run: Run, leg_run: LegRun, numbers: dict[str, Any], initial: list[EvalResult], results: list[EvalResult]
) -> RunRecord:
    config, progress = run.config, leg_run.progress
    num_samples = progress.step * config.batch_size
    before = next((result.per_split for result in initial if result.measure == T_MEASURE), {})
    return RunRecord(
        run=f"{config.name}/{leg_run.leg.name}",
        seed=config.seed,
        base=config.model,
        num_steps=progress.step,
        batch_size=config.batch_size,
        S=num_samples,
        C=compute_macs(num_samples, numbers["F"], numbers["P"], numbers["Pt"]),
        T=before,
        initial=initial,
        results=results,
        num_target_tokens=progress.num_target_tokens,
        seconds=progress.seconds,
        versions=versions(),
        extra={"samples_by_pair": dict(progress.samples_by_pair), "bad_samples": dict(progress.bad_samples)},
        **numbers,
        **run.hashes,
    )


def _numbers(model: Captioner, config: TrainConfig) -> dict[str, Any]:
    total = sum(parameter.numel() for parameter in model.parameters())
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    return {
        "family": "florence" if model.config.decoder_config.kind == "bart" else "gemma",
        "size": f"{total / 1e6:.1f}M" if total < 1e8 else f"{total / 1e9:.1f}B",
        "P": total,
        "Pt": trained,
        "F": _forward_macs(model, config.data.image_size_px),
    }


def _forward_macs(model: Captioner, image_size_px: int) -> float:
    """Counted once a process for each kind of model: a study trains hundreds of the same."""
    key = (model.config.to_json_string(), image_size_px)
    if key not in _COUNTED:
        _COUNTED[key] = forward_macs(meta_captioner(model.config), image_size_px)["total"]
    return _COUNTED[key]


def _initial_results(run: Run, model: Captioner) -> list[EvalResult]:
    """The model's losses before training, T among them: measured once a run."""
    path = run.config.output / "initial.json"
    if run.evaluate is None:
        return []
    if run.world.is_first and not path.exists():
        results = run.evaluate(model.to(run.world.device), run.processor)
        write_json(path, [result.model_dump(mode="json") for result in results])
        model.to("cpu")
    run.world.wait()
    return [EvalResult.model_validate(values) for values in read_json(path)]


def _make_loader(run: Run, model: Captioner) -> TrainingLoader:
    config = run.config
    features = None
    if config.data.image_features == "cache":
        features = _cached_features(run, model)
    reader = BatchReader(
        run.exchanged or run.index,
        Tokenizers(
            run.processor.encoder_tokenizer, run.processor.decoder_tokenizer, model.config.decoder_start_token_id
        ),
        config.data,
        config.coverage,
        config.seed,
        features,
    )
    return TrainingLoader(run.mixture, reader, _loader_config(config), run.world.rank, run.world.size)


def _cached_features(run: Run, model: Captioner) -> FeatureStore:
    tower = [model.encoder.vision_tower, model.encoder.projector]
    if any(parameter.requires_grad for module in tower for parameter in module.parameters()):
        raise UserError(f"data.image_features is 'cache', but policy '{run.config.policy}' trains the vision tower")
    return open_features(model, run.index, run.config.data, run.world, run.world.device)


def _loader_config(config: TrainConfig) -> LoaderConfig:
    return LoaderConfig(
        batch_size=config.batch_size,
        micro_batch_size=config.parallel.micro_batch_size,
        num_workers=config.data.num_workers,
    )


def _set_dropout(model: Captioner, dropout: float | None) -> None:
    """Dropout of the states as the run wants it. That of attention stays the model's: it rules out fused attention."""
    if dropout is None:
        return
    for module in (*model.encoder.text_encoder.modules(), *model.decoder.modules()):
        if isinstance(getattr(module, "dropout", None), float) and not hasattr(module, "q_proj"):
            module.dropout = dropout


def folder_hash(folder: Path) -> str:
    """Sixteen hex digits over a model folder's configuration and weights."""
    digest = hashlib.sha256()
    for path in sorted([folder / "config.json", *folder.glob("*.safetensors")]):
        digest.update(path.name.encode())
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def versions() -> dict[str, str]:
    names = ("babelcap", "torch", "transformers", "tokenizers", "numpy", "pillow", "pyarrow")
    return {"python": platform.python_version()} | {name: importlib.metadata.version(name) for name in names}
