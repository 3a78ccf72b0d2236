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
from babelcap.models.generation.products import (
    INT8,
    KINDS,
    MAX_ROWS,
    MIN_INT8_WEIGHTS,
    MKL,
    PLAIN,
    ROUNDED,
    Product,
    can_choose,
    make_product,
)
from babelcap.models.generation.shortlist import Shortlist
from babelcap.models.generation.steps import written_step

MAX_BYTES = 2**30  # of copies; the decoder layers and the whole head of the 0.4B size fit
KEPT_CALLS = 32  # as many generations a kept copy is taken to serve
MAX_SHORTLISTS = 12
MIN_ROUNDED_ENCODER = 2**25  # weights: of an encoder that has as many, small matrices are rounded too
MIN_STEPS = 8  # before, choosing costs more than it saves
ONCE_A_SAMPLE = ("encoder_attn.k_proj", "encoder_attn.v_proj")  # no part of a step: their results are cached


Place = tuple[tuple[int, ...], int | None]  # which weights, and the first of their rows


class Packed(NamedTuple):
    weights: list["weakref.ref[Tensor]"]
    versions: list[int]
    num_bytes: int
    product: Product


class PackedWeights:
    """Products by weight, kind and number of rows. A weight that changed or is gone is packed anew."""

    def __init__(self) -> None:
        self._packed: dict[tuple[tuple[int, ...], int | None, str, int], Packed] = {}  # by place, kind, rows
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
        self,
        kind: str,
        weights: Sequence[Tensor],
        biases: Sequence[Tensor | None],
        num_rows: int,
        rows: slice = slice(None),
    ) -> Product:
        """Of some rows of one weight, or of several one under the other. Without room for a copy, the plain one."""
        self._forget_changed()
        place = (tuple(map(id, weights)), rows.start)
        known = self._known(place, kind, num_rows)
        if known is not None:
            return known.product
        size = sum(weight[rows].numel() for weight in weights)
        num_bytes = size * (KINDS[kind].bytes_a_weight or (4 if len(weights) > 1 else 0))
        kept_bytes = sum(kept.num_bytes for kept in self._packed.values())
        if kind not in ROUNDED and num_bytes and num_bytes + kept_bytes > MAX_BYTES:
            kind, num_bytes = PLAIN, 0
        whole = torch.cat([weight[rows] for weight in weights]) if len(weights) > 1 else weights[0][rows]
        versions = [_version(weight) for weight in weights]
        product = make_product(kind, whole, _joined(biases), num_rows)
        packed = Packed([weakref.ref(weight) for weight in weights], versions, num_bytes, product)
        self._packed[(*place, kind, num_rows)] = packed
        return product

    def _known(self, place: Place, kind: str, num_rows: int) -> Packed | None:
        """What was packed for more rows serves fewer, but for MKL, whose layout is of one number of rows."""
        for (*of, of_kind, of_rows), packed in self._packed.items():
            is_enough = of_rows == num_rows or (kind != MKL and of_rows > num_rows) or kind in ROUNDED
            if tuple(of) == place and of_kind == kind and is_enough:
                return packed
        return None

    def _forget_changed(self) -> None:
        for key, packed in list(self._packed.items()):
            weights = [weight() for weight in packed.weights]
            if [None if weight is None else _version(weight) for weight in weights] != packed.versions:
                del self._packed[key]


def _joined(biases: Sequence[Tensor | None]) -> Tensor | None:
    given = [bias for bias in biases if bias is not None]
    return torch.cat(given) if len(given) > 1 else next(iter(given), None)


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
    large = [name for name, layer in layers if _is_large(layer)]
    return [f"decoder.{name}.weight" for name in [*large, "embed_tokens"]]


