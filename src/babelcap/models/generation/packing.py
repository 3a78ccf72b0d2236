"""During a generation, the decoder's layers and the head multiply in the way that was measured to be fastest here.

Packed weights are copies: exact ones as many as `MAX_BYTES` allow. They are kept from one generation to the next where
the model is asked to, as long as the weights stay the same.
"""

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from babelcap.models.generation.candidates import chunk_bounds
from babelcap.models.generation.choosing import CHOOSER, Shape
from babelcap.models.generation.products import INT8, KINDS, MIN_INT8_WEIGHTS, PLAIN, Product, can_choose, make_product
from babelcap.models.generation.shortlist import Shortlist

MAX_BYTES = 2**30  # of copies; the decoder layers and the whole head of the 0.4B size fit
KEPT_CALLS = 32  # as many generations a kept copy is taken to serve
MAX_SHORTLISTS = 12
MIN_STEPS = 8  # before, choosing costs more than it saves
ONCE_A_SAMPLE = ("encoder_attn.k_proj", "encoder_attn.v_proj")  # no part of a step: their results are cached


class Packed(NamedTuple):
    weight: "weakref.ref[Tensor]"
    version: int
    num_bytes: int
    product: Product


class PackedWeights:
    """Products by weight, kind and number of rows. A weight that changed or is gone is packed anew."""

    def __init__(self) -> None:
        self._packed: dict[tuple[int, int | None, str, int], Packed] = {}
        self._shortlists: dict[tuple[bytes, frozenset[int], int, int], Shortlist] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> "PackedWeights":
        return PackedWeights()  # of other weights

    def __reduce__(self) -> tuple[type["PackedWeights"], tuple[()]]:
        return PackedWeights, ()

    def clear(self) -> None:
        self._packed.clear()
        self._shortlists.clear()

    def shortlist(self, allowed: Tensor, only_read: set[int], weight: Tensor) -> Shortlist:
        """The same for the same tokens, so that its weights are gathered and packed once."""
        key = (allowed.cpu().numpy().tobytes(), frozenset(only_read), id(weight), _version(weight))
        if key not in self._shortlists:
            if len(self._shortlists) >= MAX_SHORTLISTS:
                del self._shortlists[next(iter(self._shortlists))]
            self._shortlists[key] = Shortlist(allowed, only_read, weight)
        return self._shortlists[key]

    def product(
        self, kind: str, weight: Tensor, bias: Tensor | None, num_rows: int, rows: slice = slice(None)
    ) -> Product:
        """Of some rows of a weight. Where there is no room left for a copy, the plain one."""
        self._forget_changed()
        num_bytes = KINDS[kind].bytes_a_weight * weight[rows].numel()
        if kind != INT8 and num_bytes and num_bytes + sum(kept.num_bytes for kept in self._packed.values()) > MAX_BYTES:
            kind, num_bytes = PLAIN, 0
        key = (id(weight), rows.start, kind, 0 if kind == INT8 else num_rows)
        if key not in self._packed:
            product = make_product(kind, weight[rows], bias, num_rows)
            self._packed[key] = Packed(weakref.ref(weight), _version(weight), num_bytes, product)
        return self._packed[key].product

    def _forget_changed(self) -> None:
        for key, packed in list(self._packed.items()):
            weight = packed.weight()
            if weight is None or _version(weight) != packed.version:
                del self._packed[key]


def step_layers(model: Any) -> dict[str, nn.Linear]:
    """The layers that every step of decoding multiplies by, by their names in the decoder."""
    return {
        name: module
        for name, module in model.decoder.named_modules()
        if isinstance(module, nn.Linear) and not name.endswith(ONCE_A_SAMPLE)
    }


def rounded_names(model: Any) -> list[str]:
    """The weights that int8 rounds: the large ones of a step, and the head's."""
    layers = step_layers(model).items()
    large = [name for name, layer in layers if layer.weight.numel() >= MIN_INT8_WEIGHTS]
    return [f"decoder.{name}.weight" for name in [*large, "embed_tokens"]]


class FastProducts(NamedTuple):
    """How the parts of a model multiply during a step; without any, in the usual way."""

    head: Any
    head_products: Sequence[Product] = ()
    layers: Sequence[tuple[nn.Linear, Product]] = ()
    num_threads: int | None = None  # that a step is planned for

    @contextmanager
    def applied(self, *, threads: bool = False) -> Iterator[None]:
        was = torch.get_num_threads()
        try:
            self.head.products = self.head_products
            for layer, product in self.layers:
                vars(layer)["forward"] = product
            if threads and self.num_threads not in (None, was):
                torch.set_num_threads(self.num_threads or was)
            yield
        finally:
            if torch.get_num_threads() != was:
                torch.set_num_threads(was)
            self.head.products = ()
            for layer, _ in self.layers:
                vars(layer).pop("forward", None)


@torch.no_grad()
def plan_products(model: Any, head_weight: Tensor, num_rows: int, num_steps: int) -> FastProducts:
    """For a generation with so many rows and at most so many steps. The head is packed in the chunks that it is
    multiplied in."""
    quantised, kept = model.quantise == INT8, model.packed_weights
    layers = [layer for layer in step_layers(model).values() if "forward" not in vars(layer)]
    is_worth_it = num_rows > 0 and (quantised or num_steps >= MIN_STEPS)
    if not is_worth_it or not all(can_choose(w, num_rows) for w in [head_weight, *(layer.weight for layer in layers)]):
        return FastProducts(model.head)
    bounds = list(chunk_bounds(len(head_weight)))
    head_shapes = [Shape(end - start, head_weight.shape[1], False, num_rows) for start, end in bounds]
    layer_shapes = [Shape(layer.out_features, layer.in_features, layer.bias is not None, num_rows) for layer in layers]
    rounded = {shape for shape in layer_shapes if shape.num_outputs * shape.num_inputs >= MIN_INT8_WEIGHTS}
    if model.keeps_packed:
        num_steps *= KEPT_CALLS
    plan = CHOOSER.plan(
        [*layer_shapes, *head_shapes], num_steps, rounded={*rounded, *head_shapes} if quantised else set()
    )
    head_products = [
        kept.product(plan.kinds[shape], head_weight, None, num_rows, slice(*rows))
        for shape, rows in zip(head_shapes, bounds, strict=True)
    ]
    products = [
        kept.product(plan.kinds[shape], layer.weight, layer.bias, num_rows)
        for layer, shape in zip(layers, layer_shapes, strict=True)
    ]
    return FastProducts(model.head, head_products, list(zip(layers, products, strict=True)), plan.num_threads)


def _version(weight: Tensor) -> int:
    return 0 if weight.is_inference() else weight._version
