"""A run: the checks before any compute is spent, then its legs one after the other, each ending in a RunRecord.

    <output>/config.json  run.json           what is run, with which versions, on what
    <output>/<leg>/metrics.jsonl ...         one leg: checkpoints/, tensorboard/, model/, eval.json, record.json

The same command goes on where a run stopped; a leg that has its record is done.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from babelcap.config import content_hash
from babelcap.data.feed.exchange import ExchangedImages
from babelcap.data.feed.loader import LoaderConfig, TrainingLoader, check_division
from babelcap.data.feed.mixture import Mixture
from babelcap.data.feed.reader import BatchReader
from babelcap.data.feed.text import Tokenizers
from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.store import Corpus
from babelcap.errors import UserError
from babelcap.jobs.signals import StopRequest, stop_requests
from babelcap.models.checkpoints.loading import load_model
from babelcap.models.checkpoints.processor import CaptionProcessor, load_processor
from babelcap.models.checkpoints.saving import save_captioner
from babelcap.models.checkpoints.weights import resolve_folder
from babelcap.models.generation.shortlist import Shortlist
from babelcap.models.network.captioner import Captioner
from babelcap.models.sizing.freezing import apply_policy
from babelcap.records import EvalResult, RunRecord, initial_losses
from babelcap.storage import write_json
from babelcap.training.checkpoint import (
    find_damage,
    full_state,
    list_checkpoints,
    load_checkpoint,
    newest_whole,
    remove_all,
)
from babelcap.training.config import TrainConfig
from babelcap.training.cost import how_to_make
from babelcap.training.features import FeatureStore, open_features
from babelcap.training.head import corpus_shortlist
from babelcap.training.loop import AfterStep, LegRun, Progress, run_leg
from babelcap.training.optimiser import make_optimiser
from babelcap.training.output import held_output
from babelcap.training.parallel import World, check_replicas, join_world, shard
from babelcap.training.progress import say
from babelcap.training.record import (
    INITIAL,
    RECORD,
    RESULTS,
    folder_hash,
    make_record,
    model_numbers,
    read_record,
    read_results,
    write_record,
    write_results,
)
from babelcap.training.schedule import Leg, branch_steps, plan_legs
from babelcap.training.stopping import in_turn, is_over, seen_caption_loss, tell_best

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
        with held_output(run.config, run.hashes, world):
            losses: dict[int, float] = {}
            for leg in run.legs if config.stopping is None else in_turn(run.legs):
                _run_leg(run, leg, stop, after_step)
                world.wait()
                if config.stopping is not None and leg.budget is not None:
                    results = read_record(config.output / leg.name).results
                    losses[leg.budget] = seen_caption_loss(results, run.config.coverage, config.stopping.split)
                    if is_over(losses, config.stopping.patience):
                        break
            if config.stopping is not None and world.is_first:
                tell_best(config, config.stopping, losses)
            budgets = [config.output / leg.name for leg in run.legs if leg.budget is not None]
            return [read_record(folder) for folder in budgets if (folder / RECORD).exists()]


def _run_leg(run: Run, leg: Leg, stop: StopRequest, after_step: AfterStep) -> None:
    """Unless it is done."""
    folder = run.config.output / leg.name
    if not (folder / RECORD).exists():
        is_kept = leg not in run.legs and leg.end in dict(list_checkpoints(folder / "checkpoints"))
        if not is_kept:  # the part of a trunk that the next budget branches off
            _train_leg(run, leg, stop, after_step)
    elif leg.budget is not None:
        if run.evaluate is not None:
            _evaluate_finished(run, leg)
        if run.world.is_first:  # still there where a kill came between the record and their removal
            remove_all(folder / "checkpoints")


def with_coverage(config: TrainConfig) -> TrainConfig:
    """With the corpus' own coverage where the configuration has none."""
    if "coverage" in config.model_fields_set:
        return config
    return config.model_copy(update={"coverage": Corpus.open(config.data.corpus).coverage})


def open_run(config: TrainConfig, world: World, evaluate: Evaluate | None = None) -> Run:
    """Everything that can be wrong with a configuration is found here, before compute is spent."""
    check_replicas(config.parallel, world.size)
    check_division(_loader_config(config), world.size)
    model_folder = _model_folder(config.model)
    config = with_coverage(config)
    index = CorpusIndex.open(config.data.corpus)
    mixture = Mixture(index, config.data.mixture, config.coverage, config.seed, config.data.split)
    exchange = config.data.exchange_images
    exchanged = ExchangedImages(index, exchange, config.data.split, config.seed) if exchange else None
    hashes = {
        "model_hash": world.tell(folder_hash(model_folder) if world.is_first else ""),
        "corpus_hash": index.corpus.content_hash,
        "config_hash": content_hash(config),
    }
    if config.stopping is not None:
        if evaluate is None:
            raise UserError("stopping is asked for, and nothing is evaluated: leave --no-evaluate or stopping out")
        index.corpus.counts(config.stopping.split)  # or it says which splits there are
    legs = plan_legs(config.budgets, config.schedule)
    return Run(config, world, legs, mixture, index, load_processor(model_folder), hashes, evaluate, exchanged)


def _model_folder(model: str) -> Path:
    try:
        return resolve_folder(model)
    except UserError as error:
        raise UserError(f"model: {error}; {how_to_make(model)}") from None


