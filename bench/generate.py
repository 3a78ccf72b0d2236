"""Generation with Florence-2-base's dimensions and the 257,024 vocabulary: uncached, cached, with a shortlist.

One run, the same random weights: 4 beams, 64 new tokens, batch 4. Beside it the share of the memory bandwidth that
decoding reaches: the weights and the cached states that a step has to read, a second, as a share of a plain copy's.

python bench/generate.py [--quick] [--json]
"""

import argparse
import json
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from babelcap.models import Captioner
from babelcap.models.sizing.sizes import size_config

NUM_BEAMS = 4
BATCH_SIZE = 4
NUM_PROMPT_TOKENS = 16
NUM_SHORTLISTED = 20_000


def make_captioner() -> Captioner:
    """Random weights, spread so that beams differ, no two tokens tie and no sequence ends early."""
    torch.manual_seed(0)
    model = Captioner(size_config("0.4B")).eval()
    with torch.no_grad():
        model.decoder.embed_tokens.weight.mul_(4)
        model.decoder.embed_tokens.weight[model.config.eos_token_id].zero_()
    return model


def make_inputs(model: Captioner, image_size_px: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    vocab_size = model.config.encoder_config.vocab_size
    return {
        "input_ids": torch.randint(3, vocab_size, (BATCH_SIZE, NUM_PROMPT_TOKENS), generator=generator),
        "pixel_values": torch.randn(BATCH_SIZE, 3, image_size_px, image_size_px, generator=generator),
    }


def measure(run: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """The fastest of some runs, in seconds, and what it gave."""
    best, result = float("inf"), None
    for _ in range(repeats):
        start = time.perf_counter()
        result = run()
        best = min(best, time.perf_counter() - start)
    return best, result


def copy_bytes_per_second(num_bytes: int = 2**29) -> float:
    """A plain copy, counting what is read and what is written."""
    source = torch.ones(num_bytes // 4)
    target = torch.empty_like(source)
    seconds, _ = measure(lambda: target.copy_(source), repeats=5)
    return 2 * num_bytes / seconds


def bytes_of_a_step(model: Captioner, num_rows: int, num_positions: int, num_new_tokens: int) -> float:
    """What a decoding step must read at least: the decoder's weights, the head's rows, both caches, on average."""
    decoder = model.config.decoder_config
    layers = sum(parameter.numel() for parameter in model.decoder.layers.parameters())
    unused = sum(
        projection.weight.numel()
        for layer in model.decoder.layers
        for projection in (layer.encoder_attn.k_proj, layer.encoder_attn.v_proj)  # their result is cached
    )
    across = 2 * decoder.decoder_layers * BATCH_SIZE * num_positions * decoder.d_model
    own = 2 * decoder.decoder_layers * BATCH_SIZE * NUM_BEAMS * num_new_tokens / 2 * decoder.d_model
    return 4.0 * (layers - unused + num_rows * decoder.d_model + across + own)


def run_benchmark(num_new_tokens: int, image_size_px: int, repeats: int) -> dict[str, Any]:
    model = make_captioner()
    inputs = make_inputs(model, image_size_px)
    vocab_size = model.config.vocab_size
    allowed = torch.randperm(vocab_size, generator=torch.Generator().manual_seed(2))[:NUM_SHORTLISTED]
    settings = {"num_beams": NUM_BEAMS, "max_new_tokens": num_new_tokens}
    model.generate(**inputs, num_beams=NUM_BEAMS, max_new_tokens=2)  # warm up
    variants = {
        "cached": (vocab_size, {}),
        "shortlist": (NUM_SHORTLISTED, {"allowed_tokens": allowed}),
        "uncached": (None, {"use_cache": False}),
    }
    copied = copy_bytes_per_second()
    rows, tokens = {}, {}
    with torch.inference_mode():
        encoding, encoded = measure(lambda: model.encoder(**inputs), repeats)
        seconds = dict.fromkeys(variants, float("inf"))
        for _ in range(repeats):  # in turn, so that a slow minute of the machine slows all of them
            for name, (_, options) in variants.items():
                took, tokens[name] = measure(lambda o=options: model.generate(**inputs, **settings, **o), 1)
                seconds[name] = min(seconds[name], took)
    for name, (num_rows, _) in variants.items():
        assert tokens[name].shape[1] == 1 + num_new_tokens, "a sequence ended early"
        rows[name] = {"seconds": round(seconds[name], 3)}
        if num_rows is not None:
            read = bytes_of_a_step(model, num_rows, encoded.last_hidden_state.shape[1], num_new_tokens)
            rate = read * num_new_tokens / (seconds[name] - encoding)
            rows[name] |= {"GB/s": round(rate / 1e9, 2), "share of copy": round(rate / copied, 3)}
    for row in rows.values():
        row["times uncached"] = round(rows["uncached"]["seconds"] / row["seconds"], 2)
    return {
        "num_beams": NUM_BEAMS,
        "batch_size": BATCH_SIZE,
        "num_new_tokens": num_new_tokens,
        "image_size_px": image_size_px,
        "num_threads": torch.get_num_threads(),
        "copy GB/s": round(copied / 1e9, 2),
        "encoding seconds": round(encoding, 3),
        "same tokens": bool(torch.equal(tokens["cached"], tokens["uncached"])),
        "variants": {name: rows[name] for name in ("uncached", "cached", "shortlist")},
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="16 new tokens, one repeat")
    parser.add_argument("--image-size-px", type=int, default=224)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    result = run_benchmark(16 if options.quick else 64, options.image_size_px, repeats=1 if options.quick else 3)
    if options.json:
        print(json.dumps(result))
        return
    variants = result.pop("variants")
    print("  ".join(f"{name}: {value}" for name, value in result.items()))
    columns = ["seconds", "times uncached", "GB/s", "share of copy"]
    print(f"{'':12}" + "".join(f"{column:>16}" for column in columns))
    for name, row in variants.items():
        print(f"{name:12}" + "".join(f"{row.get(column, ''):>16}" for column in columns))


if __name__ == "__main__":
    main()
