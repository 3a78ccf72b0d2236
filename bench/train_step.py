"""One training step at the 0.4B size against the published way: transformers' own Florence-2 in a plain loop.

The baseline has full logits, cross-entropy, torch's AdamW and clip_grad_norm_ as they come; ours is the loop's own
`train_step`, as it is and with `data.image_features = "cache"`, for which the frozen tower ran before. The same random
weights and batch (4 samples, prompts of 16 and targets of 64 tokens, 224 px), dropout, frozen vision tower, float32,
or products in bfloat16 (`parallel.precision = "bf16"`; the baseline's under torch's autocast), which pays where a
processor has AVX512_BF16 or AMX; with these, AdamW's moments in bfloat16 too (`optimiser.moments`). Neither side caps
the logits. transformers' model has one vocabulary for prompts and texts, so ours trains 39 million weights more. Each
side has processes of its own, which take turns: memory is the
kernel's high-water mark of the whole process (VmHWM) over the measured steps. First losses without dropout must agree.
With `--micro-batch` both sides add up the gradients of parts of the batch.

python bench/train_step.py [--quick] [--json] [--samples 4] [--micro-batch 2] [--target-tokens 64] [--threads 2]
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple, cast

import torch
from torch import nn
from torch.nn import functional

from babelcap.config import build_config
from babelcap.coverage import Pair
from babelcap.data.feed.batches import Batch, BatchConfig
from babelcap.data.feed.loader import TrainingLoader
from babelcap.jobs.signals import StopRequest
from babelcap.models import Captioner
from babelcap.models.sizing.freezing import apply_policy
from babelcap.models.sizing.sizes import size_config
from babelcap.training.config import TrainConfig
from babelcap.training.loop import LegRun, Progress, enter_training, train_step
from babelcap.training.optimiser import make_optimiser
from babelcap.training.parallel import World
from babelcap.training.schedule import Leg
from generate import make_baseline
from limits import POLICY, operations_of_a_step, state_bytes
from loss import memory_bytes, reset_peak
from measure import CLOCK, STATE, Timings, product_flops_per_second, row, share_of

THEIRS, OURS, CACHED = "transformers", "babelcap", "babelcap, cached features"
THEIRS_LOW, OURS_LOW, OURS_SMALL = "transformers, bfloat16", "babelcap, bfloat16", "babelcap, bfloat16, small moments"
OURS_SMALL_FLOAT = "babelcap, small moments"
SIDES = (THEIRS, OURS, OURS_LOW, OURS_SMALL, OURS_SMALL_FLOAT, THEIRS_LOW, CACHED)
QUICK_SIDES = SIDES[:2]
LOW = (THEIRS_LOW, OURS_LOW, OURS_SMALL)
NUM_PROMPT_TOKENS, NUM_SAMPLES, NUM_TARGET_TOKENS = 16, 4, 64
TARGET = 2.0  # half of the time, half of the memory
BASELINE = "transformers' Florence-2, plain loop"
Step = Callable[[], float]


class Asked(NamedTuple):
    num_samples: int
    num_target_tokens: int
    micro_batch: int  # samples of one forward pass


def make_captioner(size: str = "0.4B") -> Captioner:
    """Random weights; prompts have the words of texts, as in transformers' model."""
    torch.manual_seed(0)
    model = Captioner(size_config(size))
    with torch.no_grad():
        prompts = model.encoder.text_encoder.embed_tokens.weight
        prompts.copy_(model.decoder.embed_tokens.weight[: len(prompts)])
    model.head.softcap = None
    return model


def make_batch(model: Captioner, num_samples: int, num_target_tokens: int) -> Batch:
    generator = torch.Generator().manual_seed(1)
    config = model.config
    labels = torch.randint(3, config.vocab_size, (num_samples, num_target_tokens), generator=generator)
    shape = (num_samples, NUM_PROMPT_TOKENS)
    nothing = torch.zeros(num_samples, dtype=torch.long)
    size_px = config.image_size_px
    return Batch(
        input_ids=torch.randint(3, config.encoder_config.vocab_size, shape, generator=generator),
        attention_mask=torch.ones(shape, dtype=torch.long),
        decoder_input_ids=model.shift_right(labels),
        labels=labels,
        pixels=torch.randint(256, (num_samples, size_px, size_px, 4), generator=generator).to(torch.uint8),
        image_features=None,
        num_target_tokens=nothing + num_target_tokens,
        pair_numbers=nothing,
        indices=nothing,
        rows=nothing,
        image_numbers=nothing,
        pairs=(Pair("caption", "en"),),
        config=BatchConfig(image_size_px=size_px),
    )


