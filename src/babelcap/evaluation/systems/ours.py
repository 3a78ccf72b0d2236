"""A captioner of this package, any checkpoint, through the one generation core.

As published: what is scored is what follows the prefix, its first letter in upper case. Losses are those of all that
the decoder has to say: begin, tokens and end, or what follows the prefix where one is given.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property

import torch

from babelcap.coverage import CAPTION, TRANSLATION, Pair
from babelcap.data.feed.batches import IGNORED_LABEL, pad
from babelcap.data.feed.text import encode_after_prefix, encode_texts
from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.systems.loading import choose_dtype, model_hash
from babelcap.evaluation.systems.protocol import Answer
from babelcap.evaluation.systems.settings import SystemOptions, cannot, read_settings, sources_of
from babelcap.models.checkpoints.files import SHORTLIST_FILES
from babelcap.models.checkpoints.weights import resolve_folder
from babelcap.models.generation.requests import (
    OWN_SHORTLIST,
    GenerationRequest,
    GenerationResult,
    GenerationSettings,
    check_prefix_mode,
)
from babelcap.models.inference import find_device, load
from babelcap.storage import text_sha256
from babelcap.training.record import folder_hash

NAME = "ours"


class Ours:
    def __init__(self, path_or_id: str, options: SystemOptions) -> None:
        self.settings, self.options = read_settings(NAME, options), options
        self.prefix = check_prefix_mode(options.prefix)
        self.folder, device = resolve_folder(path_or_id), find_device(options.device)
        self.core = load(
            self.folder,
            device=device,
            dtype=choose_dtype(self.settings, options, device),
            image_size_px=options.image_size_px,
            encoder_tokenizer=options.encoder_tokenizer,
            decoder_tokenizer=options.decoder_tokenizer,
        )
        self.core.builder.identify_language = False  # scores ask for that themselves

    @cached_property
    def identity(self) -> Mapping[str, str | int | float | bool | None]:
        named = {name: getattr(self.options, name) for name in ("encoder_tokenizer", "decoder_tokenizer")}
        return {
            "name": NAME,
            "model_hash": folder_hash(self.folder),
            **{name: model_hash(resolve_folder(place)) if place else "own" for name, place in named.items()},
            "dtype": str(self.core.model.dtype).removeprefix("torch."),
            "image_size_px": self.core.processor.image_size_px,
            "prompts": text_sha256(self.core.coverage.model_dump_json())[:16],
            "prefix": self.prefix,
            "shortlist": model_hash(self.folder, SHORTLIST_FILES) if self.options.shortlist else None,
            "num_beams": self.settings.num_beams,
            "max_new_tokens": self.settings.max_new_tokens,
            "batch_size": self.settings.batch_size,
            "text": "after-prefix+first-letter-upper",
            "losses": "begin+answer-tokens+end",
        }

    @property
    def batch_size(self) -> int:
        return self.settings.batch_size

    def caption(self, items: Sequence[Item]) -> list[Answer]:
        return self._answer([self._request(item, CAPTION) for item in items])

    def translate(self, items: Sequence[Item]) -> list[Answer]:
        sources_of(NAME, items)
        return self._answer([self._request(item, TRANSLATION) for item in items])

    def _request(self, item: Item, task: str) -> GenerationRequest:
        if Pair(task, item.language) not in self.core.coverage.all_pairs:
            known = ", ".join(pair.language for pair in self.core.coverage.pairs_of(task))
            raise cannot(NAME, task, item, f"its languages for it: {known or 'none'}")
        is_caption = task == CAPTION
        return GenerationRequest(
            item.language,
            task,
            image=item.image,
            source=None if is_caption else item.source,
            style=item.style,
            prefix=self.prefix if is_caption else "none",  # what a translation begins with is its source's business
            allowed_tokens=OWN_SHORTLIST if self.options.shortlist else None,
            settings=GenerationSettings(
                num_beams=self.settings.num_beams, max_new_tokens=self.settings.max_new_tokens, scores=False
            ),
        )

    def _answer(self, requests: Sequence[GenerationRequest]) -> list[Answer]:
        return [_answer_of(result) for result in self.core.generate(requests, batch_size=self.batch_size)]

    def token_losses(self, items: Sequence[Item], answers: Sequence[str]) -> list[list[float]]:
        requests = [self._request(item, item.task) for item in items]
        prompts = self.core.processor.encode_prompts([self.core.prompt_of(request) for request in requests])
        encoded = [
            self._target(request, item, answer) for request, item, answer in zip(requests, items, answers, strict=True)
        ]
        model, targets = self.core.model, [ids for ids, _ in encoded]
        images = list(dict.fromkeys(item.image for item in items))  # each is encoded once
        features = self.core.encode_pixels(self.core.processor.encode_images(images))
        with torch.inference_mode():
            losses = model(
                **{name: tensor.to(model.device) for name, tensor in prompts.items()},
                image_features=features[[images.index(item.image) for item in items]],
                labels=pad(targets, IGNORED_LABEL).to(model.device),
                logits_needed=False,
            ).token_losses.cpu()
        return [row[num_given : len(ids)].tolist() for row, (ids, num_given) in zip(losses, encoded, strict=True)]

    def _target(self, request: GenerationRequest, item: Item, answer: str) -> tuple[list[int], int]:
        """The ids that the decoder has to say, and how many of them it is given."""
        tokenizer, longest = self.core.processor.decoder_tokenizer, self._max_target_tokens
        if self.core.prefix_of(request):
            language = self.core.coverage.language(item.language)
            rows, num_given = encode_after_prefix(tokenizer, language, [answer], longest + 1)
        else:
            rows, num_given = encode_texts(tokenizer, [answer], longest + 1), 0
        if len(rows[0]) > longest:
            raise cannot(NAME, item.task, item, f"the answer has more tokens than the decoder takes ({longest})")
        return rows[0], num_given

    @property
    def _max_target_tokens(self) -> int:
        return int(self.core.model.config.decoder_config.max_position_embeddings)


def _answer_of(result: GenerationResult) -> Answer:
    text = result.without_prefix.strip()
    return Answer(result.text, text[:1].upper() + text[1:])
