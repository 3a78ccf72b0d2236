"""The published checkpoints: their configuration and their parameter names, as tables from theirs to ours."""

import re
from collections.abc import Iterable
from typing import Any

from huggingface_hub.errors import StrictDataclassError
from torch import Tensor

from babelcap.errors import UserError
from babelcap.models.network.configuration import CaptionerConfig
from babelcap.models.network.encoder import SPATIAL_MEAN, TEMPORAL_MEAN

VISION = r"vision_tower\.blocks\.(\d+\.\d+)\.(spatial|channel)_block\."
OUR_VISION = r"encoder.vision_tower.blocks.\1.\2_block."
# Their name -> ours; the first row that matches holds. None is dropped on purpose: copies of tied weights.
KEY_MAP: tuple[tuple[str, str | None], ...] = (
    (r"vision_tower\.convs\.(\d+)\.proj\.(weight|bias)", r"encoder.vision_tower.convs.\1.conv.\2"),
    (r"vision_tower\.convs\.(\d+)\.norm\.(weight|bias)", r"encoder.vision_tower.convs.\1.norm.\2"),
    (VISION + r"conv(1|2)\.fn\.dw\.(weight|bias)", OUR_VISION + r"conv\3.\4"),
    (VISION + r"(?:window|channel)_attn\.norm\.(weight|bias)", OUR_VISION + r"norm1.\3"),
    (VISION + r"(window|channel)_attn\.fn\.(qkv|proj)\.(weight|bias)", OUR_VISION + r"\3_attn.\4.\5"),
    (VISION + r"ffn\.norm\.(weight|bias)", OUR_VISION + r"norm2.\3"),
    (VISION + r"ffn\.fn\.net\.fc(1|2)\.(weight|bias)", OUR_VISION + r"ffn.fc\3.\4"),
    (r"image_projection", r"encoder.projector.image_projection.weight"),
    (r"image_proj_norm\.(weight|bias)", r"encoder.projector.image_proj_norm.\1"),
    (
        r"image_pos_embed\.(row|column)_embeddings\.weight",
        r"encoder.projector.image_position_embed.\1_embeddings.weight",
    ),
    (r"visual_temporal_embed\.pos_idx_to_embed", r"encoder.projector.visual_temporal_embed.pos_idx_to_embed"),
    (r"language_model\.model\.encoder\.(.+)", r"encoder.text_encoder.\1"),
    (r"language_model\.model\.decoder\.(.+)", r"decoder.\1"),
    (r"language_model\.lm_head\.weight", None),  # tied to the decoder's embedding
    (r"language_model\.model\.shared\.weight", None),  # tied to the decoder's embedding
    (r"language_model\.final_logits_bias", None),  # all zeros in every published checkpoint, which is checked
)
CROSS_ATTENTION_KEY = re.compile(r"language_model\.model\.decoder\.layers\.(\d+)\.encoder_attn\.q_proj\.weight")


def is_published(values: dict[str, Any]) -> bool:
    return values.get("model_type") == "florence2" and "encoder_vocab_size" in values.get("text_config", {})


def our_name(name: str) -> tuple[str | None, bool]:
    """Our name of a published parameter, and whether the table knows it at all."""
    for pattern, ours in KEY_MAP:
        match = re.fullmatch(pattern, name)
        if match:
            return (None if ours is None else match.expand(ours)), True
    return None, False


