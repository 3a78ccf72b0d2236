"""Generation at Florence-2-base's dimensions with 257,024 tokens, in turn with transformers' own Florence-2, cache on.

The same random weights on both sides, 4 beams, 64 new tokens, batch 4; float32 must give transformers' tokens.
Ours: float32, with a shortlist of 20,000, int8, both. Florence-2 has no soft cap of its logits, so neither side has
one; `--capped` adds the captioners' own, which transformers' model cannot have.
`one text` is a single sample, greedy: one row of states, where decoding is reading the weights and little else.
Beside the ratios, the share of the memory bandwidth that decoding reaches: the weights and cached states that a step
has to read, a second, as a share of a plain copy's; and of the arithmetic, as a share of a plain float32 product's.

python bench/generate.py [--quick] [--only NAME] [--uncached] [--capped] [--json]
"""

import argparse
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import Florence2Config, Florence2ForConditionalGeneration
from transformers.initialization import no_init_weights

from babelcap.models import Captioner
from babelcap.models.sizing.sizes import size_config
from measure import Run, alternate, copy_bytes_per_second, product_flops_per_second, row, share_of


class Asked(NamedTuple):
    batch_size: int
    num_beams: int
    note: str = ""  # behind the names of its variants

    @property
    def num_rows(self) -> int:
        return self.batch_size * self.num_beams


BATCH, ONE_TEXT = Asked(4, 4), Asked(1, 1, ", one text")
NUM_PROMPT_TOKENS = 16
NUM_SHORTLISTED = 20_000
BASELINE = "transformers"
OURS = ("float32", "shortlist", "int8", "int8, shortlist", "float32, one text", "int8, one text")
CAPPED = ("float32, capped", "int8, shortlist, capped")
TARGETS = {"float32": 2.0, "int8": 5.0, "int8, shortlist": 12.0}


def make_captioner() -> Captioner:
    """Random weights, spread so that beams differ, no two tokens tie and no sequence ends early."""
    torch.manual_seed(0)
    model = Captioner(size_config("0.4B")).eval()
    embedding = model.decoder.embed_tokens.weight
    _spread(embedding, model.config.eos_token_id)
    with torch.no_grad():  # transformers' model has one vocabulary for prompts and texts
        prompts = model.encoder.text_encoder.embed_tokens.weight
        prompts.copy_(embedding[: len(prompts)])
    model.head.softcap = None
    model.keeps_packed = True  # as a pipeline does
    return model


def make_baseline(model: Captioner) -> Florence2ForConditionalGeneration:
    """transformers' own, of the same parts with the same weights."""
    encoder, decoder = model.config.encoder_config, model.config.decoder_config
    names = ("d_model", "max_position_embeddings", *(f"{side}_{name}" for side in ("encoder", "decoder") for name in (
        "layers", "attention_heads", "ffn_dim")))  # fmt: skip
    text = {name: getattr(encoder.text_config if "encoder" in name else decoder, name) for name in names}
    special = {name: getattr(decoder, name) for name in ("pad_token_id", "bos_token_id", "eos_token_id")}
    config = Florence2Config(
        vision_config=encoder.vision_config.to_dict(),
        text_config={
            "model_type": "bart",
            "vocab_size": decoder.vocab_size,
            "decoder_start_token_id": decoder.decoder_start_token_id,
            "forced_eos_token_id": None,
            **text,
            **special,
        },
    )
    with no_init_weights():  # all are read from ours below
        baseline = Florence2ForConditionalGeneration(config).eval()
    baseline.tie_weights()  # left out together with the drawing
    parts = baseline.model
    for theirs, ours in (
        (parts.vision_tower, model.encoder.vision_tower),
        (parts.multi_modal_projector, model.encoder.projector),
        (parts.language_model.decoder, model.decoder),
    ):
        theirs.load_state_dict(ours.state_dict())
    encoder_weights = model.encoder.text_encoder.state_dict()
    encoder_weights["embed_tokens.weight"] = model.decoder.embed_tokens.weight
    parts.language_model.encoder.load_state_dict(encoder_weights)
    for name, value in special.items():
        setattr(baseline.generation_config, name, value)
    baseline.generation_config.decoder_start_token_id = decoder.decoder_start_token_id
    baseline.generation_config.forced_eos_token_id = None
    return baseline


