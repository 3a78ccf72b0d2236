"""What turns images and texts into a captioner's inputs and its ids into text: two tokenizers and Pillow's pixels.

Saved beside the model: `processor_config.json`, `encoder_tokenizer/` and `decoder_tokenizer/`.
"""

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from transformers import BatchFeature, PreTrainedTokenizerBase, ProcessorMixin

from babelcap.data.feed.batches import pad
from babelcap.data.feed.image_sources import fetch_image, is_url
from babelcap.data.feed.images import IMAGENET_MEAN, IMAGENET_STD, ImageInput, decode_image, square_pixels
from babelcap.data.feed.text import encode_prefix, encode_texts, require_special_tokens
from babelcap.errors import BadSample, UserError
from babelcap.models.checkpoints.files import DECODER_TOKENIZER, ENCODER_TOKENIZER, PROCESSOR_FILE, PROCESSOR_FILES
from babelcap.models.checkpoints.tokenizers import load_tokenizers
from babelcap.models.checkpoints.weights import resolve_folder
from babelcap.storage import read_json_object, update_manifest, write_json

# A path or URL, encoded bytes, an open file, a Pillow image, or an array or tensor of its pixels.
ImageSource = ImageInput | Tensor


class CaptionProcessor(ProcessorMixin):
    """transformers' own pipelines take it too; its files are ours, for a captioner has two vocabularies."""

    def __init__(
        self,
        encoder_tokenizer: PreTrainedTokenizerBase,
        decoder_tokenizer: PreTrainedTokenizerBase,
        *,
        image_size_px: int = 224,
        max_prompt_tokens: int = 128,
        image_mean: Sequence[float] = IMAGENET_MEAN,
        image_std: Sequence[float] = IMAGENET_STD,
    ) -> None:
        require_special_tokens(encoder_tokenizer, "encoder")
        require_special_tokens(decoder_tokenizer, "decoder")
        super().__init__(encoder_tokenizer, decoder_tokenizer)
        self.image_size_px = image_size_px
        self.max_prompt_tokens = max_prompt_tokens
        self.image_mean = tuple(image_mean)
        self.image_std = tuple(image_std)

    @property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        """What turns generated ids into text, as transformers calls it."""
        return self.decoder_tokenizer

    def __call__(
        self,
        images: ImageSource | Sequence[ImageSource] | None = None,
        text: str | Sequence[str] | None = None,
        **_: Any,  # transformers' pipelines also say how to pad and what to return, which is always the same here
    ) -> BatchFeature:
        """Inputs of a model's forward and generate: prompts padded on the right, pixels where there are images."""
        inputs: dict[str, Tensor] = {}
        if text is not None:
            inputs |= self.encode_prompts([text] if isinstance(text, str) else text)
        if images is not None:
            inputs["pixel_values"] = self.encode_images(as_images(images))
        return BatchFeature(inputs)

    def encode_prompts(self, texts: Sequence[str]) -> dict[str, Tensor]:
        return self.pad_prompts(self.prompt_ids(texts))

    def prompt_ids(self, texts: Sequence[str]) -> list[list[int]]:
        return encode_texts(self.encoder_tokenizer, texts, self.max_prompt_tokens)

    def num_prompt_tokens(self, text: str, read: Sequence[int]) -> int:
        """How many a prompt has, of which `prompt_ids` gave those that are read."""
        if len(read) < self.max_prompt_tokens:
            return len(read)
        return len(encode_texts(self.encoder_tokenizer, [text], sys.maxsize)[0])

    def pad_prompts(self, ids: Sequence[Sequence[int]]) -> dict[str, Tensor]:
        mask = [[1] * len(row) for row in ids]
        return {"input_ids": pad(ids, self.encoder_tokenizer.pad_token_id), "attention_mask": pad(mask, 0)}

    def encode_images(self, images: Iterable[ImageSource]) -> Tensor:
        """float32 [images, 3, size, size]. An image that cannot be used stops here, by name."""
        return torch.stack([self.encode_image(image, image_name(image, n)) for n, image in enumerate(images)])

    def encode_image(self, source: ImageSource, name: str) -> Tensor:
        try:
            image = decode_image(_decodable(source), self.image_size_px)
        except BadSample as error:
            raise UserError(f"{name}: {' '.join(str(error).split())}") from None
        return torch.from_numpy(square_pixels(image, self.image_size_px, self.image_mean, self.image_std))

    def prefix_ids(self, prefix: str) -> list[int]:
        """What the decoder is given to continue; nothing for no prefix."""
        return encode_prefix(self.decoder_tokenizer, prefix) if prefix else []

    def decode(self, ids: Tensor) -> list[str]:
        """The whole texts of generated ids, prefix included, without special tokens."""
        return [text.strip() for text in self.decoder_tokenizer.batch_decode(ids, skip_special_tokens=True)]

    def save_pretrained(self, folder: str | Path, **_: Any) -> None:
        folder = Path(folder)
        self.encoder_tokenizer.save_pretrained(folder / ENCODER_TOKENIZER)
        self.decoder_tokenizer.save_pretrained(folder / DECODER_TOKENIZER)
        values = {
            "processor_class": type(self).__name__,
            "image_size_px": self.image_size_px,
            "max_prompt_tokens": self.max_prompt_tokens,
            "image_mean": self.image_mean,
            "image_std": self.image_std,
        }
        write_json(folder / PROCESSOR_FILE, values)
        update_manifest(folder, PROCESSOR_FILES)

    @classmethod
    def from_pretrained(cls, folder: str | Path, **_: Any) -> "CaptionProcessor":
        return load_processor(folder)


def as_images(images: ImageSource | Iterable[ImageSource]) -> list[ImageSource]:
    """One image or several, as a list; the first of an array's four dimensions counts images."""
    if isinstance(images, np.ndarray | Tensor):
        return list(images) if images.ndim == 4 else [images]
    if isinstance(images, Iterable) and not isinstance(images, str | bytes) and not hasattr(images, "read"):
        return list(images)
    return [cast(ImageSource, images)]


def image_name(image: ImageSource, number: int) -> str:
    return str(image) if isinstance(image, str | Path) else f"image {number}"


def _decodable(source: ImageSource) -> ImageInput:
    if isinstance(source, str) and is_url(source):
        return fetch_image(source)
    if isinstance(source, Tensor):
        tensor = source.detach().cpu()
        return (tensor.float() if tensor.is_floating_point() else tensor).numpy()
    return source


def load_processor(
    path_or_id: str | Path,
    *,
    encoder_tokenizer: str | Path | None = None,
    decoder_tokenizer: str | Path | None = None,
) -> CaptionProcessor:
    """The processor beside a model. Tokenizers that lie elsewhere are named, by folder or hub id."""
    folder = resolve_folder(path_or_id)
    tokenizers = load_tokenizers(folder, encoder_tokenizer, decoder_tokenizer)
    values = read_json_object(folder / PROCESSOR_FILE) if (folder / PROCESSOR_FILE).is_file() else {}
    values.pop("processor_class", None)
    try:
        return CaptionProcessor(*tokenizers, **values)
    except TypeError as error:
        raise UserError(f"{folder / PROCESSOR_FILE}: {error}") from None