def convert_weights(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """Published weights under our names. A name that the table does not know stops here."""
    converted, unknown = {}, []
    for name, tensor in weights.items():
        ours, known = our_name(name)
        if not known:
            unknown.append(name)
        elif ours is None:
            _check_dropped(name, tensor, weights)
        else:
            # Theirs multiplies states by the matrix, a linear layer by its transpose.
            converted[ours] = tensor.T.contiguous() if name == "image_projection" else tensor
    if unknown:
        raise UserError(f"{len(unknown)} parameters have no place in a captioner: {some_names(unknown)}")
    return converted


def _check_dropped(name: str, tensor: Tensor, weights: dict[str, Tensor]) -> None:
    """What is dropped must say nothing that is not said elsewhere."""
    embedding = weights.get("language_model.model.decoder.embed_tokens.weight")
    if name.endswith("final_logits_bias"):
        if bool(tensor.any()):
            raise UserError(f"{name} is not all zeros; a captioner's head has no bias")
    elif embedding is not None and not (tensor.shape == embedding.shape and tensor.equal(embedding)):
        raise UserError(f"{name} differs from the decoder's embedding; a captioner's head is tied to it")


def some_names(names: Iterable[str], num_shown: int = 3) -> str:
    names = sorted(names)
    return ", ".join(names[:num_shown]) + (", ..." if len(names) > num_shown else "")


def convert_config(values: dict[str, Any], weight_names: Iterable[str] = ()) -> CaptionerConfig:
    """Our configuration of a published one. Which layers attend to the encoder, the weights tell."""
    try:
        text, vision = values["text_config"], values["vision_config"]
        config = CaptionerConfig(
            encoder_config={"kind": "florence2", **_encoder_values(text, vision)},
            decoder_config=_decoder_values(text, weight_names),
            **{name: text[name] for name in SPECIAL_IDS},
        )
    except KeyError as error:
        raise UserError(f"config.json: {error.args[0]} is missing; this is not a published captioner's") from None
    except (StrictDataclassError, TypeError, ValueError) as error:
        raise UserError(f"config.json: {' '.join(str(error).split())}") from None
    return config


SPECIAL_IDS = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
# Sizes must be there; what follows them has a default, which transformers leaves out of the files it writes.
BART_SIZES = (
    "max_position_embeddings",
    "d_model",
    "encoder_ffn_dim",
    "encoder_layers",
    "encoder_attention_heads",
    "decoder_ffn_dim",
    "decoder_layers",
    "decoder_attention_heads",
)
BART_OTHERS = (
    "dropout",
    "attention_dropout",
    "activation_dropout",
    "activation_function",
    "init_std",
    "encoder_layerdrop",
    "decoder_layerdrop",
    "scale_embedding",
)
VISION_SIZES = (
    "depths",
    "patch_size",
    "patch_stride",
    "patch_padding",
    "patch_prenorm",
    "num_heads",
    "num_groups",
    "window_size",
    "projection_dim",
)
VISION_OTHERS = ("drop_path_rate",)
GEMMA_SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "encoder_hidden_size",
)
GEMMA_OTHERS = (
    "hidden_activation",
    "max_position_embeddings",
    "initializer_range",
    "rms_norm_eps",
    "rope_theta",
    "attention_bias",
    "attention_dropout",
    "query_pre_attn_scalar",
    "sliding_window",
    "final_logit_softcapping",
    "attn_logit_softcapping",
)
ENCODER_IDS = {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2}


def _pick(values: dict[str, Any], needed: Iterable[str], others: Iterable[str]) -> dict[str, Any]:
    return {name: values[name] for name in needed} | {name: values[name] for name in others if name in values}


def _encoder_values(text: dict[str, Any], vision: dict[str, Any]) -> dict[str, Any]:
    positions, temporal = vision["image_pos_embed"], vision["visual_temporal_embedding"]
    if positions["type"] != "learned_abs_2d" or temporal["type"] != "COSINE":
        raise ValueError(
            f"vision_config: positions of type {positions['type']} and {temporal['type']}; "
            "only learned_abs_2d and COSINE are known"
        )
    encoder_ids = {name: text.get(f"encoder_{name}", default) for name, default in ENCODER_IDS.items()}
    bart = _pick(text, BART_SIZES, BART_OTHERS) | encoder_ids | {"vocab_size": text["encoder_vocab_size"]}
    return {
        "vision_config": _pick(vision, VISION_SIZES, VISION_OTHERS)
        | {
            "embed_dim": vision["dim_embed"],
            "max_position_embeddings": positions["max_pos_embeddings"],
            "max_temporal_embeddings": temporal["max_temporal_embeddings"],
        },
        "text_config": bart,
        "image_feature_source": vision.get("image_feature_source", [SPATIAL_MEAN, TEMPORAL_MEAN]),
    }


def _decoder_values(text: dict[str, Any], weight_names: Iterable[str]) -> dict[str, Any]:
    special_ids = {name: text[name] for name in SPECIAL_IDS}
    gemma = text.get("gemma_config")
    if gemma is None:
        return {"kind": "bart", "vocab_size": text["vocab_size"], **_pick(text, BART_SIZES, BART_OTHERS)} | special_ids
    layers = sorted(int(match[1]) for match in map(CROSS_ATTENTION_KEY.fullmatch, weight_names) if match)
    return {
        "kind": "gemma2",
        **_pick(gemma, GEMMA_SIZES, GEMMA_OTHERS),
        **special_ids,
        "cross_attention_every": gemma.get("encoder_attn_every_x_layers", 1),
        "cross_attention_layers": layers or None,
    }
