"""A captioner in use: images and texts in, results out, in several languages at once. See `generation/core` for how.

prefix="auto": a language that the model was never trained to caption in gets its prefix, which unlocks it; one that it
was trained on gets none. A result's `text` is the whole caption, prefix included.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Unpack

import torch

from babelcap.coverage import TRANSLATION, Coverage
from babelcap.errors import UserError
from babelcap.models.checkpoints.loading import load_model
from babelcap.models.checkpoints.processor import CaptionProcessor, ImageSource, as_images, image_name, load_processor
from babelcap.models.checkpoints.quantising import check_quantise
from babelcap.models.checkpoints.tokenizers import check_tokenizers
from babelcap.models.checkpoints.weights import require_model, resolve_folder
from babelcap.models.generation.core import GenerationCore
from babelcap.models.generation.requests import (
    SETTING_NAMES,
    GenerationRequest,
    GenerationResult,
    GenerationSettings,
    RequestOptions,
)
from babelcap.models.network.captioner import Captioner


class CaptionPipeline(GenerationCore):
    """The core with the model's own coverage, and conveniences: lists of results in order, or one text."""

    def __init__(self, model: Captioner, processor: CaptionProcessor) -> None:
        coverage: Coverage = model.config.get_coverage()
        super().__init__(model, processor, coverage)
        model.keeps_packed = True  # what is packed for one call serves the next
        check_tokenizers(model.config, processor.encoder_tokenizer, processor.decoder_tokenizer)

    def caption(
        self,
        images: ImageSource | Iterable[ImageSource],
        language: str | Sequence[str],
        *,
        batch_size: int | None = None,
        num_processes: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> list[GenerationResult]:
        """Images x languages, in that order, also for one of each. Options are those of a request and its settings."""
        template, pictures = request_template(**options), as_images(images)
        if any(image is None for image in pictures):
            raise UserError("an image is None; a caption needs one")
        requests = [
            replace(template, image=image, language=code, key=image_name(image, number))
            for number, image in enumerate(pictures)
            for code in languages_of(language)
        ]
        return list(self.generate(requests, batch_size=batch_size, num_processes=num_processes))

    def caption_one(self, image: ImageSource, language: str, **options: Unpack[RequestOptions]) -> str:
        options.setdefault("scores", False)
        return self.caption([image], language, **options)[0].text

    def translate(
        self,
        images: ImageSource | Iterable[ImageSource] | None,
        texts: str | Sequence[str],
        language: str | Sequence[str],
        *,
        batch_size: int | None = None,
        num_processes: int | None = None,
        **options: Unpack[RequestOptions],
    ) -> list[GenerationResult]:
        """Texts x languages, in that order. The image beside a text may disambiguate it; without images, text alone."""
        requests = translation_requests(images, texts, language, **options)
        return list(self.generate(requests, batch_size=batch_size, num_processes=num_processes))

    def translate_one(
        self, text: str, language: str, image: ImageSource | None = None, **options: Unpack[RequestOptions]
    ) -> str:
        options.setdefault("scores", False)
        return self.translate(None if image is None else [image], text, language, **options)[0].text


def translation_requests(
    images: ImageSource | Iterable[ImageSource] | None,
    texts: str | Sequence[str],
    language: str | Sequence[str],
    **options: Unpack[RequestOptions],
) -> list[GenerationRequest]:
    """Without a prefix unless asked for: what a translation begins with is the text's business."""
    sources = [texts] if isinstance(texts, str) else list(texts)
    pictures: list[ImageSource | None] = [None] if images is None else [*as_images(images)]
    if len(pictures) == 1:
        pictures = pictures * len(sources)
    if len(pictures) != len(sources):
        raise UserError(f"{len(pictures)} images and {len(sources)} texts; give one image, or one for each text")
    options.setdefault("prefix", "none")
    template = request_template(**options)
    return [
        replace(
            template,
            task=TRANSLATION,
            image=picture,
            source=source,
            language=code,
            key="" if picture is None else image_name(picture, number),
        )
        for number, (picture, source) in enumerate(zip(pictures, sources, strict=True))
        for code in languages_of(language)
    ]


def request_template(**options: Unpack[RequestOptions]) -> GenerationRequest:
    """A request with these options, and those of the search in its settings; its image and language are to come."""
    given: dict[str, Any] = dict(options)
    settings = {name: given.pop(name) for name in SETTING_NAMES & given.keys()}
    return GenerationRequest(language="", settings=GenerationSettings(**settings), **given)


def languages_of(language: str | Sequence[str]) -> Iterator[str]:
    codes = [language] if isinstance(language, str) else list(language)
    if not codes:
        raise UserError("no language given")
    return iter(dict.fromkeys(codes))


def load(
    path_or_id: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | str | None = None,
    image_size_px: int | None = None,
    encoder_tokenizer: str | Path | None = None,
    decoder_tokenizer: str | Path | None = None,
    quantise: str | None = None,
    verify: bool = False,
) -> CaptionPipeline:
    """A captioner and its processor, from a folder or the hub, ready to caption and to translate.

    Images are resized to the processor's own size, unless another is given: the published models take 768 px as well.
    Tokenizers that do not lie beside the model are named, by folder or hub id. `quantise="int8"` decodes with whole
    numbers on a CPU: faster, and almost the same texts (docs/performance.md). `verify` reads every byte that the
    folder's manifest covers, where a plain load checks small files whole and a sample of large ones.
    """
    place, rounding = find_device(device), check_quantise(quantise)
    folder = require_model(resolve_folder(path_or_id))
    processor = load_processor(folder, encoder_tokenizer=encoder_tokenizer, decoder_tokenizer=decoder_tokenizer)
    if image_size_px is not None:
        if image_size_px < 1:
            raise UserError(f"image_size_px is {image_size_px}; it must be at least 1")
        processor.image_size_px = image_size_px
    model = load_model(folder, dtype=dtype, verify=verify)
    if dtype is None and place.type == "cpu" and model.dtype == torch.float16:
        model = model.float()  # few of a processor's operations know half precision
    model.quantise = rounding or model.config.quantise
    return CaptionPipeline(model.to(place), processor)


def find_device(name: str | torch.device | None) -> torch.device:
    """The device of this name, or the first graphics card where there is one; one line where it cannot be used."""
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        place = torch.device(name)
        torch.empty(0, device=place)
    except (RuntimeError, AssertionError, NotImplementedError, ImportError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"device '{name}' cannot be used here ({reason}); use cpu") from None
    return place