def in_micro_batches(batch: Batch, num_samples: int) -> list[Batch]:
    names = [field.name for field in fields(batch) if isinstance(getattr(batch, field.name), torch.Tensor)]
    starts = range(0, len(batch), num_samples)
    return [
        replace(batch, **{name: getattr(batch, name)[start : start + num_samples] for name in names})
        for start in starts
    ]


def make_run(model: Captioner, batch: Batch, *, low: bool = False, small: bool = False) -> LegRun:
    """What the loop works on, with one batch in the loader's place."""
    apply_policy(model, POLICY)
    given = {
        "model": "-",
        "batch_size": len(batch),
        "data": {"corpus": "-"},
        "parallel": {"precision": "bf16" if low else "fp32"},
        "optimiser": {"moments": "bfloat16" if small else "float32"},
    }
    config = build_config(TrainConfig, given)
    loader = cast("TrainingLoader", SimpleNamespace(pairs=batch.pairs))
    optimiser = make_optimiser(model, config.optimiser)
    leg, world = Leg("bench", 0, 1000, 1000), World(0, 1, torch.device("cpu"))
    enter_training(model)
    return LegRun(config, leg, Path(), world, model, optimiser, loader, Progress(), {}, set(), 0.0)


def ours(asked: Asked, *, cached: bool = False, low: bool = False, small: bool = False) -> tuple[Step, Step]:
    """The loss without dropout, and a step."""
    model = make_captioner()
    batch = make_batch(model, asked.num_samples, asked.num_target_tokens)
    if cached:
        with torch.no_grad():
            features = model.eval().encode_images(batch.model_inputs()["pixel_values"])
        batch = replace(batch, pixels=None, image_features=features)
    run, stop = make_run(model, batch, low=low, small=small), StopRequest()
    parts = in_micro_batches(batch, asked.micro_batch)

    def loss() -> float:
        with torch.no_grad():
            return float(model.eval()(**batch.model_inputs(), logits_needed=False).loss)

    def step() -> float:
        enter_training(model)
        return float(train_step(run, 0, parts, stop)[0]["loss"])

    return loss, step


def theirs(asked: Asked, *, low: bool = False) -> tuple[Step, Step]:
    captioner = make_captioner()
    batch = make_batch(captioner, asked.num_samples, asked.num_target_tokens)
    parts = in_micro_batches(batch, asked.micro_batch)
    model = make_baseline(captioner)
    with torch.no_grad():
        num_image_tokens = captioner.encode_images(batch.model_inputs()["pixel_values"][:1]).shape[1]
    for part in (model.model.vision_tower, model.model.multi_modal_projector):
        part.requires_grad_(False)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(trained, lr=1e-6)

    def forward(part: Batch) -> torch.Tensor:
        given = part.model_inputs()
        image = torch.full((len(part), num_image_tokens), model.config.image_token_id)
        output = model(
            input_ids=torch.cat([image, given["input_ids"]], dim=1),
            pixel_values=given["pixel_values"],
            decoder_input_ids=given["decoder_input_ids"],
            use_cache=False,
        )
        return functional.cross_entropy(output.logits.flatten(0, 1), given["labels"].flatten())

    def loss() -> float:
        model.eval()
        with torch.no_grad():
            return float(forward(batch))

    def step() -> float:
        model.train()
        total = 0.0
        for part in parts:
            with torch.autocast("cpu", torch.bfloat16, enabled=low):
                found = forward(part) * len(part) / len(batch)
            found.backward()
            total += float(found.detach())
        nn.utils.clip_grad_norm_(trained, 1.0)
        optimiser.step()
        optimiser.zero_grad()
        return total

    return loss, step


