"""The sizes as data: the four published ones, the micro ones of both families, and those for photographs.

A size is what the encoder and the decoder are made of; `size_config` turns it into a captioner's configuration.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from babelcap.errors import UserError
from babelcap.models.network.backbones import LITE
from babelcap.models.network.bridge import BridgeConfig, bridge_values
from babelcap.models.network.configuration import CaptionerConfig


@dataclass(frozen=True)
class Size:
    """`bart` holds BART's settings: the text encoder's always, the decoder's where `gemma` is None."""

    base: str
    vision: Mapping[str, Any]
    bart: Mapping[str, Any]
    encoder_vocab_size: int
    decoder_vocab_size: int
    gemma: Mapping[str, Any] | None = None
    image_size_px: int = 224
    bridge: BridgeConfig | None = None  # in place of vision and bart: frozen features and Gemma-3, joined

    @property
    def family(self) -> str:
        return "florence" if self.gemma is None else "gemma"


def _vision(embed_dim: tuple[int, ...], num_heads: tuple[int, ...], projection_dim: int) -> Mapping[str, Any]:
    return MappingProxyType(
        {"embed_dim": embed_dim, "num_heads": num_heads, "num_groups": num_heads, "projection_dim": projection_dim}
    )


def _bart(width: int, num_layers: int, num_heads: int, num_positions: int, **others: Any) -> Mapping[str, Any]:
    sides = {
        f"{side}_{name}": value
        for side in ("encoder", "decoder")
        for name, value in (("layers", num_layers), ("attention_heads", num_heads), ("ffn_dim", 4 * width))
    }
    return MappingProxyType({"d_model": width, "max_position_embeddings": num_positions, **sides, **others})


def _gemma(
    width: int, num_layers: int, num_heads: int, num_key_value_heads: int, head_dim: int, ffn_dim: int, **others: Any
) -> Mapping[str, Any]:
    return MappingProxyType(
        {
            "hidden_size": width,
            "num_hidden_layers": num_layers,
            "num_attention_heads": num_heads,
            "num_key_value_heads": num_key_value_heads,
            "head_dim": head_dim,
            "intermediate_size": ffn_dim,
            **others,
        }
    )


FLORENCE_BASE_VISION = _vision((128, 256, 512, 1024), (4, 8, 16, 32), 768)
FLORENCE_LARGE_VISION = _vision((256, 512, 1024, 2048), (8, 16, 32, 64), 1024)
# The published Florence-2-base has 1,024 positions, the large one 4,096: only so do P and Pt come out as published.
FLORENCE_BASE = _bart(768, 6, 12, 1024)
FLORENCE_LARGE = _bart(1024, 12, 16, 4096)
GEMMA_2_2B = _gemma(2304, 26, 8, 4, 256, 9216, query_pre_attn_scalar=256)
GEMMA_2_9B = _gemma(3584, 42, 16, 8, 256, 14336, query_pre_attn_scalar=256)

MICRO_INIT_STD = 0.06
MICRO_HEADS = 4


def _micro(family: str, width: int, num_layers: int) -> Size:
    """A 64 px image gives 4 x 4 positions and their mean: 17 image tokens."""
    vision = {
        "depths": (1, 1, 1),
        "patch_size": (7, 3, 3),
        "patch_stride": (4, 2, 2),
        "patch_padding": (3, 1, 1),
        "patch_prenorm": (False, True, True),
        "window_size": 4,
        "drop_path_rate": 0.0,
        "mlp_ratio": 2.0,
        "max_position_embeddings": 16,
        "max_temporal_embeddings": 1,
        **_vision((32, 96, 128), (2, 4, 4), width),
    }
    gemma = None
    if family == "gemma":
        head_dim = width // MICRO_HEADS
        gemma = _gemma(
            width, num_layers, MICRO_HEADS, 2, head_dim, 3 * width,
            query_pre_attn_scalar=head_dim, initializer_range=MICRO_INIT_STD, max_position_embeddings=256,
        )  # fmt: skip
    return Size(
        base=f"micro {family}",
        vision=MappingProxyType(vision),
        bart=_bart(width, num_layers, MICRO_HEADS, 256, init_std=MICRO_INIT_STD, dropout=0.1),
        encoder_vocab_size=1024,
        decoder_vocab_size=4096,
        gemma=gemma,
        image_size_px=64,
    )