@torch.no_grad()
def _spread(embedding: Tensor, end: int) -> None:
    embedding.normal_(std=0.08)
    embedding[end].zero_()


def make_inputs(model: Captioner, image_size_px: int, batch_size: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(1)
    vocab_size = model.config.encoder_config.vocab_size
    return {
        "input_ids": torch.randint(3, vocab_size, (batch_size, NUM_PROMPT_TOKENS), generator=generator),
        "pixel_values": torch.randn(batch_size, 3, image_size_px, image_size_px, generator=generator),
    }


def weights_of_a_step(model: Captioner, num_rows: int) -> int:
    """The decoder's layers, without what is computed once a sample, and so many rows of the head."""
    layers = sum(parameter.numel() for parameter in model.decoder.layers.parameters())
    unused = sum(
        projection.weight.numel()
        for layer in model.decoder.layers
        for projection in (layer.encoder_attn.k_proj, layer.encoder_attn.v_proj)  # their result is cached
    )
    return layers - unused + num_rows * int(model.config.decoder_config.d_model)


def bytes_of_a_step(
    model: Captioner, asked: Asked, num_rows: int, num_positions: int, num_new_tokens: int, *, int8: bool
) -> float:
    """What a decoding step must read at least: the weights and both caches, on average."""
    decoder = model.config.decoder_config
    across = 2 * decoder.decoder_layers * asked.batch_size * num_positions * decoder.d_model
    own = 2 * decoder.decoder_layers * asked.num_rows * num_new_tokens / 2 * decoder.d_model
    return (1.0 if int8 else 4.0) * weights_of_a_step(model, num_rows) + 4.0 * (across + own)


def encoding_seconds(model: Captioner, inputs: dict[str, Tensor], quantise: str | None) -> float:
    model.quantise = quantise
    return alternate({"encode": lambda: model.encode(**inputs)}, 3).best("encode")


def make_variants(
    model: Captioner,
    baseline: Florence2ForConditionalGeneration,
    inputs: dict[str, Tensor],
    asked: Asked,
    num_new_tokens: int,
) -> dict[str, Run]:
    """Everything that can be measured, by name."""
    settings = {"num_beams": asked.num_beams, "max_new_tokens": num_new_tokens}
    allowed = torch.randperm(model.config.vocab_size, generator=torch.Generator().manual_seed(2))[:NUM_SHORTLISTED]
    cap = model.config.decoder_config.logit_softcap
    with torch.inference_mode():
        num_positions = model.encoder(**inputs).last_hidden_state.shape[1]
    image = torch.full((asked.batch_size, num_positions - NUM_PROMPT_TOKENS), baseline.config.image_token_id)
    theirs = {**inputs, "input_ids": torch.cat([image, inputs["input_ids"]], dim=1)}

    def ours(quantise: str | None, softcap: float | None = None, **options: Any) -> Tensor:
        model.quantise, model.head.softcap = quantise, softcap
        return model.generate(**inputs, **settings, **options)

    known: dict[str, Run] = {
        BASELINE: lambda: baseline.generate(**theirs, **settings, use_cache=True, do_sample=False),
        "float32": lambda: ours(None),
        "shortlist": lambda: ours(None, allowed_tokens=allowed),
        "int8": lambda: ours("int8"),
        "int8, shortlist": lambda: ours("int8", allowed_tokens=allowed),
        "float32, capped": lambda: ours(None, cap),
        "int8, shortlist, capped": lambda: ours("int8", cap, allowed_tokens=allowed),
        "uncached": lambda: ours(None, use_cache=False),
    }
    return {name + asked.note: run for name, run in known.items()}


def measure(
    model: Captioner,
    baseline: Florence2ForConditionalGeneration,
    asked: Asked,
    names: Sequence[str],
    options: argparse.Namespace,
) -> dict[str, Any]:
    """The variants of one way of asking, in turn with transformers'."""
    inputs = make_inputs(model, options.image_size_px, asked.batch_size)
    num_new_tokens, theirs = options.num_new_tokens, BASELINE + asked.note
    known = make_variants(model, baseline, inputs, asked, num_new_tokens)
    variants = {name: known[name] for name in (theirs, *names)}
    with torch.inference_mode():
        for name in names:
            variants[name]()  # measured and packed once; a process that captions does so for its first batch
        copied, multiplied = copy_bytes_per_second(), product_flops_per_second()
        timings = alternate(variants, options.repeats)
        encoding = {kind: encoding_seconds(model, inputs, kind) for kind in (None, "int8")}
        num_positions = model.encoder(**inputs).last_hidden_state.shape[1]
    rows = []
    for name in names:
        if timings.results[name].shape[1] != 1 + num_new_tokens:
            raise AssertionError(f"{name}: a sequence ended early")
        found: dict[str, Any] = {"seconds": round(timings.best(name), 3), **timings.ratio(name, theirs)}
        if "uncached" not in name:
            int8, num_rows = "int8" in name, NUM_SHORTLISTED if "shortlist" in name else model.config.vocab_size
            read = bytes_of_a_step(model, asked, num_rows, num_positions, num_new_tokens, int8=int8)
            steps = num_new_tokens / (timings.best(name) - encoding["int8" if int8 else None])  # a second
            flops = 2 * asked.num_rows * weights_of_a_step(model, num_rows)
            found |= share_of("copy bandwidth", steps * read / copied)
            found |= {"target": TARGETS.get(name), "share of product": round(steps * flops / multiplied, 3)}
        rows.append(row(f"generate: {name}", "transformers' Florence-2, cached", **found))
    tokens = timings.results
    exact = [name for name in names if name.removesuffix(asked.note) in ("float32", "uncached")]
    same = {name: bool(torch.equal(tokens[name], tokens[theirs])) for name in exact}
    if not all(same.values()):  # a time says nothing of other texts
        raise AssertionError(f"not transformers' tokens: {', '.join(name for name in exact if not same[name])}")
    return {
        f"copy GB/s{asked.note}": round(copied / 1e9, 2),
        f"product GFLOPS{asked.note}": round(multiplied / 1e9, 1),
        f"encoding seconds{asked.note}": round(encoding[None], 3),
        f"encoding seconds, int8{asked.note}": round(encoding["int8"], 3),
        f"{theirs} seconds": round(timings.best(theirs), 3),
        f"transformers' tokens{asked.note}": same,
        "rows": rows,
    }


def run_benchmark(names: Sequence[str], options: argparse.Namespace) -> dict[str, Any]:
    model = make_captioner()
    baseline = make_baseline(model)
    found: dict[str, Any] = {
        "num_new_tokens": options.num_new_tokens,
        "image_size_px": options.image_size_px,
        "num_threads": torch.get_num_threads(),
        "repeats": options.repeats,
    }
    rows: list[dict[str, Any]] = []
    for asked in (BATCH, ONE_TEXT):
        own = [name for name in names if name.endswith(ONE_TEXT.note) == (asked is ONE_TEXT)]
        if own:
            found |= measure(model, baseline, asked, own, options)
            rows += found.pop("rows")
    return found | {"rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="16 new tokens, two repeats")
    parser.add_argument("--repeats", type=int, default=None)
    parser.add_argument("--only", action="append", help="one of ours, such as 'float32'; may be given several times")
    parser.add_argument("--uncached", action="store_true", help="also without any cache")
    parser.add_argument("--capped", action="store_true", help="also with the soft cap that the captioners have")
    parser.add_argument("--image-size-px", type=int, default=224)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    options.repeats = options.repeats or (2 if options.quick else 3)
    options.num_new_tokens = 16 if options.quick else 64
    names = list(options.only or OURS)
    names += [name for name in CAPPED if options.capped]
    names += ["uncached"] if options.uncached else []
    result = run_benchmark(names, options)
    if options.json:
        print(json.dumps(result))
        return
    rows = result.pop("rows")
    print("  ".join(f"{name}: {value}" for name, value in result.items() if value is not None))
    columns = ["seconds", "ratio", "low", "high", "target", "share of limit", "share of product"]
    print(f"{'':28}" + "".join(f"{column:>18}" for column in columns))
    for found in rows:
        print(f"{found['name']:28}" + "".join(f"{found.get(column) or '':>18}" for column in columns))


if __name__ == "__main__":
    main()
