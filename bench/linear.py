"""Linear layers in float32, forwards and backwards: oneDNN's products in turn with torch's own.

The shapes of a training step at the 0.4B size: layers of the decoder, a block of the head, windows of the image tower.
Both give the same up to rounding. A training takes oneDNN's where `models/network/linear.py` expects a gain; `chosen`
says what it does on this processor. The limit is the faster plain product of large matrices.

python bench/linear.py [--quick] [--repeats 9] [--json]
"""

import argparse
import json
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor

from babelcap.models.network import linear
from babelcap.models.network.linear import FastLinear, uses_onednn
from measure import alternate, product_flops_per_second, row, share_of

SHAPES = (  # rows, inputs, outputs
    (264, 768, 768),
    (264, 768, 3072),
    (264, 3072, 768),
    (256, 768, 8192),
    (2304, 256, 1024),
    (12_544, 128, 384),
)


def forwards_and_backwards(layer: FastLinear, states: Tensor, gradient: Tensor, *, onednn: bool) -> Callable[[], Any]:
    def run() -> tuple[Tensor, ...]:
        with patch.object(linear, "uses_onednn", lambda: onednn):
            found = layer(states)
            return (found.detach(), *torch.autograd.grad(found, [states, layer.weight, layer.bias], gradient))

    return run


def measured(shape: tuple[int, int, int], repeats: int, rate: float) -> dict[str, Any]:
    num_rows, num_inputs, num_outputs = shape
    torch.manual_seed(0)
    layer, states = FastLinear(num_inputs, num_outputs), torch.randn(num_rows, num_inputs, requires_grad=True)
    gradient = torch.randn(num_rows, num_outputs)
    ways = {
        name: forwards_and_backwards(layer, states, gradient, onednn=name == "onednn") for name in ("torch", "onednn")
    }
    found = alternate(ways, repeats)
    for one, other in zip(*(found.results[name] for name in ways), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-2)
    operations = 3 * 2 * num_rows * num_inputs * num_outputs
    return row(
        f"linear: {num_outputs} x {num_inputs}, {num_rows} rows",
        "torch's own",
        **found.ratio("onednn", "torch"),
        **share_of("plain product of float32", operations / found.best("onednn") / rate),
        chosen=uses_onednn(),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--quick", action="store_true", help="three repeats")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rate, repeats = product_flops_per_second(), 3 if options.quick else options.repeats
    rows = [measured(shape, repeats, rate) for shape in SHAPES]
    if options.json:
        print(json.dumps({"rows": rows}))
        return
    print(f"oneDNN is {'' if uses_onednn() else 'not '}chosen here; {torch.get_num_threads()} threads")
    for found in rows:
        print(f"{found['name']:36}{found['ratio']:7.2f} [{found['low']:.2f}, {found['high']:.2f}]")


if __name__ == "__main__":
    main()