class FastProducts(NamedTuple):
    """How the parts of a model multiply during a step; without any, in the usual way."""

    head: Any
    head_products: Sequence[Product] = ()
    layers: Sequence[tuple[nn.Linear, Product]] = ()
    joined: Sequence[Product] = ()  # those of a step that is written out (steps.py): layers that have one input
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
    quantised, kept = model.quantise == INT8 and KINDS[INT8].is_known(), model.packed_weights
    layers = [layer for layer in step_layers(model).values() if "forward" not in vars(layer)]
    is_worth_it = num_rows > 0 and (quantised or num_steps >= MIN_STEPS)
    if not is_worth_it or not all(can_choose(w, num_rows) for w in [head_weight, *(layer.weight for layer in layers)]):
        return FastProducts(model.head)
    step = written_step(model.decoder)
    joined = [] if step is None else step.joined(model.decoder)
    if not quantised:  # a prompt is multiplied in the usual way; rounded, it is as what follows it
        layers = [layer for layer in layers if not any(layer in parts for parts in joined)]
    is_rounded = {  # a group that is rounded in part is multiplied part by part
        group: quantised and _is_large(group[0])
        for group in [*joined, *((layer,) for layer in layers)]
        if not quantised or len(set(map(_is_large, group))) == 1
    }
    bounds = list(chunk_bounds(len(head_weight)))
    head_shape = Shape(bounds[0][1], head_weight.shape[1], False, num_rows)
    exact = [_shape(group, num_rows) for group, rounded in is_rounded.items() if not rounded]
    rounded = [_shape(group, num_rows) for group, rounded in is_rounded.items() if rounded]
    (rounded if quantised else exact).extend([head_shape] * len(bounds))
    plan = CHOOSER.plan(exact, num_steps * (KEPT_CALLS if model.keeps_packed else 1), rounded=rounded)
    head_kind = plan.rounded[head_shape] if quantised else plan.kinds[head_shape]
    head_products = [kept.product(head_kind, [head_weight], [None], num_rows, slice(*rows)) for rows in bounds]
    products = {
        group: kept.product(
            (plan.rounded if rounded else plan.kinds)[_shape(group, num_rows)],
            [layer.weight for layer in group],
            [layer.bias for layer in group],
            num_rows,
        )
        for group, rounded in is_rounded.items()
    }
    return FastProducts(
        model.head,
        head_products,
        [(layer, products[layer,]) for layer in layers],
        [products.get(group) or _part_by_part(group) for group in joined],
        plan.num_threads,
    )


@torch.no_grad()
def encoder_products(model: Any) -> FastProducts:
    """For the encoder of a quantised model: its large layers multiply whole numbers too; otherwise as usual.

    Of a large encoder all layers are rounded: an image's many positions make its small ones a third of the time.
    """
    if model.quantise != INT8 or not KINDS[INT8].is_known():
        return FastProducts(model.head)
    found = [module for module in model.encoder.modules() if isinstance(module, nn.Linear)]
    is_whole = sum(layer.weight.numel() for layer in found) >= MIN_ROUNDED_ENCODER
    layers = [layer for layer in found if (is_whole or _is_large(layer)) and can_choose(layer.weight, 1)]
    # An image has more positions than are measured: what multiplies many rows fastest multiplies more of them so.
    shapes = [_shape([layer], MAX_ROWS) for layer in layers]
    num_calls = KEPT_CALLS if model.keeps_packed else 1
    products = [
        model.packed_weights.product(CHOOSER.way(shape, num_calls), [layer.weight], [layer.bias], MAX_ROWS)
        for layer, shape in zip(layers, shapes, strict=True)
    ]
    return FastProducts(model.head, layers=list(zip(layers, products, strict=True)))


def _is_large(layer: nn.Linear) -> bool:
    return layer.weight.numel() >= MIN_INT8_WEIGHTS


def _part_by_part(group: Sequence[nn.Linear]) -> Product:
    return lambda states: torch.cat([layer(states) for layer in group], dim=-1)


def _shape(group: Sequence[nn.Linear], num_rows: int) -> Shape:
    num_outputs = sum(layer.out_features for layer in group)
    return Shape(num_outputs, group[0].in_features, group[0].bias is not None, num_rows)


def _version(weight: Tensor) -> int:
    return 0 if weight.is_inference() else weight._version
