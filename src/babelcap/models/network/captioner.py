"""The captioner: an encoder of image and prompt, a decoder, and a head that is the decoder's own embedding.

logits = softcap(E h), loss = mean over all target tokens of -log p(token). Image tokens are put in front of the prompt
here, so `input_ids` are the prompt's only.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import GenerationMixin, PreTrainedModel
from transformers.cache_utils import EncoderDecoderCache
from transformers.modeling_outputs import ModelOutput

from babelcap.data.feed.batches import IGNORED_LABEL
from babelcap.models.checkpoints.files import MODEL_FILES
from babelcap.models.checkpoints.weights import require_finite, require_plain
from babelcap.models.generation.candidates import chunk_bounds
from babelcap.models.generation.generate import CaptionerGeneration, encoder_states_and_mask
from babelcap.models.generation.products import Product
from babelcap.models.generation.shortlist import Shortlist
from babelcap.models.network.configuration import CaptionerConfig
from babelcap.models.network.linear import make_fast
from babelcap.models.network.loss import target_token_losses
from babelcap.models.network.packed import packed_attention, packing_of
from babelcap.models.network.parts import DECODERS, ENCODERS
from babelcap.models.network.prompted import EncoderOutput
from babelcap.models.network.tied import Joint, joint_of, look_up
from babelcap.storage import require_manifest, update_manifest


@dataclass
class CaptionerOutput(ModelOutput):
    loss: Tensor | None = None
    token_losses: Tensor | None = None  # of each target token, without a gradient; only where the logits are not needed
    logits: Tensor | None = None
    past_key_values: EncoderDecoderCache | None = None
    decoder_last_hidden_state: Tensor | None = None
    encoder_last_hidden_state: Tensor | None = None
    image_features: Tensor | None = None


class Head(nn.Module):
    """Logits over the vocabulary. It holds no weights of its own: they are the decoder's embedding."""

    def __init__(self, softcap: float | None) -> None:
        super().__init__()
        self.softcap = softcap
        self.products: Sequence[Product] = ()  # during a generation: of each chunk of the vocabulary, the fastest known

    def forward(self, states: Tensor, weight: Tensor, shortlist: Shortlist | None = None) -> Tensor:
        if self.products:
            return torch.cat([logits for _, logits in self.chunks(states, weight, shortlist)], dim=-1)
        scaled = states if self.softcap is None else states / self.softcap
        return self._finished(functional.linear(scaled, weight if shortlist is None else shortlist.weight), shortlist)

    def chunks(self, states: Tensor, weight: Tensor, shortlist: Shortlist | None) -> Iterator[tuple[int, Tensor]]:
        """The same logits in float32, some of the vocabulary at a time, each with the place of its first."""
        scaled = states if self.softcap is None else states / self.softcap
        rows = weight if shortlist is None else shortlist.weight
        for number, (start, end) in enumerate(chunk_bounds(len(rows))):
            logits = self.products[number](scaled) if self.products else functional.linear(scaled, rows[start:end])
            yield start, self._finished(logits, shortlist, start).float()

    def of_tokens(self, states: Tensor, weight: Tensor, shortlist: Shortlist | None, tokens: Tensor) -> Tensor:
        """Of a few tokens of each row alone: [rows, width], [rows, tokens] -> [rows, tokens]."""
        scaled = states if self.softcap is None else states / self.softcap
        rows = functional.embedding(tokens, weight if shortlist is None else shortlist.weight)
        return self._finished((rows @ scaled[:, :, None]).squeeze(2), None).float()

    def _finished(self, logits: Tensor, shortlist: Shortlist | None, start: int = 0) -> Tensor:
        if self.softcap is not None and torch.is_grad_enabled():
            logits = torch.tanh(logits) * self.softcap
        elif self.softcap is not None:
            # in place, for the logits are large: tanh z = 2 sigmoid 2z - 1, which torch computes in a sixth of the time
            logits = logits.mul_(2).sigmoid_().mul_(2 * self.softcap).sub_(self.softcap)
        if shortlist is None:
            return logits
        blocked = shortlist.blocked - start
        blocked = blocked[(blocked >= 0) & (blocked < logits.shape[-1])]
        return logits.index_fill_(-1, blocked, -torch.inf)


