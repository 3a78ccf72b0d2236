"""The one generation core: requests in, results out, in batches that share what they can.

Requests may differ in language, task and prefix. Those that agree in what a batch must agree in (settings, allowed
tokens) run together: one that is finished leaves, one that waits enters. An image is encoded once for all its requests.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path

import torch
from torch import Tensor

from babelcap.coverage import CAPTION, Coverage, Pair, Style
from babelcap.errors import UserError
from babelcap.models.checkpoints.processor import CaptionProcessor, image_name
from babelcap.models.generation.generate import PlannedSearch, after_end
from babelcap.models.generation.kept_features import KeptFeatures
from babelcap.models.generation.packing import encoder_products
from babelcap.models.generation.preparing import (
    EncodedImage,
    EncodedImages,
    Prepared,
    allowed_of,
    image_key,
    make_batches,
    make_groups,
    stack_features,
)
from babelcap.models.generation.products import MAX_ROWS
from babelcap.models.generation.requests import GenerationRequest, GenerationResult
from babelcap.models.generation.results import Generated, ResultBuilder
from babelcap.models.generation.rolling import Encoded, RollingDecoder, Sample
from babelcap.models.generation.sharing import NumberedRequest, can_fork, share
from babelcap.models.network.captioner import Captioner
from babelcap.models.network.prompted import EncoderOutput

WINDOW_BATCHES = 32  # requests that are looked at together, in batches: more share better, fewer answer sooner
BATCH_SIZE, SMALL_BATCH_SIZE = 16, 64  # by default; a step of a small decoder is mostly calls, however many rows it has
SMALL_DECODER = 2**25  # weights
MIN_SHARED = 256  # requests: a process more has to choose its products and pack its weights first
MAX_TIMES_READ = 8  # a prompt of more times the tokens that the model reads is not cut but refused
OnBadImage = Callable[[GenerationRequest, UserError], None]
Found = dict[int, GenerationResult | None]  # by the requests' numbers; None for one whose image cannot be used
NO_REQUEST = GenerationRequest(language="")


class GenerationCore:
    def __init__(
        self, model: Captioner, processor: CaptionProcessor, coverage: Coverage, *, identify_language: bool = True
    ) -> None:
        self.model, self.processor, self.coverage = model, processor, coverage
        self.builder = ResultBuilder(model, processor, coverage, identify_language=identify_language)
        self.kept_features: KeptFeatures | None = None

    def keep_features(self, folder: str | Path) -> None:
        """Image tokens are kept in this folder from now on, and taken from it where they are there."""
        self.kept_features = KeptFeatures(folder, self.model)

    def generate(
        self,
        requests: Iterable[GenerationRequest],
        *,
        batch_size: int | None = None,
        window: int | None = None,
        in_order: bool = True,
        on_bad_image: OnBadImage | None = None,
        num_processes: int | None = None,
    ) -> Iterator[GenerationResult]:
        """Results as they are ready, in the requests' order unless told otherwise; requests are read as needed.

        `batch_size` is how many are decoded at once, by default 16, or 64 of a small model on a processor; `window` how
        many requests are looked at together. A request whose image cannot be read stops all, or, with
        `on_bad_image`, is reported there and has no result. `num_processes` share many requests (sharing.py), by
        default as many as there are threads where the model is small, and else this one alone.
        """
        if batch_size is not None and batch_size < 1:
            raise UserError(f"batch_size is {batch_size}; it must be at least 1")
        if num_processes is not None and num_processes < 1:
            raise UserError(f"num_processes is {num_processes}; it must be at least 1")
        numbered = enumerate(requests)
        window = window or WINDOW_BATCHES * (batch_size or BATCH_SIZE)
        first = list(islice(numbered, window))
        num_shared = self._num_processes(num_processes, first)
        if num_shared > 1:
            parts = self._shared(chain(first, numbered), num_shared, batch_size, window, on_bad_image)
        else:
            parts = self._windows(chain(first, numbered), batch_size, window, on_bad_image)
        waiting: Found = {}
        next_number = 0
        for found in parts:
            waiting |= found
            while next_number in waiting if in_order else waiting:
                result = waiting.pop(next_number if in_order else next(iter(waiting)))
                next_number += 1
                if result is not None:
                    yield result

    def _num_processes(self, asked: int | None, first: Sequence[NumberedRequest]) -> int:
        """What is drawn depends on who is drawn beside it, and so is not shared."""
        if asked is None:
            wanted = torch.get_num_threads() if len(first) >= MIN_SHARED and self._is_small() else 1
        else:
            wanted = min(asked, len(first))
        is_drawn = any(request.settings.is_sampled for _, request in first)
        return wanted if wanted > 1 and not is_drawn and can_fork() else 1

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

    def _shared(
        self,
        numbered: Iterator[NumberedRequest],
        num_processes: int,
        batch_size: int | None,
        window: int,
        on_bad_image: OnBadImage | None,
    ) -> Iterator[Found]:
        """Requests stay here; results come without them, and errors of images in the place of results."""

        def decode(part: list[NumberedRequest]) -> dict[int, GenerationResult | UserError]:
            numbers = {id(request): number for number, request in part}
            bad: list[tuple[GenerationRequest, UserError]] = []
            windows = self._windows(iter(part), batch_size, window, lambda *told: bad.append(told))
            written = chain.from_iterable(some.items() for some in windows)
            found: dict[int, GenerationResult | UserError] = {
                number: replace(result, request=NO_REQUEST) for number, result in written if result is not None
            }
            return found | {numbers[id(request)]: error for request, error in bad}

        for part, answer in share(numbered, decode, num_processes, window):
            requests = dict(part)
            found: Found = {}
            for number, result in answer.get().items():
                if isinstance(result, UserError):
                    if on_bad_image is None:
                        raise result
                    on_bad_image(requests[number], result)
                    found[number] = None
                else:
                    found[number] = replace(result, request=requests[number])
            yield found

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

    def _usable(
        self, batch: Sequence[Prepared], encoded: EncodedImages, on_bad_image: OnBadImage | None
    ) -> tuple[list[Prepared], Found]:
        """Those whose image could be encoded, and None for each of the others."""
        self._encode_images(batch, encoded)
        usable, unusable = [], []
        for item in batch:
            image = encoded.get(image_key(item.request))
            if image is None or image.error is None:
                usable.append(item)
            elif on_bad_image is None:
                raise image.error
            else:
                on_bad_image(item.request, image.error)
                unusable.append(item.number)
        return usable, dict.fromkeys(unusable)

    def _prepare(self, numbered: Sequence[tuple[int, GenerationRequest]]) -> list[Prepared]:
        """Everything that can be wrong with a request, but its image, is wrong here, before anything is computed."""
        prompts = [self.prompt_of(request) for _, request in numbered]
        different = list(dict.fromkeys(prompts))
        prompt_ids = dict(zip(different, self.processor.prompt_ids(different), strict=True))
        num_cut = {prompt: self._num_tokens_cut(prompt, ids) for prompt, ids in prompt_ids.items()}
        prefixes = [self.prefix_of(request) for _, request in numbered]
        prefix_ids = {prefix: self.processor.prefix_ids(prefix) for prefix in set(prefixes)}
        return [
            Prepared(
                number,
                request,
                prefix,
                prefix_ids[prefix],
                prompt_ids[prompt],
                num_cut[prompt],
                self.guidance_of(request),
            )
            for (number, request), prefix, prompt in zip(numbered, prefixes, prompts, strict=True)
        ]

    def _num_tokens_cut(self, prompt: str, read: Sequence[int]) -> int:
        """A little too long is cut and told; of what is much too long a beginning would say nothing."""
        num_tokens = self.processor.num_prompt_tokens(prompt, read)
        if num_tokens > MAX_TIMES_READ * self.processor.max_prompt_tokens:
            raise UserError(
                f"the text '{prompt[-40:]}' takes {num_tokens:,} tokens, and the model reads "
                f"{self.processor.max_prompt_tokens}; give it in pieces, such as sentences"
            )
        return num_tokens - len(read)

    def prompt_of(self, request: GenerationRequest) -> str:
        pair = self.coverage.possible_pair(request.task, request.language)
        try:
            return self.coverage.prompt(pair, Style(request.style), request.source)
        except ValueError as error:
            raise UserError(str(error)) from None

    def prefix_of(self, request: GenerationRequest) -> str:
        if request.prefix_text is not None:
            return request.prefix_text
        wants_prefix = request.prefix == "always"
        if request.prefix == "auto":
            pair = Pair(request.task, request.language)
            wants_prefix = self.coverage.task(pair.task).after_prefix and pair in self.coverage.hole
        return self.coverage.language(request.language).prefix if wants_prefix else ""

    def guidance_of(self, request: GenerationRequest) -> float:
        """As asked for, or the model's own for captions; none where there is no picture, or where tokens are drawn."""
        if request.settings.is_sampled or (request.image is None and request.image_features is None):
            return 1.0
        asked = request.settings.guidance_scale
        own = self.model.guidance_scale({}) if request.task == CAPTION else 1.0
        return own if asked is None else asked

    @torch.no_grad()
    def _blind(self, group: Sequence[Prepared]) -> dict[tuple[int, ...], Encoded]:
        """What the encoder makes of the mean picture and each prompt, where the group is guided."""
        if group[0].guidance == 1:
            return {}
        prompts = list(dict.fromkeys(tuple(item.prompt_ids) for item in group))
        inputs = self.processor.pad_prompts(prompts)
        outputs = self.model.encode_blind(**{name: tensor.to(self.model.device) for name, tensor in inputs.items()})
        rows = zip(outputs.last_hidden_state, outputs.attention_mask, strict=True)
        return dict(zip(prompts, (Encoded.unpadded(*row) for row in rows), strict=True))

    def _encode_images(self, batch: Sequence[Prepared], encoded: EncodedImages) -> None:
        """The vision tower's work for images that no batch had before."""
        pixels: dict[Hashable, Tensor] = {}
        for item in batch:
            key, image = image_key(item.request), item.request.image
            if key is None or key in encoded or image is None:
                continue
            try:
                pixels[key] = self.processor.encode_image(image, item.request.key or image_name(image, item.number))
                encoded[key] = EncodedImage(image)
            except UserError as error:
                encoded[key] = EncodedImage(image, error=error)
        for key, found in self._image_tokens(pixels).items():
            encoded[key] = encoded[key]._replace(features=found)

    def _image_tokens(self, pixels: dict[Hashable, Tensor]) -> dict[Hashable, Tensor]:
        """Those that are kept, and what the tower gives for the others."""
        kept = self.kept_features.read(pixels) if self.kept_features is not None else {}
        found = {key: tokens.to(self.model.device) for key, tokens in kept.items()}
        others = {key: image for key, image in pixels.items() if key not in found}
        if others:
            computed = dict(zip(others, self.encode_pixels(torch.stack(list(others.values()))), strict=True))
            if self.kept_features is not None:
                self.kept_features.write(others, computed)
            found |= computed
        return found

    @torch.no_grad()
    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """[images, 3, size, size] -> image tokens, as requests take them."""
        with encoder_products(self.model).applied():
            return self.model.encode_images(pixels.to(self.model.device, self.model.dtype))

    @torch.no_grad()
    def _encode(self, batch: Sequence[Prepared], encoded: EncodedImages) -> tuple[Tensor, Tensor]:
        """States and mask of image tokens and prompts. Equal prompts of one image are encoded once."""
        keys = [(image_key(item.request) or id(item.request.image_features), tuple(item.prompt_ids)) for item in batch]
        places = {key: place for place, key in reversed(list(enumerate(keys)))}
        different = [batch[place] for place in sorted(places.values())]
        rows = {keys[place]: row for row, place in enumerate(sorted(places.values()))}
        inputs = self.processor.pad_prompts([item.prompt_ids for item in different])
        features, device = stack_features(different, encoded), self.model.device
        outputs = self.model.encode(
            **{name: tensor.to(device) for name, tensor in inputs.items()},
            image_features=None if features is None else features.to(device, self.model.dtype),
        )
        chosen = torch.tensor([rows[key] for key in keys], device=device)
        return outputs.last_hidden_state[chosen], outputs.attention_mask[chosen]

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
