"""What turns images and texts into a captioner's inputs and its ids into text: two tokenizers and Pillow's pixels.

Saved beside the model: `processor_config.json`, `encoder_tokenizer/` and `decoder_tokenizer/`.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from babelcap.data.feed.batches import pad
from babelcap.data.feed.images import IMAGENET_MEAN, IMAGENET_STD, decode_image, square_pixels
from babelcap.data.feed.text import encode_prefix, encode_texts, require_special_tokens
from babelcap.errors import BadSample, UserError
from babelcap.models.checkpoints.files import DECODER_TOKENIZER, ENCODER_TOKENIZER, PROCESSOR_FILE, PROCESSOR_FILES
from babelcap.models.checkpoints.tokenizers import load_tokenizers
from babelcap.models.checkpoints.weights import resolve_folder
from babelcap.storage import read_json_object, update_manifest, write_json

ImageSource = str | Path | bytes | Image.Image


class CaptionProcessor:
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
        self.encoder_tokenizer = encoder_tokenizer
        self.decoder_tokenizer = decoder_tokenizer
        self.image_size_px = image_size_px
        self.max_prompt_tokens = max_prompt_tokens
        self.image_mean = tuple(image_mean)
        self.image_std = tuple(image_std)

    def __call__(
        self, images: ImageSource | Sequence[ImageSource] | None = None, text: str | Sequence[str] | None = None
    ) -> dict[str, Tensor]:
        """Inputs of a model's forward and generate: prompts padded on the right, pixels where there are images."""
        inputs: dict[str, Tensor] = {}
        if text is not None:
            inputs |= self.encode_prompts([text] if isinstance(text, str) else text)
        if images is not None:
            single = isinstance(images, str | Path | bytes | Image.Image)
            inputs["pixel_values"] = self.encode_images([images] if single else images)  # type: ignore[list-item,arg-type]
        return inputs

    def encode_prompts(self, texts: Sequence[str]) -> dict[str, Tensor]:
        ids = encode_texts(self.encoder_tokenizer, texts, self.max_prompt_tokens)
        mask = [[1] * len(row) for row in ids]
        return {"input_ids": pad(ids, self.encoder_tokenizer.pad_token_id), "attention_mask": pad(mask, 0)}

    def encode_images(self, images: Iterable[ImageSource]) -> Tensor:
        """float32 [images, 3, size, size]. An image that cannot be used stops here, by name."""
        return torch.stack([torch.from_numpy(self._pixels(number, image)) for number, image in enumerate(images)])

    def _pixels(self, number: int, source: ImageSource) -> Any:
        try:
            if isinstance(source, Image.Image):
                image = source.convert("RGB")
            else:
                image = decode_image(source, self.image_size_px)
        except (BadSample, OSError) as error:
            name = source if isinstance(source, str | Path) else f"image {number}"
            raise UserError(f"{name}: {error}") from None
        return square_pixels(image, self.image_size_px, self.image_mean, self.image_std)

    def encode_prefix(self, prefix: str, num_rows: int) -> Tensor:
        """What the decoder is given to continue, [rows, tokens]."""
        return torch.tensor([encode_prefix(self.decoder_tokenizer, prefix)]).expand(num_rows, -1)

    def decode(self, ids: Tensor, prefix: str = "") -> list[str]:
        """Texts of generated ids, without special tokens and without the prefix they were started with."""
        texts = self.decoder_tokenizer.batch_decode(ids, skip_special_tokens=True)
        return [text.strip().removeprefix(prefix).strip() for text in texts]

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
