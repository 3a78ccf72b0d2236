"""The encoders and decoders a captioner can be made of. Another one is a new file and a row here.

An encoder's forward takes the prompt's ids and mask, pixels or image features, and gives an `EncoderOutput`; one with
`share_embedding` reads the prompt with the decoder's embedding. Its frozen part is `vision_tower`, whose settings its
configuration names as `tower_settings`. A decoder's takes ids, mask, the encoder's states and mask and an
`EncoderDecoderCache`; its `embed_tokens` is the head.
"""

from typing import Any, NamedTuple

from torch import nn
from transformers import PreTrainedConfig

from babelcap.models.network.bart_decoder import BartDecoderConfig, BartTextDecoder
from babelcap.models.network.encoder import FlorenceEncoder, FlorenceEncoderConfig
from babelcap.models.network.features_encoder import FeaturesEncoder, FeaturesEncoderConfig
from babelcap.models.network.gemma_decoder import (
    Gemma2DecoderConfig,
    Gemma2TextDecoder,
    Gemma3DecoderConfig,
    Gemma3TextDecoder,
)


class Part(NamedTuple):
    config_class: type[PreTrainedConfig]
    module_class: type[nn.Module]


ENCODERS: dict[str, Part] = {
    "florence2": Part(FlorenceEncoderConfig, FlorenceEncoder),
    "features": Part(FeaturesEncoderConfig, FeaturesEncoder),
}
DECODERS: dict[str, Part] = {
    "bart": Part(BartDecoderConfig, BartTextDecoder),
    "gemma2": Part(Gemma2DecoderConfig, Gemma2TextDecoder),
    "gemma3": Part(Gemma3DecoderConfig, Gemma3TextDecoder),
}


def part_config(parts: dict[str, Part], field: str, values: Any, default_kind: str) -> PreTrainedConfig:
    """The configuration of the part whose `kind` the values name."""
    if isinstance(values, PreTrainedConfig):
        return values
    values = dict(values or {})
    kind = values.setdefault("kind", default_kind)
    if kind not in parts:
        raise ValueError(f"{field}.kind is '{kind}'; known are {', '.join(parts)}")
    values.pop("model_type", None)
    return parts[kind].config_class(**values)
