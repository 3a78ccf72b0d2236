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
from babelcap.models.generation.rolling import Encoded, RollingDecoder, Sample
from babelcap.models.generation.searching import Beam
from babelcap.models.network.prompted import EncoderOutput
from babelcap.models.sizing.sizes import size_config
from generate import weights_of_a_step
from measure import alternate, product_flops_per_second, row, share_of

NUM_LANGUAGES, NUM_BEAMS, BATCH_SIZE, WIDTH_TOKENS = 6, 4, 16, 66


def lengths(number: int) -> list[int]:
    """New tokens of captions: about 15, some 40, as log-normal lengths are."""
    drawn = np.random.default_rng(0).lognormal(np.log(15), 0.45, number)
    return [int(length) for length in drawn.clip(4, 64)]


class Work:
    """A model with requests that end at lengths of their own, and the ways to serve them."""

    def __init__(self, size: str, num_images: int) -> None:
        torch.manual_seed(0)
        self.model = Captioner(size_config(size)).eval()
        self.model.keeps_packed = True
        with torch.no_grad():
            self.model.decoder.embed_tokens.weight[self.model.config.eos_token_id].zero_()
        self.number = num_images * NUM_LANGUAGES
        self.allowed = lengths(self.number)
        rules = self.model.own_rules({"num_beams": NUM_BEAMS, "max_length": 1 + max(self.allowed)})
        if rules is None:
            raise AssertionError("this model's search is transformers'")
        self.rules = rules
        self.states = torch.randn(self.number, WIDTH_TOKENS, self.model.config.encoder_config.hidden_size)
        self.mask = torch.ones(WIDTH_TOKENS, dtype=torch.long)
        start = self.model.config.decoder_start_token_id
        self.samples = [
            Sample(place, [start], Encoded(state, self.mask), 1 + length)
            for place, (state, length) in enumerate(zip(self.states, self.allowed, strict=True))
        ]

    def operations(self) -> float:
        """Of every beam's every token, in the decoder's layers and the head."""
        weights = weights_of_a_step(self.model, self.model.config.vocab_size)
        return 2.0 * weights * NUM_BEAMS * sum(self.allowed)

    def transformers_loop(self) -> Tensor:
        """As it was: transformers' beam search with our caches, each batch until its longest ends."""
        self.model.quantise = None
        for first in range(0, self.number, BATCH_SIZE):
            part = self.states[first : first + BATCH_SIZE]
            mask = self.mask.expand(len(part), -1)
            found = self.model.generate(
                torch.ones(len(part), 1, dtype=torch.long),
                encoder_outputs=EncoderOutput(last_hidden_state=part, attention_mask=mask),
                num_beams=NUM_BEAMS,
                max_new_tokens=max(self.allowed[first : first + BATCH_SIZE]),
                renormalize_logits=True,  # unknown to our search, without effect on a beam search's order
            )
        return found

    def batches(self) -> dict[int, list[Beam]]:
        """Our search, each batch until its longest ends."""
        self.model.quantise = None
        found: dict[int, list[Beam]] = {}
        for first in range(0, self.number, BATCH_SIZE):
            found |= self._decode(self.samples[first : first + BATCH_SIZE])
        return found

    def full(self, quantise: str | None) -> dict[int, list[Beam]]:
        """What has ended leaves, and what waits enters."""
        self.model.quantise = quantise
        return self._decode(self.samples)

    def _decode(self, some: list[Sample]) -> dict[int, list[Beam]]:
        waiting = list(some)
        products = self.model.fast_products(None, BATCH_SIZE * NUM_BEAMS, max(self.allowed))
        decoder = RollingDecoder(self.model, self.rules, None, products)
        return dict(decoder.run(lambda wanted: [waiting.pop(0) for _ in waiting[:wanted]], BATCH_SIZE))


def tokens(found: dict[int, list[Beam]]) -> dict[int, list[Any]]:
    return {place: [beam.tokens for beam in beams] for place, beams in found.items()}


def run_benchmark(size: str, num_images: int, repeats: int) -> dict[str, Any]:
    work = Work(size, num_images)
    variants = {
        "before": work.transformers_loop,
        "batches": work.batches,
        "full batches": lambda: work.full(None),
        "full batches, int8": lambda: work.full("int8"),
    }
    for name in ("full batches", "full batches, int8"):
        variants[name]()
    timings = alternate(variants, repeats)
    rate = product_flops_per_second()
    rows = [
        row(
            f"captions: {name}",
            "transformers' loop, batches that end together",
            captions_per_second=round(work.number / timings.best(name), 2),
            **timings.ratio(name, "before"),
            **share_of("plain product", work.operations() / timings.best(name) / rate),
        )
        for name in list(variants)[1:]
    ]
    same = tokens(timings.results["batches"]) == tokens(timings.results["full batches"])
    return {"size": size, "num_captions": work.number, "same texts": same, "rows": rows}


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
