"""The loop: steps of one leg, from its checkpoint or its start to its end.

loss of a step = sum over its target tokens / their number over all micro-batches and processes, so that neither
accumulation nor the number of processes changes it. Dropout draws from (seed, step, micro-batch), so a resumed run and
one on another number of processes draw the same.
"""

import hashlib
import math
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from babelcap.coverage import Pair
from babelcap.data.feed.batches import Batch
from babelcap.data.feed.loader import TrainingLoader
from babelcap.errors import UserError
from babelcap.jobs.signals import StopRequest
from babelcap.models.generation.shortlist import Shortlist
from babelcap.models.network.captioner import Captioner
from babelcap.models.network.tied import carried_gradient, forget_gradients, keep_gradient
from babelcap.storage import write_json
from babelcap.training.checkpoint import list_checkpoints, remove_old, save_checkpoint
from babelcap.training.config import TrainConfig
from babelcap.training.head import in_shortlist
from babelcap.training.metrics import JsonLines, Trackers, flatten
from babelcap.training.optimiser import set_learning_rate
from babelcap.training.parallel import World, clip_gradients, set_gradient_sync, uses_bf16
from babelcap.training.progress import Reporter
from babelcap.training.schedule import Leg, rate_factor

AfterStep = Callable[[int], None]


class Requeue(Exception):
    """The run was asked to stop, has saved, and wants to be started again."""

    def __init__(self, step: int, signal_name: str | None) -> None:
        super().__init__(f"asked to stop by {signal_name or 'a signal'}; saved step {step}; the same command goes on")
        self.signal_name = signal_name


