"""How fast is training? Samples a second of babelcap's loop against transformers' Trainer, in one run, each in its own
process: the same model, corpus, micro-batch, optimiser and number of threads; peak memory beside it.

    python bench/train.py [--quick] [--json] [--models micro-florence-l micro-gemma-l 0.4B]

Both take steps of the same batch. The Trainer reads it through a plain map-style dataset and pads it to its longest
sample; babelcap divides a batch of 32 into two micro-batches by length. Each side is warmed up with steps that are not
counted. Limits are a plain product, of samples of the mean length, and what weights, gradients and moments take.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from measure import product_flops_per_second

if TYPE_CHECKING:
    from babelcap.data.feed.batches import Batch

THREADS = 2
WARMUP_STEPS = 3
# samples of a step, image side, counted steps
SETTINGS = {"micro": (32, 64, 60), "0.4B": (4, 224, 6)}
MICRO_BATCH_SIZE = 16
SIDES = ("trainer", "babelcap", "babelcap, cached features")


def settings_of(model: str, quick: bool) -> tuple[int, int, int]:
    batch_size, size_px, num_steps = SETTINGS["micro" if model.startswith("micro") else model]
    return batch_size, size_px, max(2, num_steps // 12) if quick else num_steps


def make_world(folder: Path, size_px: int) -> Path:
    from babelcap.world.corpus import WorldConfig, make_world

    make_world(
        folder,
        WorldConfig(num_images=400, num_eval_images=8, num_holdout_images=8, size_px=size_px, num_text_lines=300),
    )
    return folder


def make_model(name: str, world: Path, folder: Path) -> Path:
    """Random weights: speed does not depend on them."""
    import torch
    from transformers import AutoTokenizer

    from babelcap.models import Captioner, CaptionProcessor
    from babelcap.models.sizing.sizes import size_config

    encoder = AutoTokenizer.from_pretrained(str(world / "tokenizers" / "encoder"))
    decoder = AutoTokenizer.from_pretrained(str(world / "tokenizers" / "decoder"))
    vocabularies = {} if name == "0.4B" else {"encoder_vocab_size": len(encoder), "decoder_vocab_size": len(decoder)}
    torch.manual_seed(0)
    config = size_config(name, **vocabularies)
    Captioner(config).save_pretrained(folder)
    CaptionProcessor(encoder, decoder, image_size_px=config.image_size_px).save_pretrained(folder)
    return folder


def run_babelcap(model: Path, world: Path, batch_size: int, size_px: int, num_steps: int, cached: bool) -> list[float]:
    from babelcap.config import build_config
    from babelcap.training.config import TrainConfig
    from babelcap.training.run import train

    values = {
        "model": str(model),
        "output": str(model.parent / f"run-{cached}"),
        "budgets": [WARMUP_STEPS + num_steps + 1],  # the last step saves, as the Trainer's does not; it is left out
        "batch_size": batch_size,
        "export": False,
        "data": {"corpus": str(world), "image_size_px": size_px, "num_workers": 0},
        "parallel": {"micro_batch_size": min(batch_size, MICRO_BATCH_SIZE), "num_threads": THREADS},
        "checkpoint": {"every_steps": 100_000},
        "log": {"trackers": [], "every_steps": 100_000},
    }
    values["data"] |= {"image_features": "cache" if cached else "compute"}
    stamps: list[float] = []
    train(build_config(TrainConfig, values), after_step=lambda step: stamps.append(time.perf_counter()))
    return stamps[:-1]


def open_reader(model: Path, world: Path, size_px: int) -> Callable[[list[int]], "Batch"]:
    """Places in the mixture -> a batch of the samples that stand there."""
    import numpy as np

    from babelcap.coverage import Coverage
    from babelcap.data.feed.batches import BatchConfig
    from babelcap.data.feed.mixture import Mixture, MixtureConfig
    from babelcap.data.feed.reader import BatchReader
    from babelcap.data.feed.text import Tokenizers
    from babelcap.data.store.index import CorpusIndex
    from babelcap.models import load_processor

    index = CorpusIndex.open(world)
    mixture, processor = Mixture(index, MixtureConfig(), Coverage(), seed=0), load_processor(model)
    tokenizers = Tokenizers(processor.encoder_tokenizer, processor.decoder_tokenizer)
    reader = BatchReader(index, tokenizers, BatchConfig(image_size_px=size_px), Coverage())

    def read(wanted: list[int]) -> "Batch":
        places = np.array(wanted)
        batch, _ = reader.read(mixture.pairs, places, *mixture.resolve(places))
        assert batch is not None
        return batch

    return read


def shares_of_limits(
    found: dict[str, float], model: Path, world: Path, batch_size: int, size_px: int, *, cached: bool
) -> dict[str, float]:
    """Of a plain product's rate, with samples of the mean length, and of the memory of what is trained."""
    from babelcap.models import load_model
    from limits import operations_of_a_step, state_bytes

    captioner = load_model(model, dtype="float32")
    batch = open_reader(model, world, size_px)(list(range(WARMUP_STEPS * batch_size)))
    num_prompt_tokens = round(float(batch.attention_mask.sum()) / len(batch))
    num_target_tokens = round(float(batch.num_target_tokens.sum()) / len(batch))
    lengths = num_prompt_tokens, num_target_tokens
    operations = operations_of_a_step(captioner.config, 1, *lengths, image_size_px=size_px, cached=cached)
    return {
        "share_of_product": operations * found["samples_per_second"] / product_flops_per_second(),
        "share_of_memory": state_bytes(captioner) / found["peak_bytes"],
    }


