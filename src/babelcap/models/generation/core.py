"""The one generation core: requests in, results out, in batches that share what they can.

Requests may differ in language, task and prefix. Those that agree in what a batch must agree in (settings, allowed
tokens) run together: one that is finished leaves, one that waits enters. An image is encoded once for all its requests.
"""

import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain, islice

import torch
from torch import Tensor

from babelcap.coverage import Coverage
from babelcap.errors import UserError
from babelcap.models.checkpoints.processor import CaptionProcessor
from babelcap.models.generation.encoding import RequestEncoder
from babelcap.models.generation.generate import PlannedSearch, after_end
from babelcap.models.generation.preparing import (
    EncodedImages,
    Prepared,
    allowed_of,
    image_key,
    make_batches,
    make_groups,
    stack_features,
)
from babelcap.models.generation.products import MAX_ROWS
from babelcap.models.generation.requests import Found, GenerationRequest, GenerationResult, NumberedRequest, OnBadImage
from babelcap.models.generation.results import Generated, ResultBuilder
from babelcap.models.generation.rolling import Encoded, RollingDecoder, Sample
from babelcap.models.generation.sharing import obstacle_to_sharing, share_results
from babelcap.models.network.captioner import Captioner
from babelcap.models.network.prompted import EncoderOutput

WINDOW_BATCHES = 32  # requests that are looked at together, in batches: more share better, fewer answer sooner
BATCH_SIZE, SMALL_BATCH_SIZE = 16, 64  # by default; a step of a small decoder is mostly calls, however many rows it has
SMALL_DECODER = 2**25  # weights
MIN_SHARED = 256  # requests: a process more has to choose its products and pack its weights first


