"""Generation through transformers' GenerationMixin: the encoder runs once, self- and cross-attention are cached.

The beams of one sample share its encoder states: keys and values across are neither copied for each beam nor reordered.
"""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, GenerationMixin

from babelcap.errors import UserError
from babelcap.models.generation.caches import generation_cache
from babelcap.models.generation.packing import MIN_STEPS, packed_for_decoding
from babelcap.models.generation.shortlist import Shortlist, allowed_ids, check_ids

TOKEN_SETTINGS = (
    "pad_token_id",
    "bos_token_id",
    "eos_token_id",
    "decoder_start_token_id",
    "forced_bos_token_id",
    "forced_eos_token_id",
)
# They speak of token ids, or of the encoder's, in ways that a small vocabulary would have to translate.
NOT_WITH_SHORTLIST = (
    "bad_words_ids",
    "sequence_bias",
    "suppress_tokens",
    "begin_suppress_tokens",
    "prefix_allowed_tokens_fn",
    "logits_processor",
    "stopping_criteria",
    "stop_strings",
    "streamer",
    "assistant_model",
    "custom_generate",
)
BLOCK_SIZE = 256  # scores looked through at once for the best


class CaptionerGeneration(GenerationMixin):
    folder: Path | None = None  # where the model was loaded from; its shortlists lie there

    @torch.no_grad()
    def generate(
        self,
        inputs: Tensor | None = None,
        generation_config: GenerationConfig | None = None,
        *,
        allowed_tokens: Any = None,
        **kwargs: Any,
    ) -> Any:
        """As in transformers. `allowed_tokens`, a language with a shortlist or token ids, leaves all others out."""
        if generation_config is not None:
            given = generation_config.to_dict()
            kwargs = {name: given[name] for name in given if given[name] is not None} | kwargs
            kwargs.pop("transformers_version", None)
        self._check_inputs(inputs if inputs is not None else kwargs.get("input_ids"), kwargs.get("decoder_input_ids"))
        num_given = self._num_given(kwargs)
        for new, whole in (("max_new_tokens", "max_length"), ("min_new_tokens", "min_length")):
            if (number := kwargs.pop(new, None)) is not None:
                kwargs[whole] = num_given + number
        self._keep_within_positions(num_given, kwargs)
        ends, pad = _as_list(self._setting("eos_token_id", kwargs)), self._setting("pad_token_id", kwargs)
        shortlist = None
        if allowed_tokens is not None:
            shortlist = self._enter_shortlist(allowed_tokens, kwargs)
        with self._packed(inputs if inputs is not None else kwargs.get("input_ids"), shortlist, num_given, kwargs):
            outputs = super().generate(inputs, **kwargs)
        sequences = outputs if isinstance(outputs, Tensor) else outputs.sequences
        if shortlist is not None:
            sequences = shortlist.to_vocabulary(sequences)
        sequences = pad_after_end(sequences, num_given, ends, pad)
        if isinstance(outputs, Tensor):
            return sequences
        outputs.sequences = sequences
        return outputs

    def _packed(
        self, inputs: Tensor | None, shortlist: Shortlist | None, num_given: int, kwargs: dict[str, Any]
    ) -> AbstractContextManager[None]:
        """Packed weights where a generation is long enough to gain by them."""
        num_steps = (self._setting("max_length", kwargs) or 0) - num_given
        use_cache = self._setting("use_cache", kwargs)
        if inputs is None or num_steps < MIN_STEPS or use_cache is False:
            return nullcontext()
        num_beams = max(self._setting(name, kwargs) or 1 for name in ("num_beams", "num_return_sequences"))
        weight = self.head_weight if shortlist is None else shortlist.weight
        return packed_for_decoding(self.decoder, self.head, weight, len(inputs) * num_beams)

    def _setting(self, name: str, kwargs: dict[str, Any]) -> Any:
        return kwargs[name] if name in kwargs else getattr(self.generation_config, name, None)

    def _check_inputs(self, input_ids: Tensor | None, decoder_input_ids: Tensor | None) -> None:
        if input_ids is not None:
            check_ids(input_ids, self.config.encoder_config.vocab_size, "input_ids")
        if decoder_input_ids is not None:
            check_ids(decoder_input_ids, self.config.vocab_size, "decoder_input_ids")

    def _keep_within_positions(self, num_given: int, kwargs: dict[str, Any]) -> None:
        """A text ends where the decoder's positions do, however many tokens were allowed."""
        num_positions = self.config.decoder_config.max_position_embeddings
        if num_given >= num_positions:
            raise UserError(
                f"the decoder is given {num_given} tokens to continue; it has {num_positions} positions, use a shorter "
                "prefix"
            )
        if (self._setting("max_length", kwargs) or 0) > num_positions:
            kwargs["max_length"] = num_positions

    @property
    def end_token_ids(self) -> list[int]:
        return _as_list(self._setting("eos_token_id", {}))

    def num_given_tokens(self, prefix_ids: Sequence[int]) -> int:
        """How many tokens a sequence has that is started with this prefix, before anything is generated."""
        starts_itself = bool(prefix_ids) and prefix_ids[0] == self._setting("decoder_start_token_id", {})
        return len(prefix_ids) + (0 if starts_itself else 1)

    def _num_given(self, kwargs: dict[str, Any]) -> int:
        """How many tokens a sequence starts with that are not generated: the start token and the prefix."""
        prefix = kwargs.get("decoder_input_ids")
        if prefix is None:
            return 1
        starts_itself = bool((prefix[:, 0] == self._setting("decoder_start_token_id", kwargs)).any())
        return int(prefix.shape[1]) + (0 if starts_itself else 1)

    def _enter_shortlist(self, allowed_tokens: Any, kwargs: dict[str, Any]) -> Shortlist:
        """Translates all token ids of a call into the shortlist's, in place."""
        refused = [name for name in NOT_WITH_SHORTLIST if self._setting(name, kwargs)]
        if refused:
            raise UserError(f"allowed_tokens cannot be combined with {', '.join(refused)}")
        folder = self.folder or Path(self.name_or_path or ".")  # the latter where transformers itself loaded the model
        allowed = allowed_ids(allowed_tokens, folder, self.config.vocab_size)
        settings = {name: self._setting(name, kwargs) for name in TOKEN_SETTINGS}
        read = {token for value in settings.values() for token in _as_list(value)}
        prefix = kwargs.get("decoder_input_ids")
        if prefix is not None:
            read.update(prefix.flatten().tolist())
        shortlist = Shortlist(allowed, read, self.head_weight)
        for name, value in settings.items():
            positions = [shortlist.position(token) for token in _as_list(value)]
            kwargs[name] = positions if isinstance(value, list) else next(iter(positions), None)
        if prefix is not None:
            kwargs["decoder_input_ids"] = shortlist.from_vocabulary(prefix)
        kwargs["shortlist"] = shortlist
        return shortlist

    def _update_model_kwargs_for_generation(self, outputs: Any, *args: Any, **kwargs: Any) -> dict[str, Any]:
        """After every step. A number that is none would go on as text; one reduction finds it before it is chosen."""
        if not torch.isfinite(outputs.logits.amax()):
            raise UserError(
                "the model's logits are not finite: its weights are damaged, or too large for its type; "
                "check them with `babelcap model check`, or load it with dtype float32"
            )
        return super()._update_model_kwargs_for_generation(outputs, *args, **kwargs)

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> None:
        if model_kwargs.get("past_key_values") is None and generation_config.use_cache:
            cache = generation_cache(self.config.decoder_config, generation_config.max_length)
            model_kwargs["past_key_values"] = cache

    def _maybe_prepare_encoder_kwargs_for_generation(
        self, inputs_tensor: Tensor, model_kwargs: dict[str, Any], *args: Any, **kwargs: Any
    ) -> dict[str, Any]:
        """Image and prompt are encoded once; the pixels are not carried along."""
        inputs = {name: model_kwargs.pop(name, None) for name in ("pixel_values", "image_features")}
        if model_kwargs.get("encoder_outputs") is None:
            mask = model_kwargs.get("attention_mask")
            model_kwargs["encoder_outputs"] = self.encoder(inputs_tensor, attention_mask=mask, **inputs)
        return model_kwargs

    def _expand_inputs_for_generation(
        self, expand_size: int = 1, is_encoder_decoder: bool = False, **model_kwargs: Any
    ) -> tuple[Tensor, dict[str, Any]]:
        """What the encoder gave stays one row a sample; the decoder's cross-attention folds the beams."""
        shared = {name: model_kwargs.pop(name, None) for name in ("encoder_outputs", "attention_mask")}
        input_ids, model_kwargs = super()._expand_inputs_for_generation(expand_size, False, **model_kwargs)
        return input_ids, model_kwargs | {name: value for name, value in shared.items() if value is not None}

    def _get_top_k_continuations(
        self,
        accumulated_log_probs: Tensor,
        running_sequences: Tensor,
        running_beam_indices: Tensor,
        cur_len: int,
        decoder_prompt_len: int,
        do_sample: bool,
        beams_to_keep: int,
        num_beams: int,
        batch_size: int,
        **kwargs: Any,
    ) -> tuple[Tensor, Tensor, Tensor]:
        """transformers' own, but over a handful of candidates for each beam instead of the whole vocabulary."""
        vocab_size = accumulated_log_probs.shape[1] // num_beams
        if do_sample or vocab_size <= 2 * BLOCK_SIZE:
            return super()._get_top_k_continuations(
                accumulated_log_probs,
                running_sequences,
                running_beam_indices,
                cur_len,
                decoder_prompt_len,
                do_sample,
                beams_to_keep,
                num_beams,
                batch_size,
            )
        scores, indices = top_scores(accumulated_log_probs, beams_to_keep)
        beams = indices // vocab_size
        sequences = self._gather_beams(running_sequences, beams)
        sequences[:, :, cur_len] = indices % vocab_size
        origins = self._gather_beams(running_beam_indices, beams)
        first_rows = torch.arange(batch_size, device=beams.device)[:, None] * num_beams
        origins[:, :, cur_len - decoder_prompt_len] = (beams + first_rows).to(origins.dtype)
        return scores, sequences, origins


