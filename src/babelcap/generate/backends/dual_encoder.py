"""Images and texts in one space by a dual encoder of transformers (CLIP, SigLIP and kin), from a folder or the hub."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from babelcap.errors import UserError


class DualEncoder:
    def __init__(self, model: str, device: str = "cpu", dtype: str = "float32") -> None:
        from transformers import AutoImageProcessor, AutoModel, AutoTokenizer

        try:
            found = AutoModel.from_pretrained(model, dtype=getattr(torch, dtype), trust_remote_code=False)
            self.model = found.to(device).eval()
            self.images_of = AutoImageProcessor.from_pretrained(model, trust_remote_code=False)
            self.tokenizer = AutoTokenizer.from_pretrained(model, trust_remote_code=False)
        except (OSError, ValueError) as error:
            raise UserError(f"embed.model: '{model}' cannot be loaded ({str(error).splitlines()[0][:200]})") from None
        for method in ("get_image_features", "get_text_features"):
            if not hasattr(self.model, method):
                kind = type(self.model).__name__
                raise UserError(f"embed.model: '{model}' is a {kind}, not a dual encoder of images and texts") from None
        self.device, self.dtype = device, getattr(torch, dtype)
        self.max_tokens = int(self.model.config.text_config.max_position_embeddings)

    @torch.inference_mode()
    def images(self, images: Sequence[tuple[str, Image.Image]]) -> NDArray[np.float32]:
        inputs = self.images_of(images=[image.convert("RGB") for _, image in images], return_tensors="pt")
        return _unit(self.model.get_image_features(inputs["pixel_values"].to(self.device, self.dtype)))

    @torch.inference_mode()
    def texts(self, texts: Sequence[str]) -> NDArray[np.float32]:
        # Padded to the full length, as these models were trained: a text's vector does not depend on its neighbours.
        inputs = self.tokenizer(
            list(texts), padding="max_length", truncation=True, max_length=self.max_tokens, return_tensors="pt"
        )
        known = {name: inputs[name].to(self.device) for name in ("input_ids", "attention_mask") if name in inputs}
        return _unit(self.model.get_text_features(**known))


def _unit(output: Any) -> NDArray[np.float32]:
    features: Tensor = output if isinstance(output, Tensor) else output.pooler_output
    features = features.float()
    if not torch.isfinite(features).all():
        raise UserError("embed.model gives vectors that are not finite; use another dtype, or get the model again")
    return torch.nn.functional.normalize(features, dim=-1).cpu().numpy()