class GenerationCore(RequestEncoder):
    def __init__(
        self, model: Captioner, processor: CaptionProcessor, coverage: Coverage, *, identify_language: bool = True
    ) -> None:
        super().__init__(model, processor, coverage)
        self.builder = ResultBuilder(model, processor, coverage, identify_language=identify_language)

    def generate(
        self,
        requests: Iterable[GenerationRequest],
        *,
        batch_size: int | None = None,
        window: int | None = None,
        in_order: bool = True,
        on_bad_image: OnBadImage | None = None,
        num_processes: int | None = None,
        on_note: Callable[[str], None] = warnings.warn,
    ) -> Iterator[GenerationResult]:
        """Results as they are ready, in the requests' order unless told otherwise; requests are read as needed.

        `batch_size` is how many are decoded at once, by default 16, or 64 of a small model on a processor; `window` how
        many requests are looked at together. A request whose image cannot be read stops all, or, with
        `on_bad_image`, is reported there and has no result. `num_processes` share many requests (sharing.py), by
        default as many as there are threads where the model is small, and else this one alone. Where so many were
        asked for and cannot be, `on_note` hears why.
        """
        if batch_size is not None and batch_size < 1:
            raise UserError(f"batch_size is {batch_size}; it must be at least 1")
        if num_processes is not None and num_processes < 1:
            raise UserError(f"num_processes is {num_processes}; it must be at least 1")
        numbered = enumerate(requests)
        window = window or WINDOW_BATCHES * (batch_size or BATCH_SIZE)
        first = list(islice(numbered, window))
        num_shared = self._num_processes(num_processes, first, on_note)

        def generate(some: Iterator[NumberedRequest], report: OnBadImage | None) -> Iterator[Found]:
            return self._windows(some, batch_size, window, report)

        if num_shared > 1:
            parts = share_results(chain(first, numbered), generate, num_shared, window, on_bad_image)
        else:
            parts = generate(chain(first, numbered), on_bad_image)
        waiting: Found = {}
        next_number = 0
        for found in parts:
            waiting |= found
            while next_number in waiting if in_order else waiting:
                result = waiting.pop(next_number if in_order else next(iter(waiting)))
                next_number += 1
                if result is not None:
                    yield result

    def _num_processes(
        self, asked: int | None, first: Sequence[NumberedRequest], on_note: Callable[[str], None]
    ) -> int:
        """As many as were asked for, or as pay; one where nothing can be shared, which is told who asked for more."""
        if asked is None:
            wanted = torch.get_num_threads() if len(first) >= MIN_SHARED and self._is_small() else 1
        else:
            wanted = min(asked, len(first))
        obstacle = obstacle_to_sharing(first) if wanted > 1 else None
        if obstacle is not None and asked is not None:
            on_note(f"{asked} processes were asked for, but this one works alone: {obstacle}")
        return wanted if obstacle is None else 1

    def _windows(
        self,
        numbered: Iterator[NumberedRequest],
        batch_size: int | None,
        window: int,
        on_bad_image: OnBadImage | None,
    ) -> Iterator[Found]:
        encoded: EncodedImages = {}
        with self._packed_kept():
            while some := list(islice(numbered, window)):
                prepared = self._prepare(some)
                wanted = {image_key(item.request) for item in prepared}
                encoded = {key: found for key, found in encoded.items() if key in wanted}
                yield from self._decode(prepared, batch_size, encoded, on_bad_image)

    def _is_small(self) -> bool:
        num_weights = sum(parameter.numel() for parameter in self.model.decoder.parameters())
        return num_weights < SMALL_DECODER and self.model.device.type == "cpu"

    def default_batch_size(self, num_beams: int) -> int:
        return max(1, min(SMALL_BATCH_SIZE, MAX_ROWS // num_beams)) if self._is_small() else BATCH_SIZE

    @contextmanager
    def _packed_kept(self) -> Iterator[None]:
        """What is packed for one batch serves the next; after the last it goes, unless it was to stay anyway."""
        was_kept = self.model.keeps_packed
        self.model.keeps_packed = True
        try:
            yield
        finally:
            self.model.keeps_packed = was_kept
            if not was_kept:
                self.model.packed_weights.clear()

    def _decode(
        self, prepared: Sequence[Prepared], wanted: int | None, encoded: EncodedImages, on_bad_image: OnBadImage | None
    ) -> Iterator[Found]:
        for group in make_groups(prepared):
            first = group[0].request
            batch_size = wanted or self.default_batch_size(first.settings.beams)
            planned = self.model.plan_search(
                [item.prefix_ids for item in group], allowed_of(first), first.settings.arguments()
            )
            if planned is not None:
                yield from self._roll(group, planned, batch_size, encoded, on_bad_image)
                continue
            if group[0].guidance != 1:
                raise UserError(
                    "guidance_scale needs our own search, which cannot write texts as long as this decoder's window; "
                    "ask for fewer new tokens, or for guidance_scale 1"
                )
            for batch in make_batches(group, batch_size):
                usable, found = self._usable(batch, encoded, on_bad_image)
                if usable:
                    results = self._run(usable, stack_features(usable, encoded), *self._encode(usable, encoded))
                    found |= dict(zip((item.number for item in usable), results, strict=True))
                yield found

    def _roll(
        self,
        group: Sequence[Prepared],
        planned: PlannedSearch,
        batch_size: int,
        encoded: EncodedImages,
        on_bad_image: OnBadImage | None,
    ) -> Iterator[Found]:
        """With full batches: what waits enters when enough are finished."""
        rules, shortlist, given, max_lengths = planned
        settings, queue = group[0].request.settings, deque(range(len(group)))
        ready: deque[Sample] = deque()
        samples: dict[int, Sample] = {}
        unusable: Found = {}
        blind = self._blind(group)

        def take(number: int) -> list[Sample]:
            """Encoded as many at once as are decoded at once: of a few, most of the time would go into calls."""
            while queue and len(ready) < number:
                places = {
                    group[place].number: place
                    for place in (queue.popleft() for _ in range(min(batch_size, len(queue))))
                }
                usable, found = self._usable([group[place] for place in places.values()], encoded, on_bad_image)
                unusable.update(found)
                if usable:
                    for item, *padded in zip(usable, *self._encode(usable, encoded), strict=True):
                        place, own, other = places[item.number], Encoded.unpadded(*padded), tuple(item.prompt_ids)
                        ready.append(Sample(place, given[place], own, max_lengths[place], blind.get(other)))
            new = [ready.popleft() for _ in range(min(number, len(ready)))]
            samples.update({sample.number: sample for sample in new})
            return new

        # the sum of a search's log-probabilities is the score, unless it chose from fewer tokens, was forced or guided
        guidance = group[0].guidance
        knows_scores = guidance == 1 and shortlist is None and rules.forced_first is None and not rules.forced_last
        num_steps = rules.max_length - min(map(len, given))
        products = self.model.fast_products(shortlist, min(batch_size, len(group)) * rules.num_beams, num_steps)
        wants_parts = settings.scores and knows_scores
        decoder = RollingDecoder(self.model, rules, shortlist, products, normalised=wants_parts, guidance=guidance)
        finished: list[Generated] = []
        for place, beams in decoder.run(take, batch_size):
            sequences = [torch.tensor(beam.tokens) for beam in beams]
            if shortlist is not None:
                sequences = [shortlist.to_vocabulary(sequence).cpu() for sequence in sequences]
            parts = [beam.parts for beam in beams] if wants_parts else None
            sample = samples.pop(place)
            finished.append(Generated(group[place], sequences, *sample.encoded, parts))
            if len(finished) * 2 >= batch_size:
                yield self._found(finished) | unusable
                finished = []
                unusable.clear()
        yield self._found(finished) | unusable

    def _found(self, finished: Sequence[Generated]) -> Found:
        results = self.builder.results(finished) if finished else []
        return {found.item.number: result for found, result in zip(finished, results, strict=True)}

    def _run(
        self, batch: Sequence[Prepared], features: Tensor | None, states: Tensor, mask: Tensor
    ) -> list[GenerationResult]:
        """By transformers' loop: a batch that starts and ends together."""
        first = batch[0]
        settings, device = first.request.settings, self.model.device
        inputs = self.processor.pad_prompts([item.prompt_ids for item in batch])
        prefixes = torch.tensor([item.prefix_ids for item in batch], device=device) if first.prefix_ids else None
        with torch.random.fork_rng([device] if device.type == "cuda" else [], enabled=settings.is_sampled):
            if settings.is_sampled:
                torch.manual_seed((settings.seed * 1_000_003 + first.number) % 2**63)
            sequences: Tensor = self.model.generate(
                **{name: tensor.to(device) for name, tensor in inputs.items()},
                **({} if prefixes is None else {"decoder_input_ids": prefixes}),
                image_features=features,
                encoder_outputs=EncoderOutput(last_hidden_state=states, attention_mask=mask),
                allowed_tokens=allowed_of(first.request),
                **settings.arguments(),  # type: ignore[arg-type]
            )
        num_given = self.model.num_given_tokens(first.prefix_ids)
        lengths = (~after_end(sequences, num_given, self.model.end_token_ids)).sum(dim=1).tolist()
        rows = [sequence[:length].cpu() for sequence, length in zip(sequences, lengths, strict=True)]
        size = settings.num_return_sequences
        parts = [rows[start : start + size] for start in range(0, len(rows), size)]
        return self.builder.results([Generated(*found) for found in zip(batch, parts, states, mask, strict=True)])
