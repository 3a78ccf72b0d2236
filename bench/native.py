"""The compiled products in turn with what there is without them: how many times as fast.

int8 against oneDNN's and torch's small calls around it, equal bit for bit; float32 against the fastest of torch's plain
product, MKL's and oneDNN's packed ones and weights first. The shapes of a step of decoding at the 0.4B size, with as
many weights as a step has, so that they come from memory as a step's do; and for int8 shapes of the encoder, with an
image's positions. Then the best of a vocabulary's logits and their sum, against torch's calls. The limit is what is
nearer: reading and writing as fast as a plain copy, or a plain product of large matrices of the same type. `--level
avx2` measures what a processor without VNNI would do; ONEDNN_MAX_CPU_ISA=AVX2 tells oneDNN the same.

python bench/native.py [--quick] [--level NAME] [--rows 1 4 16 64] [--repeats 9] [--json]
"""

import argparse
import json
import os
from collections.abc import Sequence
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from babelcap.models.generation import products
from babelcap.models.generation.candidates import CHUNK_OUTPUTS, chunk_bounds, look_compiled, look_in_torch
from babelcap.models.generation.products import EXACT, INT8, KINDS, NATIVE, NATIVE_INT8, make_product
from babelcap.native.compiled import VARIABLE, known_float_levels
from babelcap.native.int8 import known_levels
from measure import alternate, copy_bytes_per_second, nearest_limit, product_flops_per_second, row

STEP = ((2304, 768), (768, 768), (3072, 768), (768, 3072), (20_000, 768))  # outputs, inputs
ENCODER = ((768, 256, 2304), (256, 1024, 2304), (1536, 512, 577), (3072, 768, 577), (768, 3072, 577))  # and rows
VOCABULARY = 257_024
NUM_WEIGHTS = 2**26  # that are multiplied in turn


class Rates(NamedTuple):
    """A second, of this machine in this run."""

    copied_bytes: float
    float32: float  # operations
    int8: float


def nearest(
    rates: Rates, seconds: float, num_outputs: int, num_inputs: int, num_rows: int, *, int8: bool
) -> dict[str, Any]:
    moved = num_outputs * num_inputs * (1 if int8 else 4) + 4 * num_rows * (num_outputs + num_inputs)
    product = 2 * num_outputs * num_inputs * num_rows / (rates.int8 if int8 else rates.float32)
    name = f"plain product of {'int8' if int8 else 'float32'}"
    return nearest_limit({"copy bandwidth": moved / rates.copied_bytes / seconds, name: product / seconds})


@torch.inference_mode()
def measured(
    kinds: Sequence[str],
    num_outputs: int,
    num_inputs: int,
    num_rows: int,
    *,
    num_copies: int,
    repeats: int,
    rates: Rates,
) -> dict[str, Any]:
    """The last kind is ours; it is held against the fastest of the others, and must give what the first gives."""
    generator = torch.Generator().manual_seed(0)
    weight, bias, states = (
        torch.randn(shape, generator=generator)
        for shape in ((num_outputs, num_inputs), (num_outputs,), (num_rows, num_inputs))
    )
    weights = [weight.clone() for _ in range(num_copies)]  # each in memory of its own, which some kinds do not copy
    made = {kind: [make_product(kind, one, bias, num_rows) for one in weights] for kind in kinds}
    found = alternate(
        {kind: lambda ways=ways: [product(states) for product in ways][-1] for kind, ways in made.items()}, repeats
    )
    first, *_, ours = kinds
    baseline = min(kinds[:-1], key=found.best)
    name = f"native: {num_outputs} x {num_inputs}, {num_rows} rows" + ("" if ours == NATIVE_INT8 else ", float32")
    is_same = torch.equal if ours == NATIVE_INT8 else torch.allclose
    if not is_same(found.results[first], found.results[ours], **({} if ours == NATIVE_INT8 else {"atol": 1e-4})):
        raise AssertionError(f"{name}: results differ")
    microseconds = {f"microseconds, {kind}": round(1e6 * found.best(kind) / num_copies, 1) for kind in made}
    against = "oneDNN's int8" if ours == NATIVE_INT8 else f"the fastest other ({baseline})"
    limit = nearest(rates, found.best(ours) / num_copies, num_outputs, num_inputs, num_rows, int8=ours == NATIVE_INT8)
    return row(name, against, **found.ratio(ours, baseline), **limit, **microseconds)


