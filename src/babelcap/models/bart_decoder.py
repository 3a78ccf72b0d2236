"""BART's decoder with a vocabulary of its own, as in Florence-2 with another tokenizer's words."""

from typing import ClassVar

from huggingface_hub.dataclasses import strict
from transformers import BartConfig
from transformers.models.bart.modeling_bart import BartDecoder

__all__ = ["BartDecoder", "BartDecoderConfig"]


@strict
class BartDecoderConfig(BartConfig):
    """BART's settings, of which only the decoder's are used; caches count the decoder's layers."""

    model_type = "babelcap_bart_decoder"
    attribute_map: ClassVar[dict[str, str]] = {
        "num_attention_heads": "decoder_attention_heads",
        "hidden_size": "d_model",
        "num_hidden_layers": "decoder_layers",
    }

    kind: str = "bart"
    pad_token_id: int | None = 0
    bos_token_id: int | None = 2
    eos_token_id: int | list[int] | None = 1
    decoder_start_token_id: int | None = 1
    forced_eos_token_id: int | list[int] | None = None
    final_logit_softcapping: float | None = 30.0  # the published models cap the logits of this decoder too

    @property
    def encoder_hidden_size(self) -> int:
        return int(self.d_model)

    @property
    def logit_softcap(self) -> float | None:
        return self.final_logit_softcapping
