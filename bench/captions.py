"""Captions a second over images x languages through the core: full batches, against batches that end together.

Features stand for the images, so that decoding is what is measured. Texts end at different lengths, drawn for each
request: a random model does not end by itself, so each request is allowed as many new tokens as a caption may have.
`before` is a call of generate for each batch, which waits for its longest; both give the same texts.

python bench/captions.py [--images 500] [--quick] [--json]
"""

import argparse
import json
from typing import Any

import numpy as np
import torch
from torch import Tensor

from babelcap.models import Captioner
from babelcap.models.generation.rolling import RollingDecoder, Sample
from babelcap.models.generation.searching import Beam
from babelcap.models.network.prompted import EncoderOutput
from babelcap.models.sizing.sizes import size_config
from measure import alternate, row

NUM_LANGUAGES, NUM_BEAMS, BATCH_SIZE, WIDTH_TOKENS = 6, 4, 16, 66


def lengths(number: int) -> list[int]:
    """New tokens of captions: about 15, some 40, as log-normal lengths are."""
    drawn = np.random.default_rng(0).lognormal(np.log(15), 0.45, number)
    return [int(length) for length in drawn.clip(4, 64)]


def run_benchmark(size: str, num_images: int, repeats: int) -> dict[str, Any]:
    torch.manual_seed(0)
    model = Captioner(size_config(size)).eval()
    model.keeps_packed = True
    with torch.no_grad():
        model.decoder.embed_tokens.weight[model.config.eos_token_id].zero_()
    number = num_images * NUM_LANGUAGES
    allowed = lengths(number)
    states = torch.randn(number, WIDTH_TOKENS, model.config.encoder_config.hidden_size)
    start = model.config.decoder_start_token_id
    rules = model.own_rules({"num_beams": NUM_BEAMS, "max_length": 1 + max(allowed)})
    if rules is None:
        raise AssertionError("this model's search is transformers'")
    mask = torch.ones(WIDTH_TOKENS, dtype=torch.long)
    samples = [Sample(place, [start], states[place], mask, 1 + allowed[place]) for place in range(number)]

    def decode(some: list[Sample]) -> dict[int, list[Beam]]:
        waiting = list(some)
        products = model.fast_products(None, BATCH_SIZE * NUM_BEAMS, max(allowed))
        decoder = RollingDecoder(model, rules, None, products)
        return dict(decoder.run(lambda wanted: [waiting.pop(0) for _ in waiting[:wanted]], BATCH_SIZE))

    def batches(quantise: str | None) -> dict[int, list[Beam]]:
        model.quantise = quantise
        found: dict[int, list[Beam]] = {}
        for first in range(0, number, BATCH_SIZE):
            found |= decode(samples[first : first + BATCH_SIZE])
        return found

    def full(quantise: str | None) -> dict[int, list[Beam]]:
        model.quantise = quantise
        return decode(samples)

    def transformers_loop() -> Tensor:
        """As it was: transformers' beam search with our caches, each batch until its longest ends."""
        model.quantise = None
        for first in range(0, number, BATCH_SIZE):
            part = states[first : first + BATCH_SIZE]
            longest = max(allowed[first : first + BATCH_SIZE])
            found = model.generate(
                torch.ones(len(part), 1, dtype=torch.long),
                encoder_outputs=EncoderOutput(last_hidden_state=part, attention_mask=mask.expand(len(part), -1)),
                num_beams=NUM_BEAMS,
                max_new_tokens=longest,
                renormalize_logits=True,  # unknown to our search, without effect on a beam search's order
            )
        return found

    variants = {
        "before": transformers_loop,
        "batches": lambda: batches(None),
        "full batches": lambda: full(None),
        "full batches, int8": lambda: full("int8"),
    }
    for name in ("full batches", "full batches, int8"):
        variants[name]()
    timings = alternate(variants, repeats)
    same = {place: [beam.tokens for beam in beams] for place, beams in timings.results["batches"].items()} == {
        place: [beam.tokens for beam in beams] for place, beams in timings.results["full batches"].items()
    }
    rows = [
        row(
            f"captions: {name}",
            "transformers' loop, batches that end together",
            captions_per_second=round(number / timings.best(name), 2),
            **timings.ratio(name, "before"),
            target=3.0 if name.startswith("full") else None,
        )
        for name in list(variants)[1:]
    ]
    return {"size": size, "num_captions": number, "same texts": same, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="micro-florence-l")
    parser.add_argument("--images", type=int, default=40, help="500 takes long")
    parser.add_argument("--quick", action="store_true", help="16 images, one repeat")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    num_images, repeats = (16, 1) if options.quick else (options.images, 3)
    result = run_benchmark(options.size, num_images, repeats)
    if options.json:
        print(json.dumps(result))
        return
    print(f"{result['num_captions']} captions, {result['size']}, same texts: {result['same texts']}")
    for found in result["rows"]:
        spread = f"{found['low']} to {found['high']}"
        print(f"{found['name']:32} {found['captions_per_second']:8} a second, {found['ratio']} times ({spread})")


if __name__ == "__main__":
    main()