def _train_leg(run: Run, leg: Leg, stop: StopRequest, after_step: AfterStep) -> None:
    config, world = run.config, run.world
    folder = config.output / leg.name
    model = load_model(config.model, dtype=torch.float32)
    _set_dropout(model, config.dropout)
    apply_policy(model, config.policy)
    numbers = model_numbers(model, config)
    initial = _initial_results(run, model)
    loader = _make_loader(run, model)
    shortlist = _shortlist(run, model)
    if config.parallel.activation_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    layers = [model.encoder.vision_tower, *model.encoder.text_encoder.layers, *model.decoder.layers]
    shard(model, layers, config.parallel, world)
    optimiser = make_optimiser(model, config.optimiser)
    progress = _restore(run, leg, model, optimiser)
    macs = numbers["F"] * (2 + numbers["Pt"] / numbers["P"])  # forward, gradients of activations, and of what trains
    kept = branch_steps(run.legs, leg)
    leg_run = LegRun(config, leg, folder, world, model, optimiser, loader, progress, run.hashes, kept, macs, shortlist)
    run_leg(leg_run, stop, after_step)
    if leg.budget is None:
        if world.is_first and leg in run.legs:
            write_json(folder / RECORD, {"trunk": leg._asdict()})
        return
    _finish(run, leg_run, numbers, initial)


def _restore(run: Run, leg: Leg, model: nn.Module, optimiser: torch.optim.Optimizer) -> Progress:
    """The leg's own last checkpoint that is whole, else its parent's at the branch, else the beginning."""
    place = newest_whole(run.config.output / leg.name / "checkpoints", run.world)
    if place is None and leg.parent is not None:
        place = _branch_point(run, leg, run.config.output / leg.parent)
    if place is None:
        return Progress()
    return Progress.load(load_checkpoint(place, model, optimiser, run.hashes, run.world), place)


def _branch_point(run: Run, leg: Leg, parent: Path) -> Path:
    place = dict(list_checkpoints(parent / "checkpoints")).get(leg.start)
    problem = f"{parent}: no checkpoint of step {leg.start}" if place is None else find_damage(place, run.world)
    if place is None or problem is not None:
        raise UserError(f"{problem}; remove {parent} to train it anew")
    return place


def _finish(run: Run, leg_run: LegRun, numbers: dict[str, Any], initial: list[EvalResult]) -> None:
    """Exports the model, evaluates it and writes the record, which marks the leg as done."""
    config, world, folder = run.config, run.world, leg_run.folder
    state = full_state(leg_run.model)
    if world.is_first:
        model = load_model(config.model, dtype=torch.float32)
        loaded = model.load_state_dict(state, strict=False)
        # torch puts counts of batches beside the norms of a backbone while it loads them, which no weight file has.
        strange = [name for name in loaded.unexpected_keys if not name.endswith("num_batches_tracked")]
        assert not loaded.missing_keys, loaded.missing_keys
        assert not strange, strange
        learnt = config.coverage
        if model.config.coverage is not None:  # of an earlier training, which this one adds to
            learnt = learnt.after(model.config.get_coverage())
        model.config.coverage = learnt.model_dump(mode="json")
        model.config.image_size_px = config.data.image_size_px
        if config.export:
            save_captioner(folder / "model", model, run.processor, overwrite=True)
        results = _measure(run, folder, model)
        write_record(folder, make_record(leg_run, numbers, initial, results))
        remove_all(folder / "checkpoints")
    world.wait()


def _measure(run: Run, folder: Path, model: Captioner) -> list[EvalResult]:
    if run.evaluate is None:
        return []
    results = run.evaluate(model.to(run.world.device), run.processor)
    write_results(folder / RESULTS, results)
    return results


def _evaluate_finished(run: Run, leg: Leg) -> None:
    """Of a leg that was trained without evaluation: the exported model is measured, and the record completed."""
    folder = run.config.output / leg.name
    record = read_record(folder)
    if record.results:
        return
    exported = folder / "model"
    if not exported.is_dir():
        if run.world.is_first:
            say(f"{folder} is done and cannot be evaluated: its model was not exported (export = false)")
        return
    initial = _initial_results(run, load_model(run.config.model, dtype=torch.float32))
    if run.world.is_first:
        say(f"{folder} is done; evaluating its model")
        results = _measure(run, folder, load_model(exported, dtype=torch.float32))
        update = {"initial": initial, "T": initial_losses(initial), "results": results}
        write_record(folder, record.model_copy(update=update))


def _initial_results(run: Run, model: Captioner) -> list[EvalResult]:
    """The model's losses before training, T among them: measured once a run."""
    path = run.config.output / INITIAL
    if run.evaluate is None:
        return []
    if run.world.is_first and not path.exists():
        say(f"{run.config.output}: measuring the losses before training (--no-evaluate leaves all losses out)")
        write_results(path, run.evaluate(model.to(run.world.device), run.processor))
        model.to("cpu")
    run.world.wait()
    return read_results(path)


def _make_loader(run: Run, model: Captioner) -> TrainingLoader:
    config, processor = run.config, run.processor
    reader = BatchReader(
        run.exchanged or run.index,
        Tokenizers(processor.encoder_tokenizer, processor.decoder_tokenizer, model.config.decoder_start_token_id),
        config.data,
        config.coverage,
        config.seed,
        _cached_features(run, model) if config.data.image_features == "cache" else None,
    )
    return TrainingLoader(run.mixture, reader, _loader_config(config), run.world.rank, run.world.size)


def _shortlist(run: Run, model: Captioner) -> Shortlist | None:
    if run.config.head == "whole":
        return None
    shortlist = corpus_shortlist(model, run.processor, run.index.corpus, run.config.coverage, run.config.data.split)
    shortlist.to(run.world.device)
    return shortlist


def _cached_features(run: Run, model: Captioner) -> FeatureStore:
    tower = model.encoder.image_modules()
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
