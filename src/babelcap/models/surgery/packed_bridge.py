"""A trained bridge on its own: float16 weights in one file, with the shape and the coverage that belong to them.

Backbone and decoder come from where they are published; with them a bridge of 14 MB is a captioner of a gigabyte again.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import torch
from pydantic import ValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file

from babelcap.coverage import CAPTION, Coverage, Pair
from babelcap.errors import UserError
from babelcap.models.checkpoints.files import MEAN_IMAGE_FILE
from babelcap.models.checkpoints.loading import load_model
from babelcap.models.checkpoints.weights import require_finite
from babelcap.models.generation.guidance import read_mean_image
from babelcap.models.network.bridge import BridgeConfig
from babelcap.models.network.configuration import CaptionerConfig
from babelcap.models.surgery.bridge import TrainedBridge, is_bridge
from babelcap.storage import atomic_file

FORMAT = "babelcap-bridge-1"
MEAN_IMAGE = "mean_image"


def shape_of(config: CaptionerConfig) -> BridgeConfig:
    """The shape that `prepare_bridge` gave to this captioner."""
    encoder, decoder = config.encoder_config, config.decoder_config
    if encoder.kind != "features":
        raise UserError(f"its encoder is '{encoder.kind}'; only a captioner of kind 'features' has a bridge")
    text = encoder.text_config
    return BridgeConfig(
        layers=tuple(decoder.layers_with_cross_attention()),
        num_heads=decoder.cross_attention_heads,
        head_width=decoder.cross_attention_head_dim,
        num_encoder_layers=text.encoder_layers,
        width=text.d_model,
        num_encoder_heads=text.encoder_attention_heads,
        feed_forward_width=text.encoder_ffn_dim,
        grid=encoder.grid,
        max_positions=text.max_position_embeddings,
        image_size_px=config.image_size_px,
        dropout=text.dropout,
    )


def pack_bridge(
    folder: str | Path,
    output: str | Path,
    prefixes: Mapping[str, str] | None = None,
    guidance_scale: float | None = None,
) -> int:
    """Writes the bridge of a captioner's folder and returns its number of bytes.

    `prefixes` by language stand in for the captioner's own: those of languages that it never captioned in were not
    trained with, and may be chosen afterwards, as may be `guidance_scale`, by default that of the captioner. Its mean
    image goes along.
    """
    model = load_model(folder, dtype=torch.float32)
    known = None if model.config.coverage is None else model.config.get_coverage()
    coverage = _with_prefixes(known, prefixes or {})
    about = {
        "format": FORMAT,
        "shape": shape_of(model.config).model_dump_json(),
        "coverage": json.dumps(None if coverage is None else coverage.model_dump(mode="json")),
    }
    weights = {name: tensor.half().contiguous() for name, tensor in model.state_dict().items() if is_bridge(name)}
    scale = model.guidance_scale({"guidance_scale": guidance_scale} if guidance_scale is not None else {})
    if scale != 1:
        about["guidance_scale"] = json.dumps(scale)
    if scale != 1 or (Path(model.folder or folder) / MEAN_IMAGE_FILE).is_file():
        weights[MEAN_IMAGE] = read_mean_image(model.folder or folder).half()
    for name, tensor in weights.items():
        require_finite(tensor, f"{folder}: {name} in float16")
    with atomic_file(output) as partial:
        save_file(weights, partial, metadata=about)
    return Path(output).stat().st_size


def _with_prefixes(coverage: Coverage | None, prefixes: Mapping[str, str]) -> Coverage | None:
    if not prefixes:
        return coverage
    if coverage is None:
        raise UserError("its configuration does not say what it was taught; there is no prefix to change")
    for code in prefixes:
        if Pair(CAPTION, coverage.language(code).code) in coverage.seen_pairs:
            raise UserError(
                f"prefix of '{code}': the captioner was trained with its own; another one would be new to it"
            )
    rows = [
        row.model_dump() | ({"prefix": prefixes[row.code]} if row.code in prefixes else {})
        for row in coverage.languages
    ]
    return Coverage.model_validate(coverage.model_dump() | {"languages": rows})


def read_bridge(path: str | Path) -> TrainedBridge:
    try:
        with safe_open(path, "pt") as file:
            about = file.metadata() or {}
            weights = {name: file.get_tensor(name).float() for name in file.keys()}  # noqa: SIM118, it is no dict
    except (SafetensorError, OSError) as error:
        raise UserError(f"{path}: no bridge can be read ({' '.join(str(error).split())[:200]})") from None
    if about.get("format") != FORMAT:
        raise UserError(f"{path}: is no bridge; write one with `babelcap model pack`")
    for name, tensor in weights.items():
        require_finite(tensor, f"{path}: {name}")
    mean_image = weights.pop(MEAN_IMAGE, None)
    try:
        shape = BridgeConfig.model_validate_json(about["shape"])
        scale = None if "guidance_scale" not in about else float(json.loads(about["guidance_scale"]))
        return TrainedBridge(shape, weights, json.loads(about["coverage"]), mean_image, scale)
    except (KeyError, TypeError, ValueError, ValidationError) as error:
        raise UserError(f"{path}: damaged ({' '.join(str(error).split())[:200]})") from None
