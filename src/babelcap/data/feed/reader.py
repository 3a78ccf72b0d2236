"""Reads samples of a corpus into batches: texts checked and tokenised, images decoded, bad ones replaced, counted."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

import numpy as np
from torch import Tensor

from babelcap.coverage import Coverage, Pair
from babelcap.data.feed.batches import Batch, BatchConfig, Encoded, FillTokens, PixelBlock, collate
from babelcap.data.feed.images import decode_image, square_rgbx
from babelcap.data.feed.permutation import derive_key, hash_numbers, uniform
from babelcap.data.feed.text import Tokenizers, check_text, encode_after_prefix, encode_texts, require_special_tokens
from babelcap.errors import BadSample, UserError
from babelcap.records import Annotation

MAX_ATTEMPTS = 64  # bad samples in a row, at one index, before it is clear that something else is wrong


class AnnotatedImages(Protocol):
    """What a batch asks of a corpus: CorpusIndex has it."""

    def annotation(self, row: int) -> Annotation: ...

    def image_number(self, row: int) -> int: ...

    def read_image(self, image_number: int) -> bytes: ...

    def text_bytes(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...


class BatchReader:
    """Reads samples of a corpus into batches. The same arguments give the same batch in any process."""

    def __init__(
        self,
        corpus: AnnotatedImages,
        tokenizers: Tokenizers,
        config: BatchConfig,
        coverage: Coverage,
        seed: int = 0,
        image_features: Callable[[int], Tensor] | None = None,
    ) -> None:
        """`image_features` of an image number replace pixels."""
        require_special_tokens(tokenizers.encoder, "encoder")
        require_special_tokens(tokenizers.decoder, "decoder")
        self.corpus, self.config, self.coverage = corpus, config, coverage
        self.encoder_tokenizer, self.decoder_tokenizer = tokenizers.encoder, tokenizers.decoder
        start = tokenizers.decoder_start_token_id
        self.decoder_start_token_id: int = tokenizers.decoder.eos_token_id if start is None else start
        self.image_features = image_features
        self._prefix_key, self._mask_key = derive_key(seed, "prefix"), derive_key(seed, "source mask")

    def read(
        self,
        pairs: tuple[Pair, ...],
        indices: np.ndarray,
        pair_numbers: np.ndarray,
        rows: np.ndarray,
        substitute: Callable[[int, int, int], int] | None = None,
    ) -> tuple[Batch | None, dict[str, int]]:
        """The batch of these samples, None if all were bad, and the number of bad ones by reason.

        A bad one is replaced by `substitute(index, pair number, attempt)` until it is good; without that, left out.
        """
        bad: Counter[str] = Counter()
        good: dict[int, Encoded] = {}
        pixels = PixelBlock(len(rows), self.config.image_size_px) if self.image_features is None else None
        pending, attempt = dict(enumerate(map(int, rows))), 0
        while pending:
            drawn: dict[int, Encoded] = {}
            for place, row in pending.items():
                try:
                    sample = self._draw(pairs, int(indices[place]), int(pair_numbers[place]), row)
                    self._read_image(sample, place, pixels)
                    drawn[place] = sample
                except BadSample as error:
                    bad[error.reason] += 1
            self._encode(list(drawn.values()))
            for place, sample in drawn.items():
                if sample.num_text_tokens > 0:
                    good[place] = sample
                else:
                    bad["no target tokens"] += 1
            if substitute is None:
                break
            attempt += 1
            failed = [place for place in pending if place not in good]
            if failed and attempt > MAX_ATTEMPTS:
                raise UserError(f"no usable sample after {attempt} attempts at one index ({listed_reasons(bad)})")
            pending = {place: substitute(int(indices[place]), int(pair_numbers[place]), attempt) for place in failed}
        return self._collate(pairs, good, pixels) if good else None, dict(bad)

    def _collate(self, pairs: tuple[Pair, ...], good: Mapping[int, Encoded], pixels: PixelBlock | None) -> Batch:
        places = sorted(good)
        fill = FillTokens(
            self.encoder_tokenizer.pad_token_id, self.decoder_tokenizer.pad_token_id, self.decoder_start_token_id
        )
        taken = None if pixels is None else pixels.take(places)
        return collate([good[place] for place in places], pairs, self.config, fill, taken)

    def _draw(self, pairs: tuple[Pair, ...], index: int, pair_number: int, row: int) -> Encoded:
        pair, annotation = pairs[pair_number], self.corpus.annotation(row)
        if annotation.pair != pair:
            raise UserError(f"annotation {row} is {annotation.pair} where {pair} was expected; build the index again")
        target = check_text(annotation.target, "target")
        task = self.coverage.task(pair.task)
        text = check_text(annotation.source, task.text) if task.text is not None else None
        if text is not None and task.needs_source and self.config.source_mask_probability > 0:
            text = self._hide_words(text, index)
        wants_prefix = task.after_prefix and self.config.prefix_probability > 0
        return Encoded(
            index=index,
            pair_number=pair_number,
            row=row,
            image_number=self.corpus.image_number(row),
            prompt=self.coverage.prompt(pair, annotation.style, text),
            target=target,
            language=pair.language,
            after_prefix=wants_prefix
            and bool(uniform(self._prefix_key, np.array([index]))[0] < self.config.prefix_probability),
        )

    def _read_image(self, sample: Encoded, place: int, pixels: PixelBlock | None) -> None:
        """After the texts, which are cheap to check: an image is not."""
        if pixels is None:
            assert self.image_features is not None
            sample.features = self.image_features(sample.image_number)
            return
        size_px = self.config.image_size_px
        pixels.put(place, square_rgbx(decode_image(self.corpus.read_image(sample.image_number), size_px), size_px))

    def _hide_words(self, source: str, index: int) -> str:
        words = source.split(" ")
        hidden = self.encoder_tokenizer.mask_token or self.encoder_tokenizer.unk_token or ""
        key = int(hash_numbers(self._mask_key, np.array([index]))[0])
        draws = uniform(key, np.arange(len(words)))
        pairs = zip(words, draws, strict=True)
        return " ".join(hidden if draw < self.config.source_mask_probability else word for word, draw in pairs)

    def _encode(self, samples: Sequence[Encoded]) -> None:
        """Tokens of all samples, in as few calls of the tokenizers as there are kinds of target."""
        # Captions of a language and style share one prompt.
        prompts = list(dict.fromkeys(sample.prompt for sample in samples))
        encoded = encode_texts(self.encoder_tokenizer, prompts, self.config.max_prompt_tokens)
        prompt_ids = dict(zip(prompts, encoded, strict=True))
        for sample in samples:
            sample.prompt_ids = prompt_ids[sample.prompt]
        plain = [sample for sample in samples if not sample.after_prefix]
        targets = encode_texts(self.decoder_tokenizer, [s.target for s in plain], self.config.max_target_tokens)
        for sample, ids in zip(plain, targets, strict=True):
            sample.target_ids = ids
        for code in sorted({sample.language for sample in samples if sample.after_prefix}):
            group = [sample for sample in samples if sample.after_prefix and sample.language == code]
            targets, num_given = encode_after_prefix(
                self.decoder_tokenizer,
                self.coverage.language(code),
                [sample.target for sample in group],
                self.config.max_target_tokens,
            )
            for sample, ids in zip(group, targets, strict=True):
                sample.target_ids, sample.num_given = ids, num_given


def listed_reasons(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{reason}: {number}" for reason, number in Counter(counts).most_common())


class BadSamples:
    """The total of bad samples; raises when they exceed the share that was allowed."""

    GRACE = 1000  # a share of fewer samples than this says little

    def __init__(self, max_share: float) -> None:
        self.max_share = max_share
        self.counts: Counter[str] = Counter()
        self.num_samples = 0

    def add(self, num_samples: int, reasons: Mapping[str, int]) -> None:
        self.num_samples += num_samples
        self.counts.update(reasons)
        num_bad = self.counts.total()
        if num_bad > self.max_share * max(self.num_samples, self.GRACE):
            raise UserError(
                f"{num_bad} of {self.num_samples} samples are bad, more than max_bad_share = {self.max_share:g} "
                f"allows; mend the corpus (babelcap data check) or raise the share ({listed_reasons(self.counts)})"
            )
