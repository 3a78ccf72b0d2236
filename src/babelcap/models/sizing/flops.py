"""Multiply-accumulates and activation memory of one forward pass, counted from the modules, without any weights.

The model and its inputs stand on the meta device: every product of a real pass is seen with its shapes and counted by
torch's own formulas. MACs = FLOPs / 2, as products and convolutions are counted; element-wise work is not.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from babelcap.models.network.captioner import Captioner
from babelcap.models.network.configuration import CaptionerConfig

NUM_ENCODER_TOKENS = 128
NUM_DECODER_TOKENS = 128
PARTS = {
    "vision tower": "encoder.vision_tower",
    "projector": "encoder.projector",
    "text encoder": "encoder.text_encoder",
    "decoder": "decoder",
    "head": "head",
}


class ForwardCount(NamedTuple):
    macs: dict[str, int]
    activation_bytes: int


def meta_captioner(config: CaptionerConfig) -> Captioner:
    with torch.device("meta"):
        return Captioner(config)


def count_forward(
    model: Captioner,
    image_size_px: int,
    num_encoder_tokens: int = NUM_ENCODER_TOKENS,
    num_decoder_tokens: int = NUM_DECODER_TOKENS,
) -> ForwardCount:
    """Of one image, a prompt and its targets, by a model on the meta device, in one pass.

    MACs are by part and in `total`. Activations are the float32 bytes that the pass keeps for its backward, given what
    is frozen, without the head, whose loss keeps no logits. Attention keeps its scores here, as it does where it is
    soft-capped; a fused one keeps less. Dropout masks, where there is dropout, come on top.
    """
    weights = {weight.untyped_storage()._cdata for weight in (*model.parameters(), *model.buffers())}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            kept[storage._cdata] = storage
        return tensor

    counter = _MacCounter()
    with torch.device("meta"), counter, counter.parts_of(model.eval()):
        with torch.enable_grad(), saved_tensors_hooks(keep, lambda tensor: tensor):
            outputs = model(
                input_ids=torch.zeros(1, num_encoder_tokens, dtype=torch.long),
                pixel_values=torch.zeros(1, 3, image_size_px, image_size_px),
                decoder_input_ids=torch.zeros(1, num_decoder_tokens, dtype=torch.long),
                decoder_attention_mask=torch.ones(1, num_decoder_tokens, dtype=torch.long),
                logits_needed=False,
            )
        with torch.no_grad():
            model.head(outputs.decoder_last_hidden_state, model.head_weight)
    macs = {part: counter.flops[part] // 2 for part in PARTS} | {"total": counter.flops.total() // 2}
    return ForwardCount(macs, sum(storage.nbytes() for storage in kept.values()))


def forward_macs(model: Captioner, image_size_px: int) -> dict[str, int]:
    return count_forward(model, image_size_px).macs


def activation_bytes(model: Captioner, image_size_px: int) -> int:
    return count_forward(model, image_size_px).activation_bytes


class _MacCounter(TorchDispatchMode):
    """Counts what torch has a formula for, under the part of the model that is at work."""

    def __init__(self) -> None:
        super().__init__()
        self.flops: Counter[str] = Counter()
        self._part = ""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # A mask's values are asked for, to leave out one that hides nothing; there are none here, so it stays.
        if func is torch.ops.aten._local_scalar_dense.default:
            return False
        result = func(*args, **(kwargs or {}))
        formula = flop_registry.get(func._overloadpacket)
        if formula is not None:
            self.flops[self._part] += formula(*args, **(kwargs or {}), out_val=result)
        return result

    @contextmanager
    def parts_of(self, model: nn.Module) -> Iterator[None]:
        handles = []
        modules = dict(model.named_modules())
        for part, name in PARTS.items():
            if (module := modules.get(name)) is None:  # not every encoder has a projector
                continue
            handles += [module.register_forward_pre_hook(self._enter(part)), module.register_forward_hook(self._leave)]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, part: str) -> Callable[..., None]:
        def enter(*_: Any) -> None:
            self._part = part

        return enter

    def _leave(self, *_: Any) -> None:
        self._part = ""
