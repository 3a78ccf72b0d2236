"""Where the time of one step of decoding goes, and which products were chosen.

The model of bench/generate.py, 4 beams, batch 4, without the encoder; with `--size`, another, such as micro-florence-l.
Parts are timed by wrapping them, so that a part's seconds are its own and those of what it calls; the rest is the
difference to the whole.

python bench/step.py [--size 0.4B] [--int8] [--shortlist] [--tokens 16] [--json]
"""

import argparse
import json
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch

from babelcap.models import Captioner
from babelcap.models.generation import bart_step, packing, rolling, steps
from babelcap.models.generation.caches import SharedEncoderCache
from babelcap.models.generation.choosing import CHOOSER
from babelcap.models.generation.searching import Search
from babelcap.models.network.bart_decoder import BartTextDecoder
from babelcap.models.network.prompted import EncoderOutput
from babelcap.models.sizing.sizes import size_config
from generate import BATCH, NUM_SHORTLISTED
from measure import CLOCK

NUM_POSITIONS = 66  # of the encoder: an image of 224 px and 16 tokens


class Parts:
    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)

    def timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **options: Any) -> Any:
            start = CLOCK()
            try:
                return function(*arguments, **options)
            finally:
                self.seconds[name] += CLOCK() - start

        return run


def run_benchmark(size: str, num_tokens: int, *, int8: bool, shortlist: bool) -> dict[str, Any]:
    torch.manual_seed(0)
    model = Captioner(size_config(size)).eval()
    model.keeps_packed, model.quantise = True, "int8" if int8 else None
    with torch.no_grad():
        model.decoder.embed_tokens.weight.normal_(std=0.08)[model.config.eos_token_id].zero_()
    states = torch.randn(BATCH.batch_size, NUM_POSITIONS, model.config.encoder_config.hidden_size)
    encoded = EncoderOutput(last_hidden_state=states, attention_mask=torch.ones(states.shape[:2], dtype=torch.long))
    allowed = torch.randperm(model.config.vocab_size)[:NUM_SHORTLISTED] if shortlist else None
    parts = Parts()
    make_product, written = packing.make_product, steps.STEPS[BartTextDecoder]

    def made(kind: str, weight: torch.Tensor, *others: Any) -> Callable[..., Any]:
        is_head = weight.shape[0] > 4 * weight.shape[1]
        return parts.timed("head" if is_head else "layers' products", make_product(kind, weight, *others))

    def generate() -> float:
        start = CLOCK()
        model.generate(
            torch.ones(BATCH.batch_size, 1, dtype=torch.long),
            encoder_outputs=encoded,
            num_beams=BATCH.num_beams,
            max_new_tokens=num_tokens,
            allowed_tokens=allowed,
        )
        return CLOCK() - start

    with (
        patch.object(packing, "make_product", made),
        patch.object(bart_step, "attend_few", parts.timed("attention", bart_step.attend_few)),
        patch.dict(steps.STEPS, {BartTextDecoder: written._replace(run=parts.timed("layers", written.run))}),
        patch.object(rolling, "best_tokens", parts.timed("best tokens", rolling.best_tokens)),
        patch.object(Search, "advance", parts.timed("search", Search.advance)),
        patch.object(SharedEncoderCache, "reorder_cache", parts.timed("beams", SharedEncoderCache.reorder_cache)),
        patch.object(rolling.RollingDecoder, "_read", parts.timed("first tokens", rolling.RollingDecoder._read)),
        torch.inference_mode(),
    ):
        generate()
        runs = []
        for _ in range(3):
            parts.seconds.clear()
            runs.append((generate(), dict(parts.seconds)))
    whole, found = min(runs, key=lambda run: run[0])
    found["layers, rest"] = found.pop("layers") - found["layers' products"] - found["attention"]
    found["softmax and best"] = found.pop("best tokens") - found["head"]
    found["rest"] = whole - sum(found.values())
    times = {name: round(1e3 * seconds / num_tokens, 2) for name, seconds in sorted(found.items())}
    return {"milliseconds a step": {"whole": round(1e3 * whole / num_tokens, 2), **times}, "plan": plan_lines()}


def plan_lines() -> list[str]:
    """Of each measured shape, the milliseconds of each kind of product."""
    return [
        f"{shape.num_outputs} x {shape.num_inputs}, {shape.num_rows} rows, {num_threads} threads: "
        + ", ".join(f"{kind} {1e3 * timing.seconds:.2f}" for kind, timing in timings.items())
        for (shape, num_threads, _, _), timings in CHOOSER.known.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="0.4B", help="one with a BART decoder")
    parser.add_argument("--int8", action="store_true")
    parser.add_argument("--shortlist", action="store_true")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = run_benchmark(options.size, options.tokens, int8=options.int8, shortlist=options.shortlist)
    if options.json:
        print(json.dumps(result))
        return
    for name, value in result["milliseconds a step"].items():
        print(f"{name:20}{value:10}")
    print("\n".join(result["plan"]))


if __name__ == "__main__":
    main()
