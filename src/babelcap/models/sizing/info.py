"""What a model is and costs: P, Pt of each phase, MACs of a forward pass, memory. Counted without any weights."""

import json
import math
from pathlib import Path
from typing import Any

from babelcap.errors import UserError
from babelcap.models.checkpoints.loading import CONFIG_FILE, INDEX_FILE, build_captioner_config
from babelcap.models.checkpoints.published import convert_config, is_published
from babelcap.models.network.configuration import CaptionerConfig
from babelcap.models.sizing.flops import (
    NUM_DECODER_TOKENS,
    NUM_ENCODER_TOKENS,
    activation_bytes,
    forward_macs,
    meta_captioner,
)
from babelcap.models.sizing.freezing import POLICIES, apply_policy, get_policy, training_table
from babelcap.models.sizing.sizes import SIZES, get_size, size_config
from babelcap.storage import read_json

BYTES = {"bf16": 2, "fp32": 4}
NUM_BEAMS = 4
BATCH_SIZE = 8


def read_size_or_folder(name: str) -> CaptionerConfig:
    """The configuration of a named size, or of a model's folder in our format or the published one."""
    if name in SIZES:
        return size_config(name)
    folder = Path(name)
    if not folder.exists():
        get_size(name)
    path = folder / CONFIG_FILE if folder.is_dir() else folder
    values = read_json(path)
    if not isinstance(values, dict):
        raise UserError(f"{path}: expected a table of settings, found {type(values).__name__}")
    if is_published(values):
        return convert_config(values, _weight_names(path.parent))
    if values.get("model_type") != CaptionerConfig.model_type:
        raise UserError(f"{path}: model_type is {values.get('model_type')!r}, not a captioner's")
    return build_captioner_config(values, str(path))


def _weight_names(folder: Path) -> list[str]:
    """Names without weights; a published configuration leaves it to them which layers have cross-attention."""
    if (folder / INDEX_FILE).is_file():
        return list(read_json(folder / INDEX_FILE).get("weight_map", {}))
    path = folder / "model.safetensors"
    if not path.is_file():
        return []
    with path.open("rb") as file:
        header = file.read(int.from_bytes(file.read(8), "little"))
    try:
        return [name for name in json.loads(header) if name != "__metadata__"]
    except json.JSONDecodeError:
        raise UserError(f"{path} is damaged or cut short; copy or download it again") from None


def model_info(
    config: CaptionerConfig, image_size_px: int | None = None, policy: str = "pretraining"
) -> dict[str, Any]:
    """All numbers as plain data. `policy` decides the table of what trains and the memory of training."""
    get_policy(policy)
    image_size_px = image_size_px or config.image_size_px
    model = meta_captioner(config)
    trained = {}
    for name in POLICIES:
        rows = training_table(apply_policy(model, name))
        trained[name] = sum(row.num_trained for row in rows)
    macs = forward_macs(model, image_size_px)
    table = training_table(apply_policy(model, policy))
    num_parameters = sum(row.num_parameters for row in table)
    activations = activation_bytes(model, image_size_px)
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
    stride = math.prod(config.encoder_config.vision_config.patch_stride)
    num_encoder_states = 1 + math.ceil(image_size_px / stride) ** 2 + NUM_ENCODER_TOKENS
    if decoder.kind == "bart":
        width, num_crossing = decoder.d_model, decoder.decoder_layers
    else:
        width, num_crossing = (
            decoder.num_key_value_heads * decoder.head_dim,
            len(decoder.layers_with_cross_attention()),
        )
    return int(2 * width * (decoder.num_hidden_layers * NUM_DECODER_TOKENS + num_crossing * num_encoder_states))
