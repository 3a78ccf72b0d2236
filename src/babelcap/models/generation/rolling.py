"""Decoding with full batches: a sample that is finished leaves, one that waits enters, and the others go on.

A sample's tokens are those that it has alone. Samples enter when a part of the places is free, not at once, because
each time the cached states are laid out anew; until then a finished sample's place idles.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from babelcap.models.generation.caches import generation_cache
from babelcap.models.generation.candidates import allowed_options, best_tokens
from babelcap.models.generation.guidance import NUM_LIKELIEST, guide
from babelcap.models.generation.packing import FastProducts
from babelcap.models.generation.searching import Beam, Options, Search, SearchRules
from babelcap.models.generation.shortlist import Shortlist
from babelcap.models.generation.slots import Entering, Slots
from babelcap.models.generation.steps import written_step

FREE_SHARE = 0.25  # of the places, before others enter


class Encoded(NamedTuple):
    states: Tensor  # [positions, width]
    mask: Tensor  # [positions]

    @classmethod
    def unpadded(cls, states: Tensor, mask: Tensor) -> "Encoded":
        size = int(mask.sum())
        return cls(states[:size], mask[:size])


class Sample(NamedTuple):
    number: int  # the caller's own name for it
    given: Sequence[int]  # what the decoder starts with, the start token first
    encoded: Encoded
    max_length: int  # of its sequence; at most that of the rules
    blind: Encoded | None = None  # the same behind the mean picture, where the decoder is guided


class Live(NamedTuple):
    number: int
    search: Search


Take = Callable[[int], Sequence[Sample]]  # at most so many samples that wait; none when there are no more


class RollingDecoder:
    def __init__(
        self,
        model: Any,
        rules: SearchRules,
        shortlist: Shortlist | None,
        products: FastProducts,
        *,
        normalised: bool = True,
        guidance: float = 1.0,
    ) -> None:
        """`normalised`: whether the parts of a score are log-probabilities; a greedy search can do without."""
        self.products = products
        self.model, self.rules, self.shortlist = model, rules, shortlist
        self.normalised = normalised or rules.num_beams > 1
        self.step = written_step(model.decoder)
        self.live: list[Live] = []
        self.guidance = guidance
        self.slots = self._make_slots()
        self.blind_slots = None if guidance == 1 else self._make_slots()

    def _make_slots(self) -> Slots:
        config, rules = self.model.config.decoder_config, self.rules
        return Slots(config, rules.num_beams, rules.max_length, self.model.device)

    def run(self, take: Take, capacity: int) -> Iterator[tuple[int, list[Beam]]]:
        """The samples' numbers and results, each as soon as it is finished."""
        has_more = True
        while True:
            num_done = sum(live.search.is_done for live in self.live)
            num_free = capacity - len(self.live) + num_done
            new: Sequence[Sample] = ()
            if has_more and num_free >= max(1, FREE_SHARE * capacity):
                new = take(num_free)
                has_more = bool(new)
            if new or num_done == len(self.live) or (not has_more and 2 * num_done >= len(self.live)):
                yield from self._exchange(new)
            if not self.live:
                return
            running = [live for live in self.live if not live.search.is_done]
            if not running:
                continue
            with self.products.applied(threads=True):  # step by step: between results, the model is as it was
                self._step()
            for live in running:
                if live.search.is_done:
                    yield live.number, live.search.results()

    def _exchange(self, new: Sequence[Sample]) -> Iterator[tuple[int, list[Beam]]]:
        """Finished samples leave; new ones are read in, take their first step, and enter unless it was their last."""
        kept = [place for place, live in enumerate(self.live) if not live.search.is_done]
        arrived, entering, blind_entering = [], None, None
        if new:
            searches = [Search(sample.given, self._rules_of(sample)) for sample in new]
            with self.products.applied():
                entering, states = self._read(new, [sample.encoded for sample in new])
                if self.blind_slots is not None:
                    others = [sample.blind for sample in new if sample.blind is not None]
                    blind_entering, _ = self._read(new, others)
                self._advance(searches, states, None, rows_a_sample=1)  # the first token is not guided: guidance.py
            arrived = [Live(sample.number, search) for sample, search in zip(new, searches, strict=True)]
        self.live = [self.live[place] for place in kept] + arrived
        if self.live:
            self.slots.exchange(kept, entering)
            if self.blind_slots is not None:
                self.blind_slots.exchange(kept, blind_entering)
        for live in arrived:
            if live.search.is_done:
                yield live.number, live.search.results()

    def _rules_of(self, sample: Sample) -> SearchRules:
        is_own = sample.max_length == self.rules.max_length
        return self.rules if is_own else replace(self.rules, max_length=sample.max_length)

    @torch.no_grad()
    def _read(self, group: Sequence[Sample], encoded: Sequence[Encoded]) -> tuple[Entering, Tensor]:
        """One row a sample: its beams do not differ yet. What is given is padded behind, which nobody sees."""
        encoder_states = pad_sequence([found.states for found in encoded], batch_first=True)
        encoder_mask = pad_sequence([found.mask for found in encoded], batch_first=True)
        cache = generation_cache(self.model.config.decoder_config, self.rules.max_length)
        num_tokens = [len(sample.given) for sample in group]
        ids = pad_sequence([torch.tensor(sample.given) for sample in group], batch_first=True)
        ids = ids.to(encoder_states.device)
        decoded = self.model.decoder(
            input_ids=self._vocabulary(ids),
            encoder_hidden_states=encoder_states,
            encoder_attention_mask=encoder_mask,
            past_key_values=cache,
            use_cache=True,
        )
        lengths = torch.tensor(num_tokens, device=ids.device)
        if min(num_tokens) < ids.shape[1]:
            _align_ends(cache, lengths)
        last = decoded.last_hidden_state[torch.arange(len(group), device=ids.device), lengths - 1]
        return Entering(cache, encoder_mask, num_tokens), last

    @torch.no_grad()
    def _step(self) -> None:
        searches = [live.search for live in self.live]
        ids = torch.tensor([beam.tokens[-1] for search in searches for beam in search.running])
        ids = self._vocabulary(ids.to(self.slots.encoder_mask.device))
        states = self._states(ids, self.slots)
        blind = None if self.blind_slots is None else self._states(ids, self.blind_slots)
        origins = self._advance(searches, states, blind, rows_a_sample=self.rules.num_beams)
        if self.rules.num_beams > 1:
            for slots in filter(None, (self.slots, self.blind_slots)):
                slots.cache.reorder_cache(torch.tensor(origins, device=ids.device))

    def _states(self, ids: Tensor, slots: Slots) -> Tensor:
        """Behind one new token in each row."""
        if self.products.joined and self.step is not None:
            states: Tensor = self.step.run(self.model.decoder, self.products.joined, ids, slots)
            return states
        return self._decoded(ids[:, None], slots)

    def _decoded(self, ids: Tensor, slots: Slots) -> Tensor:
        """By the decoder itself."""
        width = self.model.config.decoder_config.encoder_hidden_size
        nothing = torch.zeros(1, dtype=self.model.dtype, device=ids.device)  # what was encoded is cached across
        decoded = self.model.decoder(
            input_ids=ids,
            attention_mask=slots.mask(),
            position_ids=slots.positions(),
            encoder_hidden_states=nothing.expand(*slots.encoder_mask.shape, width),
            encoder_attention_mask=slots.encoder_mask,
            past_key_values=slots.cache,
            use_cache=True,
        )
        states: Tensor = decoded.last_hidden_state[:, -1]
        return states

    @torch.no_grad()
    def _advance(
        self, searches: Sequence[Search], states: Tensor, blind: Tensor | None, *, rows_a_sample: int
    ) -> list[int]:
        """For each row, which it continues; a finished sample's stay as they are."""
        rules = self.rules
        beams = [beam for search in searches for beam in search.running[:rows_a_sample]]
        banned = [rules.banned(beam.tokens) for beam in beams]
        number = rules.num_candidates
        wanted = number + max(map(len, banned))
        scores, tokens = best_tokens(
            self.model.head,
            states,
            self.model.head_weight,
            self.shortlist,
            wanted if blind is None else wanted + NUM_LIKELIEST,
            normalised=self.normalised and blind is None,
        )
        if blind is not None:
            scores, tokens = self._guided(scores, tokens, blind, banned)
        options = [allowed_options(*row, number) for row in zip(scores.tolist(), tokens.tolist(), banned, strict=True)]
        origins: list[int] = []
        for place, search in enumerate(searches):
            first = place * rules.num_beams
            if search.is_done:
                origins += range(first, first + rules.num_beams)
                continue
            own: list[Options] = list(options[place * rows_a_sample : (place + 1) * rows_a_sample])
            if forced := search.rules.forced(search.length):
                own = [[(0.0, token) for token in forced]] * len(own)
            own *= rules.num_beams // len(own)
            origins += [first + beam for beam in search.advance(own)]
        return origins

    def _guided(
        self, logits: Tensor, tokens: Tensor, blind: Tensor, banned: Sequence[set[int]]
    ) -> tuple[Tensor, Tensor]:
        """Log-probabilities of the guided search, best first; what must not follow makes nothing else implausible."""
        is_banned = [[token in row for token in some] for row, some in zip(banned, tokens.tolist(), strict=True)]
        logits = logits.masked_fill(torch.tensor(is_banned, device=logits.device), -torch.inf)
        without = self.model.head.of_tokens(blind, self.model.head_weight, self.shortlist, tokens)
        scores, order = guide(logits, without, self.guidance).sort(dim=1, descending=True)
        return scores, tokens.gather(1, order)

    def _vocabulary(self, ids: Tensor) -> Tensor:
        return ids if self.shortlist is None else self.shortlist.to_vocabulary(ids)


def _align_ends(cache: Any, lengths: Tensor) -> None:
    """Each row's states move, so that all end in the last column; what is before a row's first is never seen."""
    for layer in cache.self_attention_cache.layers:
        num_columns = layer.keys.shape[2]
        columns = torch.arange(num_columns, device=lengths.device) - (num_columns - lengths[:, None])
        index = columns.clamp_(min=0)[:, None, :, None]
        layer.keys, layer.values = (
            states.gather(2, index.expand(-1, states.shape[1], -1, states.shape[3]))
            for states in (layer.keys, layer.values)
        )
