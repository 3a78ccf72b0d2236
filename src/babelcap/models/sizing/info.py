"""What a model is and costs: P, Pt of each phase, MACs of a forward pass, memory. Counted without any weights."""

from pathlib import Path
from typing import Any

from babelcap.errors import UserError
from babelcap.models.checkpoints.loading import read_config
from babelcap.models.checkpoints.weights import Checkpoint
from babelcap.models.network.configuration import MAX_IMAGE_SIZE_PX, CaptionerConfig
from babelcap.models.sizing.flops import (
    NUM_DECODER_TOKENS,
    NUM_ENCODER_TOKENS,
    count_forward,
    meta_captioner,
)
from babelcap.models.sizing.freezing import POLICIES, apply_policy, get_policy, training_table
from babelcap.models.sizing.sizes import SIZES, get_size, size_config

BYTES = {"bf16": 2, "fp32": 4}
NUM_BEAMS = 4
BATCH_SIZE = 8


def read_size_or_folder(name: str) -> CaptionerConfig:
    """The configuration of a named size, or of a model's folder in our format or the published one."""
    if name in SIZES:
        return size_config(name)
    if not Path(name).exists():
        get_size(name)
    return read_config(Checkpoint(name))


def model_info(
    config: CaptionerConfig, image_size_px: int | None = None, policy: str = "pretraining"
) -> dict[str, Any]:
    """All numbers as plain data. `policy` decides the table of what trains and the memory of training."""
    get_policy(policy)
    image_size_px = config.image_size_px if image_size_px is None else image_size_px
    if not 1 <= image_size_px <= MAX_IMAGE_SIZE_PX:
        raise UserError(f"image_size_px is {image_size_px}; it must lie between 1 and {MAX_IMAGE_SIZE_PX}")
    model = meta_captioner(config)
    trained = {}
    for name in POLICIES:
        rows = training_table(apply_policy(model, name))
        trained[name] = sum(row.num_trained for row in rows)
    table = training_table(apply_policy(model, policy))
    num_parameters = sum(row.num_parameters for row in table)
    macs, activations = count_forward(model, image_size_px)
    return {
        "encoder": config.encoder_config.kind,
        "decoder": config.decoder_config.kind,
        "image_size_px": image_size_px,
        "num_encoder_tokens": NUM_ENCODER_TOKENS,
        "num_decoder_tokens": NUM_DECODER_TOKENS,
        "P": num_parameters,
        "Pt": trained,
        "macs": macs,
        "policy": policy,
        "table": [row._asdict() for row in table],
        "memory_bytes": {
            precision: _memory(config, size, image_size_px, num_parameters, trained[policy], activations)
            for precision, size in BYTES.items()
        },
    }


def _memory(
    config: CaptionerConfig,
    number_size: int,
    image_size_px: int,
    num_parameters: int,
    num_trained: int,
    activations: int,
) -> dict[str, dict[str, int]]:
    """Training in bf16 is with float32 copies of the weights that train; AdamW's two moments are float32 always."""
    inference = {
        "weights": num_parameters * number_size,
        f"cache of {NUM_BEAMS} beams": _cache_numbers(config, image_size_px) * NUM_BEAMS * number_size,
    }
    training = {
        "weights": num_parameters * number_size,
        "float32 copies": num_trained * 4 if number_size < 4 else 0,
        "gradients": num_trained * number_size,
        "AdamW": num_trained * 8,
        f"activations of batch {BATCH_SIZE}": activations * BATCH_SIZE * number_size // 4,
    }
    return {
        "inference": inference | {"total": sum(inference.values())},
        "training": training | {"total": sum(training.values())},
    }


def _cache_numbers(config: CaptionerConfig, image_size_px: int) -> int:
    """Keys and values of one sequence: of its own tokens, and of the encoder's where a layer attends to them."""
    decoder = config.decoder_config
    num_encoder_states = config.encoder_config.num_image_tokens(image_size_px) + NUM_ENCODER_TOKENS
    if decoder.kind == "bart":
        width = crossing_width = decoder.d_model
        num_crossing = decoder.decoder_layers
    else:
        _, num_heads, head_width, _ = decoder.cross_attention_shape()
        width, crossing_width = decoder.num_key_value_heads * decoder.head_dim, num_heads * head_width
        num_crossing = len(decoder.layers_with_cross_attention())
    own = width * decoder.num_hidden_layers * NUM_DECODER_TOKENS
    return int(2 * (own + crossing_width * num_crossing * num_encoder_states))