def run_trainer(model: Path, world: Path, batch_size: int, size_px: int, num_steps: int) -> list[float]:
    import torch
    from transformers import Trainer, TrainerCallback, TrainingArguments

    from babelcap.models import load_model
    from babelcap.models.sizing.freezing import apply_policy

    torch.set_num_threads(THREADS)
    read = open_reader(model, world, size_px)
    stamps: list[float] = []

    class Samples(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return (WARMUP_STEPS + num_steps) * batch_size

        def __getitem__(self, index: int) -> int:
            return index

    def collate(places: list[int]) -> dict[str, Any]:
        return read(places).model_inputs()

    class Stamp(TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            stamps.append(time.perf_counter())

    captioner = load_model(model, dtype="float32")
    apply_policy(captioner, "pretraining")
    arguments = TrainingArguments(
        output_dir=str(model.parent / "trainer"),
        max_steps=WARMUP_STEPS + num_steps,
        per_device_train_batch_size=batch_size,
        learning_rate=1e-4,
        weight_decay=0.01,
        max_grad_norm=1.0,
        optim="adamw_torch",
        use_cpu=True,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        remove_unused_columns=False,
        disable_tqdm=True,
    )
    Trainer(captioner, arguments, collate, Samples(), callbacks=[Stamp()]).train()
    return stamps


def measure_one(side: str, model: Path, world: Path, batch_size: int, size_px: int, num_steps: int) -> dict[str, float]:
    if side == "trainer":
        stamps = run_trainer(model, world, batch_size, size_px, num_steps)
    else:
        stamps = run_babelcap(model, world, batch_size, size_px, num_steps, cached="cached" in side)
    seconds = stamps[-1] - stamps[WARMUP_STEPS - 1]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    found = {"samples_per_second": num_steps * batch_size / seconds, "peak_bytes": peak}
    if side != "trainer":
        found |= shares_of_limits(found, model, world, batch_size, size_px, cached="cached" in side)
    return found


def in_own_process(*arguments: str) -> dict[str, Any]:
    """Peak memory is a process's; the first run's would be the second's too."""
    environment = os.environ | {"OMP_NUM_THREADS": str(THREADS), "TOKENIZERS_PARALLELISM": "false"}
    command = [sys.executable, __file__, "--worker", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--models", nargs="+", default=["micro-florence-l", "micro-gemma-l", "0.4B"])
    parser.add_argument("--worker", nargs="+", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        side, model, world, *numbers = options.worker
        print(json.dumps(measure_one(side, Path(model), Path(world), *map(int, numbers))))
        return
    results: dict[str, dict[str, Any]] = {}
    for name in options.models:
        batch_size, size_px, num_steps = settings_of(name, options.quick)
        with tempfile.TemporaryDirectory() as folder:
            world = make_world(Path(folder) / "world", size_px)
            model = make_model(name, world, Path(folder) / "model")
            numbers = [str(number) for number in (batch_size, size_px, num_steps)]
            results[name] = {side: in_own_process(side, str(model), str(world), *numbers) for side in SIDES}
    if options.json:
        print(json.dumps(results))
        return
    print(f"{'model':18} {'side':28} {'samples/s':>10} {'ratio':>6} {'peak GiB':>9}")
    for name, sides in results.items():
        for side, result in sides.items():
            ratio = result["samples_per_second"] / sides["trainer"]["samples_per_second"]
            peak = result["peak_bytes"] / 2**30
            print(f"{name:18} {side:28} {result['samples_per_second']:10.1f} {ratio:6.2f} {peak:9.2f}")


if __name__ == "__main__":
    main()
