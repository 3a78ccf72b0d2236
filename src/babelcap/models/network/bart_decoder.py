"""BART's decoder with a vocabulary of its own, as in Florence-2 with another tokenizer's words."""

from typing import Any, ClassVar

from huggingface_hub.dataclasses import strict
from torch import Tensor, nn
from transformers import BartConfig
from transformers.models.bart.modeling_bart import BartAttention, BartDecoder, BartLearnedPositionalEmbedding

from babelcap.models.network.attention import fold_beams


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


class SharedCrossAttention(BartAttention):
    """BART's attention to the encoder's states, where several rows may share the states of one sample."""

    def forward(
        self, hidden_states: Tensor, key_value_states: Tensor, attention_mask: Tensor | None = None, **kwargs: Any
    ) -> tuple[Tensor, Tensor | None]:
        folded, mask = fold_beams(hidden_states, key_value_states, attention_mask)
        attended, weights = super().forward(folded, key_value_states, attention_mask=mask, **kwargs)
        return attended.view_as(hidden_states), weights


class PositionEmbedding(BartLearnedPositionalEmbedding):
    """BART's, where rows may stand at different positions: transformers' decoder counts one for all of them."""

    given: Tensor | None = None  # [rows, tokens], during a call

    def forward(self, *args: Any, **kwargs: Any) -> Tensor:
        if self.given is None:
            return super().forward(*args, **kwargs)
        return nn.Embedding.forward(self, self.given + self.offset)


class BartTextDecoder(BartDecoder):
    config_class = BartDecoderConfig

    def __init__(self, config: BartDecoderConfig) -> None:
        super().__init__(config)
        self.embed_positions.__class__ = PositionEmbedding  # not made anew: that would draw random numbers
        for index, layer in enumerate(self.layers):
            layer.encoder_attn = SharedCrossAttention(
                config.d_model,
                config.decoder_attention_heads,
                dropout=config.attention_dropout,
                is_decoder=True,
                config=config,
                layer_idx=index,
            )
        self.post_init()

    def forward(self, *args: Any, position_ids: Tensor | None = None, **kwargs: Any) -> Any:
        self.embed_positions.given = position_ids
        try:
            return super().forward(*args, **kwargs)
        finally:
            self.embed_positions.given = None
