"""What the encoder makes of requests: each image is encoded once, and equal prompts of one image are."""

from collections.abc import Hashable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from babelcap.coverage import Coverage
from babelcap.errors import UserError
from babelcap.models.checkpoints.processor import CaptionProcessor, image_name
from babelcap.models.generation.kept_features import KeptFeatures
from babelcap.models.generation.packing import encoder_products
from babelcap.models.generation.preparing import (
    EncodedImage,
    EncodedImages,
    Prepared,
    RequestReader,
    image_key,
    stack_features,
)
from babelcap.models.generation.requests import Found, OnBadImage
from babelcap.models.generation.rolling import Encoded
from babelcap.models.network.captioner import Captioner


class RequestEncoder(RequestReader):
    def __init__(self, model: Captioner, processor: CaptionProcessor, coverage: Coverage) -> None:
        super().__init__(model, processor, coverage)
        self.kept_features: KeptFeatures | None = None

    def keep_features(self, folder: str | Path) -> None:
        """Image tokens are kept in this folder from now on, and taken from it where they are there."""
        self.kept_features = KeptFeatures(folder, self.model)

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
