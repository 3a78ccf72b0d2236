"""What it costs to verify a captioner: seconds of checks as a share of one `caption` of one image, in one run.

    python bench/verify_model.py [MODEL] [--size micro-florence-l] [--beams 4] [--new-tokens 32]

Without a model a folder of random weights is made for the size. The share is (checks of the manifest + checks that
weights are finite) / (loading and one generation), the time of imports left out. Each part is run three times and the
fastest counts.
"""

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from babelcap.models import Captioner, load_model
from babelcap.models.checkpoints.files import MODEL_FILES, PROCESSOR_FILES
from babelcap.models.checkpoints.weights import Checkpoint
from babelcap.models.sizing.sizes import size_config
from babelcap.storage import check_manifest

NUM_RUNS = 3


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def fastest(action: Callable[[], object]) -> dict[str, float]:
    seconds, processor = [], []
    for _ in range(NUM_RUNS):
        start, start_processor = time.perf_counter(), processor_seconds()
        action()
        seconds.append(time.perf_counter() - start)
        processor.append(processor_seconds() - start_processor)
    return {"seconds": min(seconds), "processor_seconds": min(processor)}


def caption(folder: Path, num_beams: int, num_new_tokens: int) -> None:
    model = load_model(folder)
    size = model.config.image_size_px
    model.generate(
        input_ids=torch.ones(1, 16, dtype=torch.long),
        pixel_values=torch.zeros(1, 3, size, size),
        num_beams=num_beams,
        max_new_tokens=num_new_tokens,
        min_new_tokens=num_new_tokens,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="The cost of verifying a captioner.")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--size", default="micro-florence-l")
    parser.add_argument("--beams", type=int, default=4)
    parser.add_argument("--new-tokens", type=int, default=32)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(options.model or Path(place) / "model")
        if options.model is None:
            torch.manual_seed(0)
            Captioner(size_config(options.size)).save_pretrained(folder)
        tensors = Checkpoint(folder).read_all()
        groups = (MODEL_FILES, PROCESSOR_FILES)
        found = {
            "manifest": fastest(lambda: [check_manifest(folder, only=files) for files in groups]),
            "manifest in full": fastest(lambda: check_manifest(folder, full=True)),
            "finite": fastest(lambda: [tensor.sum().isfinite() for tensor in tensors.values()]),
            "caption": fastest(lambda: caption(folder, options.beams, options.new_tokens)),
        }
    for unit in ("seconds", "processor_seconds"):
        checks = found["manifest"][unit] + found["finite"][unit]
        print(f"{unit}: {checks:.4f} of {found['caption'][unit]:.4f} are checks: {checks / found['caption'][unit]:.1%}")
    print(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