# Gemma-3-270M on EfficientNet-Lite0, by bridges of three widths: what trains differs, what is frozen does not.
GEMMA_3_270M = _gemma(640, 18, 4, 1, 256, 2048, query_pre_attn_scalar=256, sliding_window=512)
BRIDGES = {
    "s": BridgeConfig(layers=(12,), num_heads=4, width=128, num_encoder_heads=2, feed_forward_width=256),
    "m": BridgeConfig(layers=(9, 15), num_heads=8, width=192, num_encoder_heads=3, feed_forward_width=512),
    "l": BridgeConfig(),
}


def _photos(bridge: BridgeConfig) -> Size:
    nothing: Mapping[str, Any] = MappingProxyType({})
    base = "EfficientNet-Lite0 + Gemma-3-270M"
    return Size(base, nothing, nothing, 262_144, 262_144, GEMMA_3_270M, bridge.image_size_px, bridge)


MICRO_SHAPES = {"xs": (24, 2), "s": (48, 2), "m": (80, 2), "l": (128, 3), "xl": (208, 4)}
SIZES: Mapping[str, Size] = MappingProxyType(
    {
        "0.4B": Size("Florence-2-base", FLORENCE_BASE_VISION, FLORENCE_BASE, 51_328, 257_024),
        "1.0B": Size("Florence-2-large", FLORENCE_LARGE_VISION, FLORENCE_LARGE, 51_328, 257_024),
        "3.5B": Size(
            "Florence-2-large + Gemma-2-2B", FLORENCE_LARGE_VISION, FLORENCE_LARGE, 51_289, 256_000, GEMMA_2_2B
        ),
        "11.2B": Size(
            "Florence-2-large + Gemma-2-9B", FLORENCE_LARGE_VISION, FLORENCE_LARGE, 51_289, 256_000, GEMMA_2_9B
        ),
    }
    | {
        f"micro-{family}-{letter}": _micro(family, width, num_layers)
        for family in ("florence", "gemma")
        for letter, (width, num_layers) in MICRO_SHAPES.items()
    }
    | {f"photos-{letter}": _photos(bridge) for letter, bridge in BRIDGES.items()}
)


def get_size(name: str) -> Size:
    if name not in SIZES:
        near = difflib.get_close_matches(name, SIZES, n=1, cutoff=0.4)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise UserError(f"unknown size '{name}'; {hint}known: {', '.join(SIZES)}")
    return SIZES[name]


def size_config(
    name: str,
    *,
    encoder_vocab_size: int | None = None,
    decoder_vocab_size: int | None = None,
    cross_attention_every: int = 1,
    **others: Any,
) -> CaptionerConfig:
    """The configuration of a size. A micro size takes the vocabularies of the tokenizers it is trained with."""
    size = get_size(name)
    words = decoder_vocab_size or size.decoder_vocab_size
    if size.bridge is not None:
        decoder = {"kind": "gemma3", "vocab_size": words, **(size.gemma or {})}
        return CaptionerConfig(**(bridge_values(size.bridge, [{"kind": LITE}], decoder) | others))
    bart = dict(size.bart)
    if size.gemma is None:
        decoder = {"kind": "bart", "vocab_size": words, **bart}
    else:
        decoder = {
            "kind": "gemma2",
            "vocab_size": words,
            "encoder_hidden_size": bart["d_model"],
            "cross_attention_every": cross_attention_every,
            **size.gemma,
        }
    encoder = {
        "kind": "florence2",
        "vision_config": dict(size.vision),
        "text_config": {"vocab_size": encoder_vocab_size or size.encoder_vocab_size, **bart},
    }
    others.setdefault("image_size_px", size.image_size_px)
    return CaptionerConfig(encoder_config=encoder, decoder_config=decoder, **others)
