"""Peak memory and time of one training step at the 0.4B size: the loss in chunks against full logits.

Each path runs in a process of its own, on random weights, batch 8 x 128 target tokens, 224 px. The peak is the kernel's
own high-water mark (VmHWM), set back just before the measured step. `whole` is all of the process at its highest;
`above` is that without what is resident before the step whichever the path (program, weights, AdamW's moments). Limits
are a plain product of the same type, and what weights, gradients and moments take.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

BATCH_SIZE, NUM_PROMPT_TOKENS, NUM_TARGET_TOKENS = 8, 128, 128
PATHS = {"full logits": True, "in chunks": False}


def memory_bytes(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    return int(found[1]) * 1024 if found else 0


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def measure(logits_needed: bool, options: argparse.Namespace) -> dict[str, Any]:
    import torch

    from babelcap.models import Captioner
    from babelcap.models.sizing.freezing import apply_policy
    from babelcap.models.sizing.sizes import size_config

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    config = size_config(options.size)
    model = apply_policy(Captioner(config), "pretraining").eval()  # no dropout: both paths do the same sums
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, fused=True)
    generator = torch.Generator().manual_seed(1)
    image_size_px = config.image_size_px
    batch = {
        "input_ids": torch.randint(1000, (BATCH_SIZE, NUM_PROMPT_TOKENS), generator=generator),
        "pixel_values": torch.randn(BATCH_SIZE, 3, image_size_px, image_size_px, generator=generator),
        "labels": torch.randint(config.vocab_size, (BATCH_SIZE, NUM_TARGET_TOKENS), generator=generator),
    }

    def step() -> float:
        with torch.autocast("cpu", torch.bfloat16, enabled=options.dtype == "bf16"):
            loss = model(**batch, logits_needed=logits_needed).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    losses = [step()]  # fills the optimizer's state and the allocator's pools
    resident = memory_bytes("VmRSS")
    reset_peak()
    seconds = []
    for _ in range(options.repeats):
        start = time.perf_counter()
        losses.append(step())
        seconds.append(time.perf_counter() - start)
    peak = memory_bytes("VmHWM")
    return {
        "seconds": statistics.median(seconds),
        "whole_bytes": peak,
        "above_bytes": peak - resident,
        "losses": losses,
    }


def run(path: str, options: argparse.Namespace) -> dict[str, Any]:
    given = ["--size", options.size, "--dtype", options.dtype, "--repeats", str(options.repeats)]
    given += ["--threads", str(options.threads), "--measure", path]
    done = subprocess.run([sys.executable, __file__, *given], stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def limits(found: dict[str, Any], options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What time and memory of the loss in chunks are of the least that they can be."""
    import torch

    from babelcap.models import Captioner
    from babelcap.models.sizing.sizes import size_config
    from limits import operations_of_a_step, state_bytes
    from measure import STATE, product_flops_per_second, share_of

    torch.set_num_threads(options.threads)
    config = size_config(options.size)
    operations = operations_of_a_step(config, BATCH_SIZE, NUM_PROMPT_TOKENS, NUM_TARGET_TOKENS)
    rate = product_flops_per_second("bfloat16" if options.dtype == "bf16" else "float32")
    with torch.device("meta"):
        model = Captioner(config)
    return {
        "seconds": share_of("plain product", operations / found["seconds"] / rate),
        "whole_bytes": share_of(STATE, state_bytes(model) / found["whole_bytes"]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one measured step instead of three")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--size", default="0.4B")
    parser.add_argument("--dtype", choices=["fp32", "bf16"], default="fp32", help="bf16: autocast")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--measure", choices=PATHS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.repeats = 1 if options.quick else options.repeats
    if options.measure:
        print(json.dumps(measure(PATHS[options.measure], options)))
        return
    results = {path: run(path, options) for path in PATHS}
    full, chunks = results["full logits"], results["in chunks"]
    ratios = {name: chunks[name] / full[name] for name in ("seconds", "whole_bytes", "above_bytes")}
    if options.json:
        print(json.dumps({"results": results, "ratios": ratios, "limits": limits(chunks, options)}))
        return
    print(f"one training step, {options.size}, {options.dtype}, batch {BATCH_SIZE} x {NUM_TARGET_TOKENS} target tokens")
    print(f"{'':14}{'seconds':>10}{'whole GiB':>12}{'above GiB':>12}")
    for path, found in results.items():
        sizes = [found[name] / 2**30 for name in ("whole_bytes", "above_bytes")]
        print(f"{path:14}{found['seconds']:10.2f}{sizes[0]:12.2f}{sizes[1]:12.2f}")
    print(f"{'ratio':14}{ratios['seconds']:10.2f}{ratios['whole_bytes']:12.2f}{ratios['above_bytes']:12.2f}")
    print(f"losses of both paths: {full['losses'][0]:.5f} {chunks['losses'][0]:.5f}")


if __name__ == "__main__":
    main()