def top_scores(scores: Tensor, number: int) -> tuple[Tensor, Tensor]:
    """The highest scores of each row and where they stand, as torch.topk gives them, in a fraction of its time.

    The best `number` scores lie in the `number` blocks with the best maxima, or behind the last whole block.
    """
    num_blocked = scores.shape[1] // BLOCK_SIZE * BLOCK_SIZE
    maxima = scores[:, :num_blocked].unflatten(1, (-1, BLOCK_SIZE)).amax(dim=-1)
    blocks = maxima.topk(min(number, maxima.shape[1])).indices
    inside = torch.arange(BLOCK_SIZE, device=scores.device)
    rest = torch.arange(num_blocked, scores.shape[1], device=scores.device).expand(len(scores), -1)
    places = torch.cat([(blocks[..., None] * BLOCK_SIZE + inside).flatten(1), rest], dim=1)
    best, chosen = scores.gather(1, places).topk(number)
    return best, places.gather(1, chosen)


def pad_after_end(sequences: Tensor, num_given: int, ends: list[int], pad: int | None) -> Tensor:
    """transformers' beam search fills up with eos where padding has the id 0; the published code pads."""
    if pad is None or not ends:
        return sequences
    return sequences.masked_fill(after_end(sequences, num_given, ends), pad)


def after_end(sequences: Tensor, num_given: int, ends: list[int]) -> Tensor:
    """True behind each sequence's end."""
    ended = torch.isin(sequences, torch.tensor(ends, device=sequences.device))
    ended[:, :num_given] = False  # the decoder starts with eos
    return ended.cumsum(dim=1) > ended.long()


def _as_list(value: Any) -> list[int]:
    if value is None:
        return []
    return [int(token) for token in value] if isinstance(value, list | tuple | Tensor) else [int(value)]
