"""What int8 changes: the share of equal tokens of greedy captions, and the loss of true captions, against float32.

python bench/quantise.py MODEL [MODEL ...] [--images 48] [--json]

MODEL is a captioner's folder; pictures and true captions are the world's. A folder of golden fixtures, such as
tests/golden/florence2, brings its own inputs and labels. `all` rounds small matrices too, which `int8` leaves alone.
`int4` says why it is not offered: the same matrices with 4 bits a weight, a scale for each 32, states as they are.
"""

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import load_file
from torch import Tensor

from babelcap.coverage import CAPTION, Style
from babelcap.models import Captioner, load, load_model
from babelcap.models.generation import packing
from babelcap.models.generation.packing import encoder_products, plan_products, rounded_names
from babelcap.world.annotate import Wording, training_annotations
from babelcap.world.render import render
from babelcap.world.scenes import draw_scene, generator
from measure import row

NUM_NEW_TOKENS = 40
BATCH_SIZE = 16
INT8, INT4 = "int8", "int4"
MODES = [
    (kind, which, smallest)
    for which, smallest in (("", packing.MIN_INT8_WEIGHTS), (", all", 1))
    for kind in (INT8, INT4)
]
GROUP, LARGEST_INT4 = 32, 7


class Batch(NamedTuple):
    inputs: dict[str, Tensor]
    labels: Tensor


def world_batches(folder: Path, num_images: int) -> tuple[Captioner, list[Batch]]:
    pipeline = load(folder)
    processor, coverage = pipeline.processor, pipeline.coverage
    samples = []
    for index in range(num_images):
        rng = generator(7, "quantise", index)
        scene = draw_scene(rng)
        picture = render(scene, rng, processor.image_size_px)
        texts = training_annotations(scene, coverage, Wording(styles=(Style.SHORT,)), rng)
        samples += [
            (picture, coverage.prompt(text.pair, Style.SHORT, None), text.target)
            for text in texts
            if text.task == CAPTION
        ]
    batches = []
    for start in range(0, len(samples), BATCH_SIZE):
        pictures, prompts, targets = zip(*samples[start : start + BATCH_SIZE], strict=True)
        config, tokenizer = pipeline.model.config, processor.decoder_tokenizer
        rows = tokenizer(list(targets), add_special_tokens=False)["input_ids"]
        ids = [torch.tensor([config.bos_token_id, *tokens, config.eos_token_id]) for tokens in rows]
        labels = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=-100)
        batches.append(Batch(dict(processor(list(pictures), list(prompts))), labels))
    return pipeline.model, batches


def golden_batches(folder: Path) -> tuple[Captioner, list[Batch]]:
    with tempfile.TemporaryDirectory() as name:
        shutil.copyfile(folder / "reference_config.json", Path(name) / "config.json")
        shutil.copyfile(folder / "reference_weights.safetensors", Path(name) / "model.safetensors")
        model = load_model(name, dtype="float32")
    found = load_file(folder / "reference_io.safetensors")
    inputs = {key: found[key] for key in ("input_ids", "attention_mask", "pixel_values")}
    return model, [Batch(inputs, found["labels"])]


@torch.no_grad()
def measure(model: Captioner, batches: list[Batch], quantise: str | None) -> tuple[list[list[int]], float, int]:
    """Greedy tokens, summed loss, number of target tokens; the loss is computed by the products of generation."""
    model.quantise, model.keeps_packed = quantise, True
    tokens: list[list[int]] = []
    total, number = 0.0, 0
    for batch in batches:
        room = model.config.decoder_config.max_position_embeddings - 2
        found = model.generate(**batch.inputs, num_beams=1, max_new_tokens=min(NUM_NEW_TOKENS, room))
        tokens += [[token for token in line if token != model.config.pad_token_id] for line in found.tolist()]
        decoding = plan_products(model, model.head_weight, len(batch.labels), 64)
        with encoder_products(model).applied(), decoding.applied():
            loss = model(**batch.inputs, labels=batch.labels, num_items_in_batch=1.0).loss
        total += float(loss)
        number += int((batch.labels != -100).sum())
    model.packed_weights.clear()
    return tokens, total, number


def in_int4(weight: Tensor) -> Tensor:
    """The values that 4 bits a weight can have: -7 to 7 times a scale, which is the largest of 32 neighbours / 7."""
    groups = torch.nn.functional.pad(weight, (0, -weight.shape[1] % GROUP)).unflatten(1, (-1, GROUP))
    scales = groups.abs().amax(dim=2, keepdim=True).clamp(min=1e-12) / LARGEST_INT4
    return ((groups / scales).round() * scales).flatten(1)[:, : weight.shape[1]]


@contextmanager
def weights_in_int4(model: Captioner) -> Iterator[None]:
    weights = {name: model.get_parameter(name) for name in rounded_names(model)}
    before = {name: weight.detach().clone() for name, weight in weights.items()}
    with torch.no_grad():
        for weight in weights.values():
            weight.copy_(in_int4(weight))
        yield
        for name, weight in weights.items():
            weight.copy_(before[name])


def compare(name: str, model: Captioner, batches: list[Batch]) -> list[dict[str, Any]]:
    exact, loss, number = measure(model, batches, None)
    rows = []
    for kind, which, smallest in MODES:
        packing.MIN_INT8_WEIGHTS = smallest
        with weights_in_int4(model) if kind == INT4 else nullcontext():
            found, rounded_loss, _ = measure(model, batches, INT8 if kind == INT8 else None)
        pairs = list(zip(exact, found, strict=True))
        equal = sum(a == b for left, right in pairs for a, b in zip(left[1:], right[1:], strict=False))
        rows.append(
            row(
                f"{name}: {kind}{which}",
                "float32",
                **{
                    "equal tokens": round(equal / sum(max(len(left), len(right)) - 1 for left, right in pairs), 4),
                    "equal texts": round(sum(left == right for left, right in pairs) / len(pairs), 4),
                    "loss": round(loss / number, 5),
                    "loss difference": round((rounded_loss - loss) / number, 5),
                    "num_texts": len(pairs),
                },
            )
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", type=Path)
    parser.add_argument("--images", type=int, default=48)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = []
    for folder in options.models:
        is_golden = (folder / "reference_io.safetensors").is_file()
        model, batches = golden_batches(folder) if is_golden else world_batches(folder, options.images)
        rows += compare(folder.name if is_golden else folder.parent.name, model, batches)
    if options.json:
        print(json.dumps({"rows": rows}))
        return
    for found in rows:
        print("  ".join(f"{key}: {value}" for key, value in found.items() if key != "baseline"))


if __name__ == "__main__":
    main()
