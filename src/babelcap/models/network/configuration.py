"""A captioner's configuration: an encoder part, a decoder part, the special ids and the coverage it was trained for."""

from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from transformers import PreTrainedConfig
from transformers.configuration_utils import SubConfigSpec

from babelcap.coverage import Coverage
from babelcap.models.network.bart_decoder import BartDecoderConfig
from babelcap.models.network.encoder import FlorenceEncoderConfig
from babelcap.models.network.parts import DECODERS, ENCODERS, part_config

MAX_IMAGE_SIZE_PX = 4096


@strict
class CaptionerConfig(PreTrainedConfig):
    """The decoder starts with `decoder_start_token_id`; a target is [bos, tokens..., eos]."""

    model_type = "babelcap"
    sub_configs_defaults: ClassVar[dict[str, Any]] = {
        "encoder_config": SubConfigSpec(config_class=FlorenceEncoderConfig),
        "decoder_config": SubConfigSpec(config_class=BartDecoderConfig),
    }

    encoder_config: Any = None  # a dict or a configuration, which its `kind` chooses
    decoder_config: Any = None
    pad_token_id: int | None = 0
    eos_token_id: int | None = 1
    bos_token_id: int | None = 2
    decoder_start_token_id: int | None = 1
    is_encoder_decoder: bool = True
    tie_word_embeddings: bool = True
    coverage: dict | None = None  # as `Coverage` dumps it; without one the published coverage holds
    image_size_px: int = 224  # what the processor resizes to
    quantise: str | None = None  # "int8": the decoder's weights are rounded, and decoding multiplies whole numbers

    def __post_init__(self, **kwargs: Any) -> None:
        # Before transformers' own step, which knows one class for each part; these are chosen by their kind.
        self.encoder_config = part_config(ENCODERS, "encoder_config", self.encoder_config, "florence2")
        self.decoder_config = part_config(DECODERS, "decoder_config", self.decoder_config, "bart")
        super().__post_init__(**kwargs)
        if self.decoder_config.encoder_hidden_size != self.encoder_config.hidden_size:
            raise ValueError(
                f"the decoder attends to states of width {self.decoder_config.encoder_hidden_size}, "
                f"the encoder's have {self.encoder_config.hidden_size}"
            )
        if not 1 <= self.image_size_px <= MAX_IMAGE_SIZE_PX:
            raise ValueError(f"image_size_px is {self.image_size_px}; it must lie between 1 and {MAX_IMAGE_SIZE_PX}")
        if self.coverage is not None:
            Coverage.model_validate(self.coverage)

    @property
    def vocab_size(self) -> int:
        return int(self.decoder_config.vocab_size)

    @property
    def hidden_size(self) -> int:
        return int(self.decoder_config.hidden_size)

    def get_text_config(self, decoder: bool | None = None, encoder: bool | None = None) -> PreTrainedConfig:
        """The decoder's, unless the encoder's alone is asked for."""
        return self.encoder_config.text_config if encoder and not decoder else self.decoder_config

    def get_coverage(self) -> Coverage:
        return Coverage() if self.coverage is None else Coverage.model_validate(self.coverage)