@dataclass
class Progress:
    """How far a leg is: all of a checkpoint that is not a tensor."""

    step: int = 0
    num_target_tokens: int = 0
    seconds: float = 0.0
    samples_by_pair: Counter[str] = field(default_factory=Counter)
    bad_samples: Counter[str] = field(default_factory=Counter)

    def dump(self) -> dict[str, Any]:
        return {
            "step": self.step,
            "num_target_tokens": self.num_target_tokens,
            "seconds": self.seconds,
            "samples_by_pair": dict(sorted(self.samples_by_pair.items())),
            "bad_samples": dict(sorted(self.bad_samples.items())),
        }

    @classmethod
    def load(cls, values: dict[str, Any], where: Path) -> "Progress":
        try:
            return cls(
                int(values["step"]),
                int(values["num_target_tokens"]),
                float(values["seconds"]),
                Counter(values["samples_by_pair"]),
                Counter(values["bad_samples"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise UserError(f"{where}: its progress cannot be read ({error}); remove it") from None


@dataclass
class LegRun:
    """All that the loop works on."""

    config: TrainConfig
    leg: Leg
    folder: Path
    world: World
    model: Captioner
    optimiser: torch.optim.Optimizer
    loader: TrainingLoader
    progress: Progress
    hashes: dict[str, str]  # checked when a checkpoint is loaded
    kept_steps: set[int]  # whose checkpoints branches start from
    macs_per_sample: float  # of a training step: forward and backward
    shortlist: Shortlist | None = None  # of the head, where not all of it is computed


def run_leg(run: LegRun, stop: StopRequest, after_step: AfterStep = lambda step: None) -> None:
    config, world, progress = run.config, run.world, run.progress
    metrics, timing = JsonLines(run.folder / "metrics.jsonl"), JsonLines(run.folder / "timing.jsonl")
    if world.is_first:
        metrics.rewind(progress.step)
        timing.rewind(progress.step)
    names = config.log.trackers if world.is_first else ()
    trackers = Trackers(names, run.folder / "tensorboard", config.name, config.model_dump(mode="json"), progress.step)
    reporter = Reporter(run.leg.name, progress.step, run.leg.end, config.log.every_steps, quiet=not world.is_first)
    bad_before, started, before = progress.bad_samples, time.monotonic(), progress.seconds
    enter_training(run.model)
    with stop.waiting(), ExitStack() as sinks:
        for sink in (metrics, timing, trackers, reporter):
            sinks.callback(sink.close)
        sinks.callback(forget_gradients)
        for step, batches in run.loader.steps(progress.step, run.leg.end):
            clock = time.monotonic()
            values, stopping = train_step(run, step, batches, stop)
            progress.step = step + 1
            progress.num_target_tokens += values["num_target_tokens"]
            progress.samples_by_pair.update(values["samples_by_pair"])
            progress.bad_samples = bad_before + run.loader.bad.counts
            progress.seconds = before + time.monotonic() - started
            if world.is_first:
                rates = _rates(run, values, time.monotonic() - clock)
                metrics.append(values)
                timing.append({"step": step + 1, **rates})
                if progress.step % config.log.every_steps == 0:
                    trackers.log(progress.step, flatten(values) | rates)
                reporter.update(progress.step, values, rates)
            due = progress.step % config.checkpoint.every_steps == 0 or progress.step in run.kept_steps
            if due or stopping or progress.step == run.leg.end:
                save(run)
            if stopping and progress.step < run.leg.end:
                raise Requeue(progress.step, stop.name)
            after_step(progress.step)


def train_step(run: LegRun, step: int, batches: list[Batch], stop: StopRequest) -> tuple[dict[str, Any], bool]:
    """One optimiser step. Returns its line of metrics and whether any process was asked to stop."""
    config, world, model = run.config, run.world, run.model
    num_tokens = sum(int(batch.num_target_tokens.sum()) for batch in batches)
    num_tokens, num_stops = world.add_up(torch.tensor([num_tokens, int(bool(stop))])).tolist()
    by_pair = torch.zeros(len(run.loader.pairs), 3, dtype=torch.float64)  # loss, tokens, samples
    device_type = world.device.type
    for number, batch in enumerate(batches):
        set_gradient_sync(model, number == len(batches) - 1)
        torch.manual_seed(_dropout_seed(config.seed, step, number * world.size + world.rank))
        autocast = torch.autocast(device_type, torch.bfloat16, enabled=uses_bf16(config.parallel, world.device))
        with carried_gradient(model.head_weight) if world.size == 1 else nullcontext():
            with autocast:
                # Gradients are averaged over the processes, so each divides by its share of the tokens only.
                output = model(
                    **in_shortlist(batch.model_inputs(world.device), run.shortlist),
                    shortlist=run.shortlist,
                    logits_needed=False,
                    num_items_in_batch=num_tokens / world.size,
                    packed=config.parallel.packed,
                )
            output.loss.backward()
        losses = output.token_losses.sum(dim=1).double().cpu()
        columns = torch.stack([losses, batch.num_target_tokens.double(), torch.ones_like(losses)], dim=1)
        by_pair.index_add_(0, batch.pair_numbers, columns)
    by_pair = world.add_up(by_pair)
    norm = clip_gradients(model, config.optimiser.max_gradient_norm)
    loss = float(by_pair[:, 0].sum()) / num_tokens
    if not (math.isfinite(loss) and math.isfinite(norm)):
        _stop_on_fault(run, step, loss, norm, batches)
    rate = config.optimiser.learning_rate * rate_factor(step, run.leg, config.schedule)
    set_learning_rate(run.optimiser, rate)
    run.optimiser.step()
    largest = model.head_weight.grad if world.size == 1 else None  # sharded gradients go back to FSDP
    run.optimiser.zero_grad(set_to_none=True)
    if largest is not None:
        keep_gradient(largest)
    values = {
        "step": step + 1,
        "loss": loss,
        **_of_pairs(run.loader.pairs, by_pair),
        "num_target_tokens": num_tokens,
        "gradient_norm": norm,
        "learning_rate": rate,
    }
    return values, num_stops > 0


def enter_training(model: Captioner) -> None:
    """Training mode, but for parts of the encoder that are frozen: a tower that does not learn does not drop paths."""
    model.train()
    for part in model.encoder.children():
        if not any(parameter.requires_grad for parameter in part.parameters()):
            part.eval()


def save(run: LegRun) -> None:
    folder = run.folder / "checkpoints"
    save_checkpoint(folder, run.model, run.optimiser, run.progress.dump() | run.hashes, run.world)
    if run.world.is_first:
        remove_old(folder, run.config.checkpoint.keep, run.kept_steps)


def _of_pairs(pairs: tuple[Pair, ...], by_pair: torch.Tensor) -> dict[str, dict[str, float]]:
    seen = [(str(pair), *row) for pair, row in zip(pairs, by_pair.tolist(), strict=True) if row[2] > 0]
    return {
        "loss_by_pair": {pair: total / tokens for pair, total, tokens, _ in seen},
        "samples_by_pair": {pair: int(samples) for pair, _, _, samples in seen},
    }


def _rates(run: LegRun, values: dict[str, Any], seconds: float) -> dict[str, float]:
    rates = {
        "seconds": seconds,
        "samples_per_second": run.config.batch_size / seconds,
        "target_tokens_per_second": values["num_target_tokens"] / seconds,
    }
    if run.config.log.peak_tflops:
        done = 2 * run.macs_per_sample * rates["samples_per_second"]
        rates["peak_share"] = done / (run.config.log.peak_tflops * 1e12 * run.world.size)
    return rates


def _stop_on_fault(run: LegRun, step: int, loss: float, norm: float, batches: list[Batch]) -> None:
    """A non-finite loss or gradient: nothing of this step enters the weights, and the report says where to look."""
    size = run.config.batch_size
    kept = list_checkpoints(run.folder / "checkpoints")
    last = str(kept[-1][1]) if kept else "none"
    report = {
        "step": step + 1,
        "loss": str(loss),
        "gradient_norm": str(norm),
        "sample_indices": [step * size, (step + 1) * size - 1],
        "annotation_rows_of_this_process": [row for batch in batches for row in batch.rows.tolist()],
        "last_good_checkpoint": last,
    }
    if run.world.is_first:
        write_json(run.folder / "fault.json", report)
    raise UserError(
        f"step {step + 1}: the loss is {loss}, the gradient norm {norm}; samples {step * size} to "
        f"{(step + 1) * size - 1}; last good checkpoint: {last}; details in {run.folder / 'fault.json'}; lower "
        "optimiser.learning_rate or look at the samples"
    )


def _dropout_seed(seed: int, step: int, micro_batch: int) -> int:
    return int.from_bytes(hashlib.sha256(f"dropout {seed} {step} {micro_batch}".encode()).digest()[:7], "big")
