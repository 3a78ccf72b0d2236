"""Multiply-accumulates and activation memory of one forward pass, counted from the modules, without any weights.

The model stands on the meta device and runs on fake tensors: torch's own counter sees every product that a real pass
would do. MACs = FLOPs / 2, as products and convolutions are counted; element-wise work is not.
"""

from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

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


def meta_captioner(config: CaptionerConfig) -> Captioner:
    with torch.device("meta"):
        return Captioner(config)


def _forward(model: Captioner, image_size_px: int, num_tokens: tuple[int, int], **options: Any) -> None:
    model(
        input_ids=torch.zeros(1, num_tokens[0], dtype=torch.long),
        pixel_values=torch.zeros(1, 3, image_size_px, image_size_px),
        decoder_input_ids=torch.zeros(1, num_tokens[1], dtype=torch.long),
        **options,
    )


def forward_macs(
    model: Captioner,
    image_size_px: int,
    num_encoder_tokens: int = NUM_ENCODER_TOKENS,
    num_decoder_tokens: int = NUM_DECODER_TOKENS,
) -> dict[str, int]:
    """MACs by part and in `total`, of one image, a prompt and its targets. The model is on the meta device."""
    counter = FlopCounterMode(display=False)
    with torch.device("meta"), FakeTensorMode(allow_non_fake_inputs=True), torch.no_grad(), counter:
        _forward(model.eval(), image_size_px, (num_encoder_tokens, num_decoder_tokens))
    counts = counter.get_flop_counts()
    root = type(model).__name__
    macs = {part: sum(counts.get(f"{root}.{module}", {}).values()) // 2 for part, module in PARTS.items()}
    macs["total"] = counter.get_total_flops() // 2
    return macs


def activation_bytes(
    model: Captioner,
    image_size_px: int,
    num_encoder_tokens: int = NUM_ENCODER_TOKENS,
    num_decoder_tokens: int = NUM_DECODER_TOKENS,
) -> int:
    """Bytes in float32 that one sample's forward keeps for the backward pass, given what is frozen, without the head.

    The head's loss keeps no logits. Attention keeps its scores here, as it does where it is soft-capped; a fused one
    keeps less. Dropout masks, where there is dropout, come on top.
    """
    fake = FakeTensorMode(allow_non_fake_inputs=True)
    fake_weights = [
        fake.from_tensor(weight) for weight in (*model.parameters(), *model.buffers())
    ]  # as the pass sees them
    weights = {weight.untyped_storage()._cdata for weight in fake_weights}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights:
            kept[storage._cdata] = storage
        return tensor

    hooks = saved_tensors_hooks(keep, lambda tensor: tensor)
    with torch.device("meta"), fake, torch.enable_grad(), hooks:
        _forward(model.eval(), image_size_px, (num_encoder_tokens, num_decoder_tokens), logits_needed=False)
    return sum(storage.nbytes() for storage in kept.values())