class Captioner(CaptionerGeneration, PreTrainedModel, GenerationMixin):
    encoder: Any  # the parts' classes are chosen by the configuration
    decoder: Any
    config_class = CaptionerConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    input_modalities = ("image", "text")
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    _supports_flash_attn = True
    _no_split_modules: ClassVar[list[str]] = [
        "BartEncoderLayer",
        "MBartEncoderLayer",
        "BartDecoderLayer",
        "GatedCrossAttentionLayer",
    ]
    _skip_keys_device_placement: ClassVar[list[str]] = ["past_key_values"]

    def __init__(self, config: CaptionerConfig) -> None:
        super().__init__(config)
        self.encoder = ENCODERS[config.encoder_config.kind].module_class(config.encoder_config)
        self.decoder = DECODERS[config.decoder_config.kind].module_class(config.decoder_config)
        if hasattr(self.encoder, "share_embedding"):
            self.encoder.share_embedding(self.decoder.embed_tokens)
        self.head = Head(config.decoder_config.logit_softcap)
        self.quantise = config.quantise
        make_fast(self)
        self.post_init()

    def save_pretrained(self, save_directory: str | Path, is_main_process: bool = True, **options: Any) -> None:
        """As transformers does, with the files' checksums in the folder's manifest."""
        super().save_pretrained(save_directory, is_main_process=is_main_process, **options)
        if is_main_process:
            update_manifest(save_directory, MODEL_FILES)

    def push_to_hub(self, repo_id: str, *, processor: Any = None, private: bool = False) -> str:
        """Uploads the model, with its processor where one is given, and a model card that says what it was taught."""
        from babelcap.models.checkpoints.hub import push_captioner
        from babelcap.models.checkpoints.saving import save_captioner

        with TemporaryDirectory() as folder:
            save_captioner(Path(folder) / "model", self, processor, name=repo_id)
            return push_captioner(Path(folder) / "model", repo_id, private=private)

    @classmethod
    def from_pretrained(cls, path_or_id: str | Path | None, *arguments: Any, **options: Any) -> Any:
        """As transformers does, but what is damaged or not finite is refused and no pickle is ever read."""
        if path_or_id is not None:
            options["use_safetensors"] = True
            require_manifest(path_or_id, only=MODEL_FILES)
            require_plain(path_or_id)
        loaded = super().from_pretrained(path_or_id, *arguments, **options)
        if path_or_id is not None:
            for name, parameter in (loaded[0] if isinstance(loaded, tuple) else loaded).named_parameters():
                if not parameter.is_meta:
                    require_finite(parameter.detach(), f"{path_or_id}: {name}")
        return loaded

    def get_encoder(self, modality: str | None = None) -> nn.Module:
        return self.encoder

    def get_decoder(self) -> nn.Module:
        return self.decoder

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.get_input_embeddings()

    def get_output_embeddings(self) -> None:
        """None, for there is no separate head to tie or to resize."""

    @property
    def head_weight(self) -> Tensor:
        return self.decoder.embed_tokens.weight

    def encode_images(self, pixel_values: Tensor) -> Tensor:
        """The projected image tokens; given as `image_features` they stand in for the pixels."""
        return self.encoder.encode_images(pixel_values)

    def shift_right(self, labels: Tensor) -> Tensor:
        """The decoder's input for these targets: one to the right, behind the start token."""
        shifted = labels.new_full(labels.shape, self.config.decoder_start_token_id)
        shifted[:, 1:] = labels[:, :-1]
        return shifted.masked_fill(shifted == IGNORED_LABEL, self.config.pad_token_id)

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        pixel_values: Tensor | None = None,
        labels: Tensor | None = None,
        decoder_input_ids: Tensor | None = None,
        decoder_attention_mask: Tensor | None = None,
        encoder_outputs: EncoderOutput | None = None,
        image_features: Tensor | None = None,
        past_key_values: EncoderDecoderCache | None = None,
        use_cache: bool | None = None,
        logits_needed: bool = True,
        logits_to_keep: int = 0,
        num_items_in_batch: float | None = None,
        shortlist: Shortlist | None = None,
        packed: bool = False,
        **kwargs: Any,
    ) -> CaptionerOutput:
        """With labels and `logits_needed=False` the loss is computed in chunks and the logits never exist as a whole.

        The loss is the sum over the target tokens divided by `num_items_in_batch`, by default their own number. The
        decoder may have several rows for each of the encoder's, such as the beams of a sample. With a shortlist, ids,
        labels and logits of the decoder are positions in the shortlist. `packed` saves the padding of the targets,
        where labels are given and logits are not needed; only a Gemma decoder can.
        """
        if encoder_outputs is None:
            encoder_outputs = self.encoder(
                input_ids=input_ids,
                attention_mask=attention_mask,
                pixel_values=pixel_values,
                image_features=image_features,
            )
        encoder_states, encoder_mask = encoder_states_and_mask(encoder_outputs, attention_mask)
        if labels is not None:
            use_cache = False
            if decoder_input_ids is None:
                decoder_input_ids = self.shift_right(labels)
        if decoder_input_ids is None:
            raise ValueError("forward needs labels or decoder_input_ids")
        if packed and labels is not None and not logits_needed:
            scale = 1 / _num_items(labels, num_items_in_batch)
            return self._packed_losses(decoder_input_ids, labels, encoder_states, encoder_mask, scale, shortlist)
        ids = decoder_input_ids if shortlist is None else shortlist.to_vocabulary(decoder_input_ids)
        tied = labels is not None and not logits_needed and shortlist is None
        joint = joint_of(self.decoder.embed_tokens) if tied else None
        decoded = self.decoder(
            **self._decoder_words(ids, joint),
            attention_mask=decoder_attention_mask,
            encoder_hidden_states=encoder_states,
            encoder_attention_mask=encoder_mask,
            past_key_values=past_key_values,
            use_cache=bool(use_cache),
        )
        states = decoded.last_hidden_state
        logits = self.head(states[:, -logits_to_keep:], self.head_weight, shortlist) if logits_needed else None
        loss = token_losses = None
        if labels is not None and logits is not None:
            loss = functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), reduction="sum")
            loss = loss / _num_items(labels, num_items_in_batch)
        elif labels is not None:
            weight = self.head_weight if shortlist is None else shortlist.weight
            scale = 1 / _num_items(labels, num_items_in_batch)
            loss, token_losses = target_token_losses(
                states, weight, labels, scale, softcap=self.head.softcap, joint=joint
            )
        return CaptionerOutput(
            loss=loss,
            token_losses=token_losses,
            logits=logits,
            past_key_values=decoded.past_key_values,
            decoder_last_hidden_state=states,
            encoder_last_hidden_state=encoder_states,
            image_features=encoder_outputs.get("image_features") if isinstance(encoder_outputs, dict) else None,
        )

    def _decoder_words(self, ids: Tensor, joint: Joint | None) -> dict[str, Tensor]:
        return (
            {"input_ids": ids} if joint is None else {"inputs_embeds": look_up(self.decoder.embed_tokens, ids, joint)}
        )

    def _packed_losses(
        self,
        decoder_input_ids: Tensor,
        labels: Tensor,
        encoder_states: Tensor,
        encoder_mask: Tensor | None,
        scale: float,
        shortlist: Shortlist | None,
    ) -> CaptionerOutput:
        packing = packing_of(labels)
        ids = packing.gather(decoder_input_ids)[None]
        ids = ids if shortlist is None else shortlist.to_vocabulary(ids)
        joint = joint_of(self.decoder.embed_tokens) if shortlist is None else None
        with packed_attention(self.decoder.config):
            decoded = self.decoder(
                **self._decoder_words(ids, joint),
                position_ids=packing.positions()[None],
                attention_mask=packing.masks(self.decoder.config.sliding_window),
                encoder_hidden_states=encoder_states,
                encoder_attention_mask=encoder_mask,
                use_cache=False,
                packing=packing,
            )
        weight = self.head_weight if shortlist is None else shortlist.weight
        states, targets = decoded.last_hidden_state[0], packing.gather(labels)
        loss, losses = target_token_losses(states, weight, targets, scale, softcap=self.head.softcap, joint=joint)
        return CaptionerOutput(loss=loss, token_losses=packing.spread(losses))


def _num_items(labels: Tensor, given: float | None) -> float:
    """What the summed loss is divided by: as given, or the number of target tokens."""
    return given or max(1, int((labels != IGNORED_LABEL).sum()))
