"""Where the time of one training step goes: the loop's own `train_step`, its parts timed.

0.4B: random tokens and pixels, batch 4 x 64 target tokens and prompts of 16 tokens, 224 px. A micro size: a drawn
corpus through the loader, in the study's batch of 32 in two micro-batches, without cached features.
Forward parts are timed by wrapping them, the backward pass between marks in the graph: one behind the decoder, one on
the encoder states that it is given. The head's products are all in the forward pass (models/network/loss.py).

python bench/train_profile.py [--size 0.4B] [--steps 3] [--threads 1] [--json]
"""

import argparse
import json
import resource
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

import train
import train_step
from babelcap.data.feed.batches import Batch
from babelcap.jobs.signals import StopRequest
from babelcap.models.network import captioner
from babelcap.training import loop, run
from measure import CLOCK

WARMUP_STEPS = 2
FORWARD = ("tower and projector", "encoder", "decoder", "head and loss, with their gradients")
BACKWARD = ("decoder, backward", "encoder, backward")
REST = ("clipping", "optimiser", "loader", "rest")
Seconds = dict[str, float]


class Parts:
    """Seconds of each part since they were cleared."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.began = 0.0

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def measured(*arguments: Any, **options: Any) -> Any:
            start = CLOCK()
            try:
                return function(*arguments, **options)
            finally:
                self.seconds[name] += CLOCK() - start

        return measured

    def marked(self, states: Tensor, ended: str | None) -> Tensor:
        """The same states; when their gradient comes, `ended` is what was computed since the last mark."""

        class Mark(torch.autograd.Function):
            @staticmethod
            def forward(ctx: Any, given: Tensor) -> Tensor:
                return given.view_as(given)

            @staticmethod
            def backward(ctx: Any, *gradients: Tensor) -> Tensor:
                self.mark(ended)
                return gradients[0]

        return Mark.apply(states)  # type: ignore[no-any-return]

    def mark(self, ended: str | None) -> None:
        now = CLOCK()
        if ended is not None:
            self.seconds[ended] += now - self.began
        self.began = now


@contextmanager
def timed_parts(parts: Parts, model: captioner.Captioner, optimiser: torch.optim.Optimizer) -> Iterator[None]:
    """While this lasts, every step adds to `parts`."""
    decode, backward = model.decoder.forward, Tensor.backward

    def decoded(*arguments: Any, encoder_hidden_states: Tensor, **options: Any) -> Any:
        states = parts.marked(encoder_hidden_states, BACKWARD[0])
        output = decode(*arguments, encoder_hidden_states=states, **options)
        output.last_hidden_state = parts.marked(output.last_hidden_state, None)
        return output

    def run_backward(tensor: Tensor, *arguments: Any, **options: Any) -> None:
        parts.mark(None)
        backward(tensor, *arguments, **options)
        parts.mark(BACKWARD[1])

    losses = captioner.target_token_losses
    with ExitStack() as stack:
        for place, name, function in (
            (model.encoder, "encode_images", parts.timed(FORWARD[0], model.encoder.encode_images)),
            (model.encoder.text_encoder, "forward", parts.timed(FORWARD[1], model.encoder.text_encoder.forward)),
            (model.decoder, "forward", parts.timed(FORWARD[2], decoded)),
            (captioner, "target_token_losses", parts.timed(FORWARD[3], losses)),
            (Tensor, "backward", run_backward),
            (loop, "clip_gradients", parts.timed(REST[0], loop.clip_gradients)),
            (optimiser, "step", parts.timed(REST[1], optimiser.step)),
        ):
            stack.enter_context(patch.object(place, name, function))
        yield


class Enough(Exception):
    """Raised by the profile in the loop's place."""


def profile_synthetic(size: str, num_steps: int) -> list[Seconds]:
    """One batch of random tokens and pixels, again and again."""
    model = train_step.make_captioner(size)
    batch = train_step.make_batch(model, train_step.NUM_SAMPLES, train_step.NUM_TARGET_TOKENS)
    batches = ((step, [batch]) for step in range(WARMUP_STEPS + num_steps))
    return profile_steps(train_step.make_run(model, batch), batches)


def profile_corpus(size: str, num_steps: int) -> list[Seconds]:
    """A run as `babelcap train` makes it, up to its loop."""
    batch_size, size_px, _ = train.settings_of(size, quick=True)
    found: list[Seconds] = []

    def in_place_of_the_loop(leg_run: loop.LegRun, *others: Any) -> None:
        loop.enter_training(leg_run.model)
        found.extend(profile_steps(leg_run, leg_run.loader.steps(0, WARMUP_STEPS + num_steps)))
        raise Enough

    with (
        tempfile.TemporaryDirectory() as folder,
        patch.object(run, "run_leg", in_place_of_the_loop),
        patch.object(train, "THREADS", torch.get_num_threads()),
    ):
        world = train.make_world(Path(folder) / "world", size_px)
        model = train.make_model(size, world, Path(folder) / "model")
        with suppress(Enough):
            train.run_babelcap(model, world, batch_size, size_px, num_steps, cached=False)
    return found


def profile_steps(leg_run: loop.LegRun, batches: Iterator[tuple[int, list[Batch]]]) -> list[Seconds]:
    parts, stop, found = Parts(), StopRequest(), []
    with timed_parts(parts, leg_run.model, leg_run.optimiser):
        before, faults = CLOCK(), num_faults()
        for step, micro_batches in batches:
            parts.seconds["loader"] += CLOCK() - before
            loop.train_step(leg_run, step, micro_batches, stop)
            whole = CLOCK() - before
            parts.seconds["rest"] = whole - sum(parts.seconds.values())
            found.append({**parts.seconds, "whole": whole, "page faults": float(num_faults() - faults)})
            parts.seconds.clear()
            before, faults = CLOCK(), num_faults()
    return found[WARMUP_STEPS:]


def num_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="0.4B")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    profile = profile_corpus if options.size.startswith("micro") else profile_synthetic
    best = min(profile(options.size, options.steps), key=lambda seconds: seconds["whole"])
    if options.json:
        print(json.dumps(best))
        return
    for name in (*FORWARD, *BACKWARD, *REST, "whole"):
        print(f"{name:40}{1e3 * best.get(name, 0.0):10.1f} ms{100 * best.get(name, 0.0) / best['whole']:8.1f} %")
    print(f"{'page faults':40}{best['page faults']:10,.0f}")


if __name__ == "__main__":
    main()
