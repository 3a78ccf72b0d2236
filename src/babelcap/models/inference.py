"""A captioner in use: images and texts in, captions and translations out, batched, in several languages at once.

prefix="auto": a language that the model was never trained to caption in gets its prefix, which unlocks it; one that it
was trained on gets none. The prefix is cut from the result.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor

from babelcap.coverage import Coverage, Style, caption_prompt, translation_prompt
from babelcap.errors import UserError
from babelcap.languages import Language, find_language
from babelcap.models.checkpoints.loading import load_model
from babelcap.models.checkpoints.processor import CaptionProcessor, ImageSource, load_processor
from babelcap.models.network.captioner import Captioner


class CaptionPipeline:
    def __init__(self, model: Captioner, processor: CaptionProcessor) -> None:
        self.model = model
        self.processor = processor
        self.coverage: Coverage = model.config.get_coverage()
        sides = {
            "encoder": (processor.encoder_tokenizer, model.config.encoder_config.vocab_size),
            "decoder": (processor.decoder_tokenizer, model.config.vocab_size),
        }
        for side, (tokenizer, vocab_size) in sides.items():
            if len(tokenizer) > vocab_size:
                raise UserError(
                    f"the {side}'s tokenizer has {len(tokenizer)} tokens, its vocabulary {vocab_size}; "
                    "they do not belong together"
                )

    def caption(
        self,
        images: ImageSource | Sequence[ImageSource],
        language: str | Sequence[str],
        style: str = "short",
        prefix: str = "auto",
        num_beams: int = 4,
        max_new_tokens: int = 128,
        allowed_tokens: Any = None,
        batch_size: int = 16,
        **settings: Any,
    ) -> Any:
        """A caption for each image; for one image a text, for several languages a dict from language to that.

        `prefix` is auto, always, none or a text of one's own; `style` short, detailed or more_detailed;
        `allowed_tokens` is token ids, or "language" for each language's own shortlist.
        """
        languages = self._languages(language)
        wanted_style = _style(style)
        sources = _as_list(images)
        results: dict[str, list[str]] = {entry.code: [] for entry in languages}
        for rows in _batches(len(sources), batch_size):
            features = self._encode_images(sources[rows])
            for entry in languages:
                prompts = [caption_prompt(entry, wanted_style)] * len(features)
                start = self._prefix(entry, prefix)
                results[entry.code] += self._generate(
                    features, prompts, start, _allowed(allowed_tokens, entry), num_beams, max_new_tokens, settings
                )
        return _shaped(results, language, single=not _is_many(images))

    def translate(
        self,
        images: ImageSource | Sequence[ImageSource] | None,
        texts: str | Sequence[str],
        language: str | Sequence[str],
        prefix: str = "none",
        num_beams: int = 4,
        max_new_tokens: int = 128,
        allowed_tokens: Any = None,
        batch_size: int = 16,
        **settings: Any,
    ) -> Any:
        """A translation of each text, which the image at its side may disambiguate; without images from text alone."""
        languages = self._languages(language)
        sources = [texts] if isinstance(texts, str) else list(texts)
        pictures = None if images is None else _as_list(images)
        if pictures is not None and len(pictures) == 1:
            pictures = pictures * len(sources)
        if pictures is not None and len(pictures) != len(sources):
            raise UserError(f"{len(pictures)} images and {len(sources)} texts; give one image, or one for each text")
        results: dict[str, list[str]] = {entry.code: [] for entry in languages}
        for rows in _batches(len(sources), batch_size):
            features = None if pictures is None else self._encode_images(pictures[rows])
            for entry in languages:
                prompts = [translation_prompt(entry, text) for text in sources[rows]]
                start = self._prefix(entry, prefix)
                results[entry.code] += self._generate(
                    features, prompts, start, _allowed(allowed_tokens, entry), num_beams, max_new_tokens, settings
                )
        return _shaped(results, language, single=isinstance(texts, str))

    def _languages(self, language: str | Sequence[str]) -> list[Language]:
        codes = [language] if isinstance(language, str) else list(language)
        if not codes:
            raise UserError("no language given")
        return [find_language(code, self.coverage.languages) for code in dict.fromkeys(codes)]

    def _prefix(self, language: Language, prefix: str) -> str:
        if prefix == "auto":
            return language.prefix if language.code in self.coverage.caption_languages(seen=False) else ""
        return {"always": language.prefix, "none": ""}.get(prefix, prefix)

    @torch.no_grad()
    def _encode_images(self, images: Sequence[ImageSource]) -> Tensor:
        pixels = self.processor.encode_images(images)
        return self.model.encode_images(pixels.to(self.model.device, self.model.dtype))

    def _generate(
        self,
        features: Tensor | None,
        prompts: list[str],
        prefix: str,
        allowed: Any,
        num_beams: int,
        max_new_tokens: int,
        settings: dict[str, Any],
    ) -> list[str]:
        inputs: dict[str, Any] = self.processor.encode_prompts(prompts)
        if prefix:
            inputs["decoder_input_ids"] = self.processor.encode_prefix(prefix, len(prompts))
        inputs = {name: tensor.to(self.model.device) for name, tensor in inputs.items()}
        ids = self.model.generate(
            **inputs,
            image_features=features,
            allowed_tokens=allowed,
            num_beams=num_beams,
            max_new_tokens=max_new_tokens,
            **settings,
        )
        return self.processor.decode(ids, prefix)


def load(
    path_or_id: str | Path,
    *,
    device: str | torch.device | None = None,
    dtype: torch.dtype | str | None = None,
    image_size_px: int | None = None,
) -> CaptionPipeline:
    """A captioner and its processor, from a folder or the hub, ready to caption and to translate.

    Images are resized to the processor's own size, unless another is given: the published models take 768 px as well.
    """
    place = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    model = load_model(path_or_id, dtype=dtype)
    if dtype is None and place.type == "cpu" and model.dtype == torch.float16:
        model = model.float()  # few of a processor's operations know half precision
    processor = load_processor(path_or_id)
    processor.image_size_px = image_size_px or processor.image_size_px
    return CaptionPipeline(model.to(place), processor)


def _style(name: str) -> Style:
    if name not in set(Style):
        raise UserError(f"style '{name}' is unknown; known are {', '.join(Style)}")
    return Style(name)


def _is_many(images: Any) -> bool:
    return not isinstance(images, str | Path | bytes | Image.Image)


def _as_list(images: Any) -> list[ImageSource]:
    return list(images) if _is_many(images) else [images]


def _allowed(allowed_tokens: Any, language: Language) -> Any:
    return language.code if isinstance(allowed_tokens, str) and allowed_tokens == "language" else allowed_tokens


def _batches(number: int, batch_size: int) -> Iterator[slice]:
    if batch_size < 1:
        raise UserError(f"batch_size is {batch_size}; it must be at least 1")
    return (slice(start, start + batch_size) for start in range(0, number, batch_size))


def _shaped(results: dict[str, list[str]], language: str | Sequence[str], single: bool) -> Any:
    shaped: dict[str, Any] = {code: texts[0] for code, texts in results.items()} if single else dict(results)
    return next(iter(shaped.values())) if isinstance(language, str) else shaped
