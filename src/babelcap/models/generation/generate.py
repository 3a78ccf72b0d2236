"""Generation as transformers' GenerationMixin offers it: the encoder runs once, self- and cross-attention are cached.

Greedy and beam search run in our own loop (rolling.py), all else in transformers'.
The beams of one sample share its encoder states: keys and values across are neither copied for each beam nor reordered.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import GenerationConfig

from babelcap.errors import UserError
from babelcap.models.generation.guidance import read_mean_image
from babelcap.models.generation.hooks import TransformersHooks
from babelcap.models.generation.packing import FastProducts, PackedWeights, encoder_products, plan_products
from babelcap.models.generation.rolling import Encoded, RollingDecoder, Sample
from babelcap.models.generation.rules import INPUTS, as_list, search_rules
from babelcap.models.generation.searching import SearchRules
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


class PlannedSearch(NamedTuple):
    """Ids are the shortlist's where there is one."""

    rules: SearchRules
    shortlist: Shortlist | None
    given: list[list[int]]  # for each sample, what its decoder starts with
    max_lengths: list[int]


class CaptionerGeneration(TransformersHooks):
    folder: Path | None = None  # where the model was loaded from; its shortlists lie there
    quantise: str | None  # "int8": decoding multiplies whole numbers
    keeps_packed = False  # from one generation to the next

    @cached_property
    def packed_weights(self) -> PackedWeights:
        return PackedWeights()

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
        try:
            return self._generate(inputs, generation_config, allowed_tokens, kwargs)
        finally:
            if not self.keeps_packed:
                self.packed_weights.clear()

    def _generate(
        self,
        inputs: Tensor | None,
        generation_config: GenerationConfig | None,
        allowed_tokens: Any,
        kwargs: dict[str, Any],
    ) -> Any:
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
        ends, pad = as_list(self._setting("eos_token_id", kwargs)), self._setting("pad_token_id", kwargs)
        shortlist = None
        if allowed_tokens is not None:
            shortlist = self._enter_shortlist(allowed_tokens, kwargs)
        input_ids = inputs if inputs is not None else kwargs.get("input_ids")
        rules = self.own_rules(kwargs)
        if rules is not None and input_ids is not None:
            found = self._search(input_ids, rules, shortlist, kwargs)
            return pad_after_end(found if shortlist is None else shortlist.to_vocabulary(found), num_given, ends, pad)
        self._leave_guidance(kwargs)
        num_rows = 0 if input_ids is None else len(input_ids) * max(self._counts(kwargs))
        num_steps = (self._setting("max_length", kwargs) or 0) - num_given
        with self.fast_products(shortlist, num_rows, num_steps).applied():
            outputs = super().generate(inputs, **kwargs)
        sequences = outputs if isinstance(outputs, Tensor) else outputs.sequences
        if shortlist is not None:
            sequences = shortlist.to_vocabulary(sequences)
        sequences = pad_after_end(sequences, num_given, ends, pad)
        if isinstance(outputs, Tensor):
            return sequences
        outputs.sequences = sequences
        return outputs

    def encode(self, *args: Any, **kwargs: Any) -> Any:
        """The encoder's outputs as generation wants them; a quantised model's encoder multiplies whole numbers."""
        with encoder_products(self).applied():
            return self.encoder(*args, **kwargs)

    @cached_property
    def mean_image(self) -> Tensor:
        """The image tokens that guidance compares with."""
        tokens = read_mean_image(self.folder or Path(self.name_or_path or "."))
        return tokens.to(self.device, self.dtype)

    def guidance_scale(self, kwargs: dict[str, Any]) -> float:
        """Of a call, or the model's own; 1 is none."""
        return float(self._setting("guidance_scale", kwargs) or 1.0)

    def encode_blind(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Any:
        """The encoder's outputs for the mean picture and these prompts."""
        tokens = self.mean_image.expand(len(input_ids), -1, -1)
        return self.encode(input_ids, attention_mask=attention_mask, image_features=tokens)

    def _leave_guidance(self, kwargs: dict[str, Any]) -> None:
        """transformers' loop has guidance of another kind: the model's own setting is left out there."""
        if (kwargs.get("guidance_scale") or 1) != 1:
            raise UserError("guidance_scale leads greedy and beam search; these settings run in transformers' loop")
        kwargs["guidance_scale"] = 1.0

    def own_rules(self, kwargs: dict[str, Any]) -> SearchRules | None:
        """Of our own search. Where a decoder's windows are shorter than a text, transformers' caches are needed."""
        given = {name: value for name, value in kwargs.items() if name not in (*INPUTS, "shortlist")}
        rules = search_rules(self.generation_config, given)
        window = getattr(self.config.decoder_config, "sliding_window", None)
        return None if rules is None or (window is not None and rules.max_length >= window) else rules

    def _search(
        self, input_ids: Tensor, rules: SearchRules, shortlist: Shortlist | None, kwargs: dict[str, Any]
    ) -> Tensor:
        encoded = kwargs.get("encoder_outputs")
        mask = kwargs.get("attention_mask")
        if encoded is None:
            inputs = {name: kwargs.get(name) for name in ("pixel_values", "image_features")}
            encoded = self.encode(input_ids, attention_mask=mask, **inputs)
        states, encoder_mask = self._states_and_mask(encoded, mask)
        num_image_tokens = states.shape[1] - input_ids.shape[1]
        guidance = self.guidance_scale(kwargs) if num_image_tokens else 1.0
        blind: list[Encoded | None] = [None] * len(states)
        if guidance != 1:
            found = self._states_and_mask(self.encode_blind(input_ids, mask), mask)
            blind = [Encoded(*parts) for parts in zip(*found, strict=True)]
        prefix = kwargs.get("decoder_input_ids")
        given = self._given([[]] * len(states) if prefix is None else prefix.tolist(), kwargs)
        samples = [
            Sample(number, tokens, Encoded(*parts), rules.max_length, other)
            for number, (tokens, *parts, other) in enumerate(zip(given, states, encoder_mask, blind, strict=True))
        ]
        products = self.fast_products(shortlist, len(samples) * rules.num_beams, rules.max_length - len(given[0]))
        decoder = RollingDecoder(self, rules, shortlist, products, normalised=False, guidance=guidance)
        beams = dict(decoder.run(lambda number: [samples.pop(0) for _ in samples[:number]], len(samples)))
        rows = [torch.tensor(beam.tokens) for number in sorted(beams) for beam in beams[number]]
        pad = self._setting("pad_token_id", kwargs) or 0
        return pad_sequence(rows, batch_first=True, padding_value=pad).to(states.device)

    @staticmethod
    def _states_and_mask(encoded: Any, prompt_mask: Tensor | None) -> tuple[Tensor, Tensor]:
        states, mask = encoder_states_and_mask(encoded, prompt_mask)
        return states, torch.ones(states.shape[:2], dtype=torch.long, device=states.device) if mask is None else mask

    def _given(self, prefixes: Sequence[Sequence[int]], kwargs: dict[str, Any]) -> list[list[int]]:
        """What the decoder starts with: the start token, unless the prefixes bring it themselves."""
        start = self._setting("decoder_start_token_id", kwargs)
        starts_itself = any(prefix[0] == start for prefix in prefixes if prefix)
        return [[*prefix] if starts_itself and prefix else [start, *prefix] for prefix in prefixes]

    def plan_search(
        self, prefixes: Sequence[Sequence[int]], allowed_tokens: Any, settings: dict[str, Any]
    ) -> "PlannedSearch | None":
        """For decoding many samples with full batches, or None where these settings are left to transformers."""
        kwargs = dict(settings)
        max_new_tokens = kwargs.pop("max_new_tokens")
        read = sorted({token for prefix in prefixes for token in prefix})
        if read:
            kwargs["decoder_input_ids"] = torch.tensor([read], device=self.device)
        check_ids(torch.tensor(read), self.config.vocab_size, "prefix")
        longest = max(map(len, self._given(prefixes, kwargs)))
        kwargs["max_length"] = longest + max_new_tokens
        self._keep_within_positions(longest, kwargs)
        if self.own_rules(kwargs) is None:
            return None
        shortlist = None if allowed_tokens is None else self._enter_shortlist(allowed_tokens, kwargs)
        if shortlist is not None:
            prefixes = [
                shortlist.from_vocabulary(torch.tensor(prefix, dtype=torch.long)).tolist() for prefix in prefixes
            ]
        rules = self.own_rules(kwargs)
        assert rules is not None
        given = self._given(prefixes, kwargs)
        lengths = [min(rules.max_length, len(tokens) + max_new_tokens) for tokens in given]
        return PlannedSearch(rules, shortlist, given, lengths)

    def fast_products(self, shortlist: Shortlist | None, num_rows: int, num_steps: int) -> FastProducts:
        weight = self.head_weight if shortlist is None else shortlist.weight
        return plan_products(self, weight, num_rows, num_steps)

    def _counts(self, kwargs: dict[str, Any]) -> list[int]:
        return [self._setting(name, kwargs) or 1 for name in ("num_beams", "num_return_sequences")]

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
        return as_list(self._setting("eos_token_id", {}))

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
        read = {token for value in settings.values() for token in as_list(value)}
        prefix = kwargs.get("decoder_input_ids")
        if prefix is not None:
            read.update(prefix.flatten().tolist())
        shortlist = self.packed_weights.shortlist(allowed, read, self.head_weight)
        for name, value in settings.items():
            positions = [shortlist.position(token) for token in as_list(value)]
            kwargs[name] = positions if isinstance(value, list) else next(iter(positions), None)
        if prefix is not None:
            kwargs["decoder_input_ids"] = shortlist.from_vocabulary(prefix)
        kwargs["shortlist"] = shortlist
        return shortlist


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


def encoder_states_and_mask(outputs: Any, prompt_mask: Tensor | None) -> tuple[Tensor, Tensor | None]:
    """Outputs that carry no mask get the prompt's, with ones in front for the image tokens."""
    states = outputs[0]
    mask = getattr(outputs, "attention_mask", None)
    if mask is None and prompt_mask is not None:
        num_image_tokens = states.shape[1] - prompt_mask.shape[1]
        mask = functional.pad(prompt_mask, (num_image_tokens, 0), value=1)
    return states, mask
