"""The one generation core: requests in, results out, in batches that share what they can.

Requests may differ in language, task and prefix. Those that agree in what a batch must agree in (settings, allowed
tokens, number of prefix tokens) run together, of similar prompt length; an image is encoded once for all its requests.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from babelcap.coverage import Coverage, Pair, Style
from babelcap.errors import UserError
from babelcap.identification import identify
from babelcap.models.checkpoints.processor import CaptionProcessor, ImageSource, image_name
from babelcap.models.generation.explain import Explained, explain
from babelcap.models.generation.generate import after_end
from babelcap.models.generation.requests import (
    OWN_SHORTLIST,
    GeneratedText,
    GenerationRequest,
    GenerationResult,
    Score,
    Token,
)
from babelcap.models.network.captioner import Captioner

WINDOW_BATCHES = 8  # requests that are looked at together, in batches: more share better, fewer answer sooner
LENGTH_STEP = 16  # prompts this close in length are kept in their order: padding them costs nothing
OnBadImage = Callable[[GenerationRequest, UserError], None]


class EncodedImage(NamedTuple):
    image: ImageSource  # held, so that its identity stays its own
    features: Tensor | None = None
    error: UserError | None = None


EncodedImages = dict[Hashable, EncodedImage]


class Prepared(NamedTuple):
    number: int  # among all requests
    request: GenerationRequest
    prefix: str
    prefix_ids: list[int]
    prompt_ids: list[int]


class GenerationCore:
    def __init__(
        self, model: Captioner, processor: CaptionProcessor, coverage: Coverage, *, identify_language: bool = True
    ) -> None:
        self.model, self.processor, self.coverage = model, processor, coverage
        self.identify_language = identify_language

    def generate(
        self,
        requests: Iterable[GenerationRequest],
        *,
        batch_size: int = 16,
        window: int | None = None,
        in_order: bool = True,
        on_bad_image: OnBadImage | None = None,
    ) -> Iterator[GenerationResult]:
        """Results as they are ready, in the requests' order unless told otherwise; requests are read as needed.

        `window` is how many requests are looked at together. A request whose image cannot be read stops all, or, with
        `on_bad_image`, is reported there and has no result.
        """
        if batch_size < 1:
            raise UserError(f"batch_size is {batch_size}; it must be at least 1")
        numbered = enumerate(requests)
        encoded: EncodedImages = {}
        while some := list(islice(numbered, window or WINDOW_BATCHES * batch_size)):
            prepared = self._prepare(some)
            wanted = {_image_key(item.request) for item in prepared}
            encoded = {key: found for key, found in encoded.items() if key in wanted}
            waiting: dict[int, GenerationResult | None] = {}
            next_number = prepared[0].number
            for batch in make_batches(prepared, batch_size):
                waiting |= self._run_usable(batch, encoded, on_bad_image)
                while next_number in waiting if in_order else waiting:
                    result = waiting.pop(next_number if in_order else next(iter(waiting)))
                    next_number += 1
                    if result is not None:
                        yield result

    def _run_usable(
        self, batch: Sequence[Prepared], encoded: EncodedImages, on_bad_image: OnBadImage | None
    ) -> dict[int, GenerationResult | None]:
        """Results by the requests' numbers; None for one whose image cannot be used."""
        self._encode_images(batch, encoded)
        usable = []
        for item in batch:
            image = encoded.get(_image_key(item.request))
            if image is None or image.error is None:
                usable.append(item)
            elif on_bad_image is None:
                raise image.error
            else:
                on_bad_image(item.request, image.error)
        results = self._run(usable, _features(usable, encoded)) if usable else []
        numbers = [item.number for item in batch]
        return dict.fromkeys(numbers) | dict(zip((item.number for item in usable), results, strict=True))

    def _prepare(self, numbered: Sequence[tuple[int, GenerationRequest]]) -> list[Prepared]:
        """Everything that can be wrong with a request, but its image, is wrong here, before anything is computed."""
        prompts = [self._prompt(request) for _, request in numbered]
        different = list(dict.fromkeys(prompts))
        prompt_ids = dict(zip(different, self.processor.prompt_ids(different), strict=True))
        prefixes = [self._prefix(request) for _, request in numbered]
        prefix_ids = {prefix: self.processor.prefix_ids(prefix) for prefix in set(prefixes)}
        return [
            Prepared(number, request, prefix, prefix_ids[prefix], prompt_ids[prompt])
            for (number, request), prefix, prompt in zip(numbered, prefixes, prompts, strict=True)
        ]

    def _prompt(self, request: GenerationRequest) -> str:
        language = self.coverage.language(request.language)
        pair = Pair(self.coverage.task(request.task).name, language.code)
        if pair not in self.coverage.all_pairs:
            known = [other.language for other in self.coverage.all_pairs if other.task == pair.task]
            raise UserError(f"language: there is no {request.task} into '{language.code}' (known: {', '.join(known)})")
        try:
            return self.coverage.prompt(pair, Style(request.style), request.source)
        except ValueError as error:
            raise UserError(str(error)) from None

    def _prefix(self, request: GenerationRequest) -> str:
        if request.prefix_text is not None:
            return request.prefix_text
        wants_prefix = request.prefix == "always"
        if request.prefix == "auto":
            pair = Pair(request.task, request.language)
            wants_prefix = self.coverage.task(pair.task).after_prefix and pair in self.coverage.hole
        return self.coverage.language(request.language).prefix if wants_prefix else ""

    def _encode_images(self, batch: Sequence[Prepared], encoded: EncodedImages) -> None:
        """The vision tower's work for images that no batch had before."""
        pixels: dict[Hashable, Tensor] = {}
        for item in batch:
            key, image = _image_key(item.request), item.request.image
            if key is None or key in encoded or image is None:
                continue
            try:
                pixels[key] = self.processor.encode_image(image, item.request.key or image_name(image, item.number))
                encoded[key] = EncodedImage(image)
            except UserError as error:
                encoded[key] = EncodedImage(image, error=error)
        if pixels:
            tokens = self.encode_pixels(torch.stack(list(pixels.values())))
            for key, found in zip(pixels, tokens, strict=True):
                encoded[key] = encoded[key]._replace(features=found)

    @torch.no_grad()
    def encode_pixels(self, pixels: Tensor) -> Tensor:
        """[images, 3, size, size] -> image tokens, as requests take them."""
        return self.model.encode_images(pixels.to(self.model.device, self.model.dtype))

    def _run(self, batch: Sequence[Prepared], features: Tensor | None) -> list[GenerationResult]:
        first = batch[0]
        settings, device = first.request.settings, self.model.device
        inputs = self.processor.pad_prompts([item.prompt_ids for item in batch])
        inputs = {name: tensor.to(device) for name, tensor in inputs.items()}
        if features is not None:
            features = features.to(device, self.model.dtype)
        prefixes = torch.tensor([item.prefix_ids for item in batch], device=device) if first.prefix_ids else None
        with torch.random.fork_rng([device] if device.type == "cuda" else [], enabled=settings.is_sampled):
            if settings.is_sampled:
                torch.manual_seed((settings.seed * 1_000_003 + first.number) % 2**63)
            sequences: Tensor = self.model.generate(
                **inputs,
                **({} if prefixes is None else {"decoder_input_ids": prefixes}),
                image_features=features,
                allowed_tokens=_allowed(first.request),
                **settings.arguments(),  # type: ignore[arg-type]
            )
        explained: list[Explained | None] = [None] * len(sequences)
        if settings.scores or settings.tokens or settings.attention:
            explained = list(self._explain(batch, inputs, features, sequences))
        wholes = self.processor.decode(sequences)
        size = settings.num_return_sequences
        return [
            self._result(
                item,
                [
                    self._text(item, wholes[row], sequences[row], explained[row])
                    for row in range(number * size, (number + 1) * size)
                ],
            )
            for number, item in enumerate(batch)
        ]

    def _explain(
        self, batch: Sequence[Prepared], inputs: dict[str, Tensor], features: Tensor | None, sequences: Tensor
    ) -> Iterator[Explained]:
        num_given = self.model.num_given_tokens(batch[0].prefix_ids)
        behind = after_end(sequences, num_given, self.model.end_token_ids)
        wants_attention = batch[0].request.settings.attention
        with torch.no_grad():
            found = explain(self.model, inputs, features, sequences, behind, attention=wants_attention)
        for row in range(len(sequences)):
            attention = None if found.attention is None else found.attention[row].cpu()
            yield Explained(found.log_probabilities[row].cpu(), found.is_token[row].cpu(), attention)

    def _text(self, item: Prepared, whole: str, ids: Tensor, explained: Explained | None) -> GeneratedText:
        without_prefix = whole.removeprefix(item.prefix)
        if explained is None:
            return GeneratedText(whole, without_prefix)
        settings, num_given = item.request.settings, self.model.num_given_tokens(item.prefix_ids) - 1
        num_tokens = int(explained.is_token.sum())
        chosen = explained.log_probabilities[num_given:num_tokens].double()
        total = float(chosen.sum())
        return GeneratedText(
            whole,
            without_prefix,
            Score(total, total / max(1, len(chosen)), len(chosen)),
            tuple(self._tokens(ids[1 : num_tokens + 1], explained, num_given)) if settings.tokens else (),
            None if explained.attention is None else explained.attention[:num_tokens],
        )

    def _tokens(self, ids: Tensor, explained: Explained, num_given: int) -> Iterator[Token]:
        """A token's text is what it adds to that of those before it: pieces of a word have no text of their own."""
        tokenizer, written = self.processor.decoder_tokenizer, ""
        for place, token_id in enumerate(ids.tolist()):
            whole = tokenizer.decode(ids[: place + 1], skip_special_tokens=True)
            yield Token(token_id, whole[len(written) :], float(explained.log_probabilities[place]), place < num_given)
            written = whole

    def _result(self, item: Prepared, texts: Sequence[GeneratedText]) -> GenerationResult:
        if not self.identify_language:
            return GenerationResult(item.request, item.prefix, tuple(texts))
        found = identify(texts[0].without_prefix, self.coverage.languages)  # a prefix was given, not said
        is_in_language = found.is_in(self.coverage.language(item.request.language))
        return GenerationResult(item.request, item.prefix, tuple(texts), found.language, is_in_language)