@torch.inference_mode()
def best_of_logits(num_rows: int, repeats: int, rates: Rates) -> dict[str, Any]:
    """The best eight of a vocabulary and log sum exp, chunk by chunk; a chunk is in the cache as it is in a step."""
    logits = torch.randn(num_rows, CHUNK_OUTPUTS, generator=torch.Generator().manual_seed(0)) * 5
    chunks = [(start, logits) for start, _ in chunk_bounds(VOCABULARY)]
    level = known_float_levels("best")[0]
    ways = {
        "torch": lambda: look_in_torch(chunks, 8, sums=True),
        "compiled": lambda: look_compiled(chunks, 8, num_rows, level=level, sums=True),
    }
    found = alternate(ways, repeats)
    for theirs, ours in zip(*(found.results[name][::2] for name in ways), strict=True):  # places of equal ones differ
        if not torch.allclose(theirs, ours, atol=1e-5):
            raise AssertionError("the best of logits differ")
    num_bytes = len(chunks) * logits.numel() * 4
    limit = nearest_limit({"copy bandwidth": num_bytes / rates.copied_bytes / found.best("compiled")})
    microseconds = {f"microseconds, {name}": round(1e6 * found.best(name), 1) for name in ways}
    name = f"native: the best of {VOCABULARY:,} logits, {num_rows} rows"
    return row(name, "torch", **found.ratio("compiled", "torch"), **limit, **microseconds)


def run_benchmark(rows: Sequence[int], repeats: int) -> dict[str, Any]:
    exact = [*(kind for kind in EXACT if kind != NATIVE and KINDS[kind].is_known()), NATIVE]
    rates = Rates(copy_bytes_per_second(), product_flops_per_second(), product_flops_per_second("int8"))
    found = [
        measured(
            kinds,
            *shape,
            num_rows,
            num_copies=max(1, NUM_WEIGHTS // (shape[0] * shape[1])),
            repeats=repeats,
            rates=rates,
        )
        for kinds in ((INT8, NATIVE_INT8), exact)
        for num_rows in rows
        for shape in STEP
    ]
    found += [
        measured((INT8, NATIVE_INT8), *shape, num_copies=1, repeats=2 * repeats, rates=rates) for shape in ENCODER
    ]
    found += [best_of_logits(num_rows, repeats, rates) for num_rows in rows]
    return {"num_threads": torch.get_num_threads(), "repeats": repeats, "rows": found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", choices=[level.name for level in known_levels()], help="the fastest by default")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="16 rows, three repeats")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    known = [level for level in known_levels() if options.level in (None, level.name)]
    if not known:  # without a compiler there is nothing to compare, and nothing wrong
        print(json.dumps({"rows": []}) if options.json else "nothing was compiled for this processor")
        return
    is_wide = known[0].max_zero == 128 and torch.cpu._is_vnni_supported()
    with (
        patch.dict(os.environ, {VARIABLE: known[0].name}),
        patch.object(products, "_has_exact_sums", lambda: is_wide),
    ):
        found = run_benchmark([16] if options.quick else options.rows, 3 if options.quick else options.repeats)
    found["level"] = known[0].name
    if options.json:
        print(json.dumps(found))
        return
    print(f"{found['level']}, {found['num_threads']} threads")
    for line in found["rows"]:
        times = ", ".join(f"{name} {value}" for name, value in line.items() if name.startswith("microseconds"))
        print(f"{line['name']:42}{line['ratio']:7.2f} [{line['low']:.2f}, {line['high']:.2f}]   {times}")


if __name__ == "__main__":
    main()