def measure(side: str, options: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(options.threads)
    asked = Asked(options.samples, options.target_tokens, options.micro_batch or options.samples)
    low = side in LOW
    is_theirs = side in (THEIRS, THEIRS_LOW)
    own = {"cached": side == CACHED, "small": side in (OURS_SMALL, OURS_SMALL_FLOAT)}
    loss, step = theirs(asked, low=low) if is_theirs else ours(asked, low=low, **own)
    first = loss()
    step()  # fills the optimiser's state
    reset_peak()
    seconds = []
    for _ in range(options.steps):
        start = CLOCK()
        step()
        seconds.append(CLOCK() - start)
    return {"loss": first, "seconds": min(seconds), "peak_bytes": memory_bytes("VmHWM")}


def limits(sides: Sequence[str], timings: Timings, peaks: Timings, options: argparse.Namespace) -> dict[str, Any]:
    """Of each side that is ours, what its time and its memory are of the least that they can be."""
    rates = {low: product_flops_per_second("bfloat16" if low else "float32") for low in (False, True)}
    model = make_captioner()
    asked = model.config, options.samples, NUM_PROMPT_TOKENS, options.target_tokens
    found = {}
    for side in set(sides) - {THEIRS, THEIRS_LOW}:
        low = side in LOW
        operations = operations_of_a_step(*asked, cached=side == CACHED)
        found[side] = (
            share_of(f"plain product{' in bfloat16' if low else ''}", operations / timings.best(side) / rates[low]),
            share_of(STATE, state_bytes(model, 4 if side in (OURS_SMALL, OURS_SMALL_FLOAT) else 8) / peaks.best(side)),
        )
    return found


def in_own_process(side: str, options: argparse.Namespace) -> dict[str, Any]:
    given = ["--samples", str(options.samples), "--target-tokens", str(options.target_tokens)]
    given += ["--micro-batch", str(options.micro_batch)] if options.micro_batch else []
    given += ["--threads", str(options.threads), "--steps", str(options.steps), "--measure", side]
    environment = os.environ | {"OMP_NUM_THREADS": str(options.threads)}
    command = [sys.executable, __file__, *given]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def run_benchmark(options: argparse.Namespace) -> dict[str, Any]:
    sides = QUICK_SIDES if options.quick else SIDES
    if options.only:
        sides = tuple(side for side in SIDES if side in (THEIRS, *options.only))
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in sides}
    for _ in range(options.rounds):
        for side in sides:
            found[side].append(in_own_process(side, options))
    losses = [found[side][0]["loss"] for side in sides]
    if max(losses) - min(losses) > 1e-4 * losses[0]:
        raise AssertionError(f"the sides compute different losses: {losses}")
    timings = Timings({side: [one["seconds"] for one in found[side]] for side in sides}, {})
    peaks = Timings({side: [one["peak_bytes"] for one in found[side]] for side in sides}, {})
    torch.set_num_threads(options.threads)
    least = limits(sides, timings, peaks, options)
    return {
        "seconds": {side: round(timings.best(side), 3) for side in sides},
        "peak GiB": {side: round(peaks.best(side) / 2**30, 2) for side in sides},
        "losses": losses,
        "rows": [
            row(f"train step: 0.4B{rest}{what}", name, **found.ratio(side, against), target=TARGET, **shown)
            for side, rest, against, name in (
                (OURS, "", THEIRS, BASELINE),
                (OURS_LOW, ", bfloat16", THEIRS, BASELINE),
                (OURS_SMALL, ", bfloat16, small moments", THEIRS, BASELINE),
                (OURS_SMALL_FLOAT, ", small moments", THEIRS, BASELINE),
                (OURS_LOW, ", bfloat16 both", THEIRS_LOW, f"{BASELINE}, bfloat16"),
                (CACHED, ", cached features", THEIRS, BASELINE),
            )
            if side in sides and against in sides
            for found, what, shown in zip((timings, peaks), ("", ", memory"), least[side], strict=True)
        ],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick",
        action="store_true",
        help="one round of one step of both in float32",
    )
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--samples", type=int, default=NUM_SAMPLES)
    parser.add_argument("--micro-batch", type=int, help="samples of one forward pass; by default all")
    parser.add_argument("--only", choices=SIDES, nargs="+", help="these sides alone, and the baseline")
    parser.add_argument("--target-tokens", type=int, default=NUM_TARGET_TOKENS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="measured in each round, after one that is not")
    parser.add_argument("--measure", choices=SIDES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.measure, options)))
        return
    if options.quick:
        options.rounds, options.steps = 1, 1
    result = run_benchmark(options)
    if options.json:
        print(json.dumps(result))
        return
    for found in result.pop("rows"):
        print(f"{found['name']:44}{found['ratio']:8} times ({found['low']} to {found['high']}; target {TARGET})")
    print("  ".join(f"{name}: {value}" for name, value in result.items()))


if __name__ == "__main__":
    main()
