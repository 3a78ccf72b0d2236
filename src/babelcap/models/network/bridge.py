"""The shape of a bridge between frozen parts, and the captioner's settings that follow from it.

backbones -> image and prompt projection -> a few BART layers -> gated cross-attention in some layers of the decoder
"""

from typing import Any

from pydantic import Field

from babelcap.config import ConfigModel


class BridgeConfig(ConfigModel):
    """The shape of what joins the parts. The defaults are those of the shipped captioner for photographs."""

    layers: tuple[int, ...] = (6, 9, 12, 15)  # of the decoder, counted from 0, that attend to the encoder's states
    num_heads: int = Field(8, ge=1)  # of the cross-attention
    head_width: int = Field(64, ge=1)
    num_encoder_layers: int = Field(2, ge=1)
    width: int = Field(320, ge=1)
    num_encoder_heads: int = Field(5, ge=1)
    feed_forward_width: int = Field(1024, ge=1)
    grid: int = Field(7, ge=1)
    max_positions: int = Field(192, ge=1)  # image tokens and prompt tokens together
    image_size_px: int = Field(224, ge=1)
    dropout: float = Field(0.1, ge=0, lt=1)


def bridge_values(bridge: BridgeConfig, backbones: list[dict[str, Any]], decoder: dict[str, Any]) -> dict[str, Any]:
    """Of a captioner's configuration; `decoder` has a kind and Gemma's own settings."""
    text = {
        "vocab_size": 4,  # no weight has it: the prompt is read with the decoder's embedding
        "d_model": bridge.width,
        "encoder_layers": bridge.num_encoder_layers,
        "encoder_attention_heads": bridge.num_encoder_heads,
        "encoder_ffn_dim": bridge.feed_forward_width,
        "max_position_embeddings": bridge.max_positions,
        "dropout": bridge.dropout,
    }
    encoder = {
        "kind": "features",
        "backbones": backbones,
        "grid": bridge.grid,
        "vocab_size": decoder["vocab_size"],
        "embedding_size": decoder["hidden_size"],
        "text_config": text,
    }
    crossing = {
        "encoder_hidden_size": bridge.width,
        "cross_attention_layers": list(bridge.layers),
        "cross_attention_heads": bridge.num_heads,
        "cross_attention_head_dim": bridge.head_width,
        "cross_attention_pre_norm": True,
    }
    return {
        "encoder_config": encoder,
        "decoder_config": decoder | crossing,
        "image_size_px": bridge.image_size_px,
    }