def make_batches(prepared: Sequence[Prepared], batch_size: int) -> list[list[Prepared]]:
    """Batches of what may run together, of similar prompt length; that of the first request comes first."""
    groups: dict[Hashable, list[Prepared]] = defaultdict(list)
    for item in prepared:
        groups[_group_key(item)].append(item)
    batches = []
    for group in groups.values():
        ordered = sorted(group, key=lambda item: len(item.prompt_ids) // LENGTH_STEP)
        batches += [ordered[start : start + batch_size] for start in range(0, len(ordered), batch_size)]
    return sorted(batches, key=lambda batch: min(item.number for item in batch))


def _features(batch: Sequence[Prepared], encoded: EncodedImages) -> Tensor | None:
    """[rows, image tokens, width] of a batch; None for one without images."""
    found = [
        item.request.image_features if item.request.image is None else encoded[_image_key(item.request)].features
        for item in batch
    ]
    given = [features for features in found if features is not None]
    return torch.stack(given) if given else None


def _group_key(item: Prepared) -> Hashable:
    request = item.request
    allowed = _allowed(request)
    given = None if request.image_features is None else tuple(request.image_features.shape)
    return (
        request.settings,
        allowed if isinstance(allowed, str) else id(allowed),
        len(item.prefix_ids),
        given or request.image is not None,
    )


def _allowed(request: GenerationRequest) -> str | Sequence[int] | Tensor | None:
    is_own = isinstance(request.allowed_tokens, str) and request.allowed_tokens == OWN_SHORTLIST
    return request.language if is_own else request.allowed_tokens


def _image_key(request: GenerationRequest) -> Hashable:
    """Equal for requests of one image; None where there is nothing to encode."""
    if request.image is None:
        return None
    return str(request.image) if isinstance(request.image, str | Path) else id(request.image)
