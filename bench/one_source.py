"""What bench/before.py measures inside one source, in a process of its own; PYTHONPATH says which source that is.

All of it runs in this source and in older ones, back to f438e1e: it uses what they share, and of a module that moved
both places are tried. Everything has random weights, drawn alike, but for the captioner of `captions`.

python bench/one_source.py captions|generate|train '{"name": value}'   prints what it took, by name, lower is better
"""

import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch

from measure import CLOCK

NUM_PROMPT_TOKENS = 16
Measured = dict[str, float]  # seconds, or bytes


def moved(name: str, *places: str) -> Any:
    """What is called so, from the first of these modules that this source has."""
    for place in places:
        with suppress(ModuleNotFoundError):
            return getattr(import_module(f"babelcap.{place}"), name)
    raise ModuleNotFoundError(f"no module of this source has {name}: {', '.join(places)}")


def captions(model: str, pictures: str, languages: list[str], settings: dict[str, Any]) -> Measured:
    """Seconds a caption, from files to texts. By the clock on the wall: a source may share the work among processes."""
    import babelcap

    captioner, files = babelcap.load(model), sorted(Path(pictures).glob("*.png"))
    list(captioner.caption(files[:4], languages, **settings))
    start = time.perf_counter()
    found = captioner.caption(files, languages, **settings)
    seconds = time.perf_counter() - start
    number = sum(map(len, found.values())) if isinstance(found, dict) else len(found)  # once it was by language
    return {"captions": seconds / number}


def make_captioner(size: str) -> Any:
    from babelcap.models import Captioner

    size_config = moved("size_config", "models.sizing.sizes", "models.sizes")
    torch.manual_seed(0)
    return Captioner(size_config(size))


@torch.inference_mode()
def generate(
    size: str, batch_size: int, num_beams: int, num_new_tokens: int, num_shortlisted: int, image_size_px: int
) -> Measured:
    """Seconds of a whole generation, encoder included, the second of two: a process packs for its first batch."""
    model = make_captioner(size).eval()
    config, generator = model.config, torch.Generator().manual_seed(1)
    # so that beams differ, no two tokens tie and no text ends early
    model.decoder.embed_tokens.weight.normal_(std=0.08)[config.eos_token_id].zero_()
    model.keeps_packed = True  # as a pipeline does, where a source knows it
    shape = (batch_size, NUM_PROMPT_TOKENS)
    inputs = {
        "input_ids": torch.randint(3, config.encoder_config.vocab_size, shape, generator=generator),
        "pixel_values": torch.randn(batch_size, 3, image_size_px, image_size_px, generator=generator),
    }
    allowed = torch.randperm(config.vocab_size, generator=generator)[:num_shortlisted]
    ways: dict[str, tuple[str | None, dict[str, Any]]] = {
        "float32": (None, {}),
        "shortlist": (None, {"allowed_tokens": allowed}),
    }
    if hasattr(model, "quantise"):
        ways |= {"int8": ("int8", {}), "int8, shortlist": ("int8", {"allowed_tokens": allowed})}
    seconds = {}
    for name, (kind, options) in ways.items():
        model.quantise = kind
        for _ in range(2):
            start = CLOCK()
            tokens = model.generate(**inputs, num_beams=num_beams, max_new_tokens=num_new_tokens, **options)
            seconds[name] = CLOCK() - start
        if tokens.shape[1] != 1 + num_new_tokens:
            raise AssertionError(f"{name}: a text ended early")
    return seconds


def train(
    size: str, precision: str, num_samples: int, num_target_tokens: int, image_size_px: int, num_steps: int
) -> Measured:
    """Seconds and peak memory of a step of the source's own loop: forward, backward, clipping, optimiser.

    The loss without dropout, which comes first, says whether two sources compute the same.
    """
    train_step, enter_training = (moved(name, "training.loop") for name in ("train_step", "enter_training"))
    stop = moved("StopRequest", "jobs.signals", "training.signals")()
    run, batch = make_run(make_captioner(size), precision, num_samples, num_target_tokens, image_size_px)
    with torch.no_grad():
        loss = float(run.model.eval()(**batch.model_inputs(), logits_needed=False).loss)
    enter_training(run.model)

    def step(number: int) -> float:
        start = CLOCK()
        train_step(run, number, [batch], stop)
        return CLOCK() - start

    step(0)  # fills the optimiser's state
    Path("/proc/self/clear_refs").write_text("5")  # the peak is of what follows
    seconds = min(step(number) for number in range(1, 1 + num_steps))
    lines = Path("/proc/self/status").read_text().splitlines()
    (peak,) = (int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))
    return {"seconds": seconds, "peak_bytes": peak, "loss": loss}


def make_run(model: Any, precision: str, num_samples: int, num_target_tokens: int, image_size_px: int) -> Any:
    """What the loop works on, and one batch, with which the loader's place is filled."""
    from babelcap.config import build_config
    from babelcap.coverage import Pair
    from babelcap.training.config import TrainConfig
    from babelcap.training.loop import LegRun, Progress
    from babelcap.training.optimiser import make_optimiser
    from babelcap.training.parallel import World
    from babelcap.training.schedule import Leg

    Batch, BatchConfig = (moved(name, "data.feed.batches", "data.batches") for name in ("Batch", "BatchConfig"))
    moved("apply_policy", "models.sizing.freezing", "models.freezing")(model, "pretraining")
    generator = torch.Generator().manual_seed(1)

    def drawn(*shape: int, least: int = 3, end: int) -> torch.Tensor:
        return torch.randint(least, end, (num_samples, *shape), generator=generator)

    labels = drawn(num_target_tokens, end=model.config.vocab_size)
    prompts = drawn(NUM_PROMPT_TOKENS, end=model.config.encoder_config.vocab_size)
    nothing = torch.zeros(num_samples, dtype=torch.long)
    batch = Batch(
        input_ids=prompts,
        attention_mask=torch.ones_like(prompts),
        decoder_input_ids=model.shift_right(labels),
        labels=labels,
        pixels=drawn(image_size_px, image_size_px, 4, least=0, end=256).to(torch.uint8),
        image_features=None,
        num_target_tokens=nothing + num_target_tokens,
        pair_numbers=nothing,
        indices=nothing,
        rows=nothing,
        image_numbers=nothing,
        pairs=(Pair("caption", "en"),),
        config=BatchConfig(image_size_px=image_size_px),
    )
    given = {"model": "-", "batch_size": num_samples, "data": {"corpus": "-"}, "parallel": {"precision": precision}}
    config, leg = build_config(TrainConfig, given), Leg("bench", 0, 1000, 1000)
    world, loader = World(0, 1, torch.device("cpu")), SimpleNamespace(pairs=batch.pairs)
    optimiser = make_optimiser(model, config.optimiser)
    return LegRun(config, leg, Path(), world, model, optimiser, loader, Progress(), {}, set(), 0.0), batch


WAYS: dict[str, Callable[..., Measured]] = {"captions": captions, "generate": generate, "train": train}


def main() -> None:
    name, options = sys.argv[1:]
    print(json.dumps(WAYS[name](**json.loads(options))))


if __name__ == "__main__":
    main()
