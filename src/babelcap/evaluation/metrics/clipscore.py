"""CLIPScore (2.5 * max(cosine, 0)) and multilingual CLIPScore over transformers' CLIP, 0 to 2.5.

The multilingual one reads captions by a text model of its own (M-CLIP: XLM-R, the mean over tokens, a linear map into
the space of the pictures). Prefix, activation and dtype are in the signature: each changes the number.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from babelcap.data.feed.images import decode_image
from babelcap.errors import BadSample, UserError
from babelcap.evaluation.metrics.inputs import count_empty
from babelcap.evaluation.metrics.score import VERSION, Items, Score, signature

if TYPE_CHECKING:
    import torch
    from PIL.Image import Image
    from torch import Tensor

WEIGHT = 2.5


@dataclass(frozen=True)
class ClipSettings:
    model: Path  # a folder saved by transformers: CLIP with its processor
    text_model: Path | None = None  # a folder of M-CLIP, with safetensors, for languages other than English
    prefix: str = ""  # the original has "A photo depicts "; the paper's numbers have none
    dtype: str = "float32"
    batch_size: int = 64
    device: str = "cpu"


def clip_score(images: Mapping[str, Path], captions: Mapping[str, str], settings: ClipSettings) -> Score:
    """id -> picture and id -> caption in. An empty caption scores 0."""
    if set(images) != set(captions):
        raise UserError(f"CLIPScore: found {len(images)} pictures and {len(captions)} captions; give the same items")
    clip = ClipModel(settings)
    multilingual = None if settings.text_model is None else MultilingualText(settings, settings.text_model)
    ids = tuple(captions)
    asked = [key for key in ids if captions[key].strip()]
    found: dict[str, float] = {}
    for keys in _batches(asked, settings.batch_size):
        texts = [settings.prefix + captions[key].strip() for key in keys]
        wanted = clip.texts(texts) if multilingual is None else multilingual.texts(texts)
        found |= zip(keys, scaled_cosines(wanted, clip.images([images[key] for key in keys])), strict=True)
    name = "CLIPScore" if multilingual is None else "multilingual CLIPScore"
    choices = {
        "model": settings.model.name,
        "text": "own" if settings.text_model is None else settings.text_model.name,
        "activation": clip.activation,
        "prefix": settings.prefix.strip().replace(" ", "_") or "none",
        "dtype": settings.dtype,
        "weight": WEIGHT,
        "version": VERSION,
    }
    values = np.array([found.get(key, 0.0) for key in ids])
    return Score(name, signature(name, choices), Items(ids, values, count_empty(captions.values())))


def scaled_cosines(texts: "Tensor", images: "Tensor") -> list[float]:
    """2.5 * max(cosine, 0) of each pair of rows, computed in float32."""
    import torch

    cosines = torch.nn.functional.cosine_similarity(texts.float(), images.float(), dim=1)
    return (WEIGHT * cosines.clamp(min=0)).tolist()


class ClipModel:
    """Both sides of a CLIP that transformers saved."""

    def __init__(self, settings: ClipSettings) -> None:
        from transformers import AutoImageProcessor, AutoTokenizer, CLIPModel

        _need_folder(settings.model)
        self.model = CLIPModel.from_pretrained(settings.model, dtype=_dtype(settings)).to(settings.device).eval()
        self.tokenizer = (
            AutoTokenizer.from_pretrained(settings.model, trust_remote_code=False)
            if settings.text_model is None
            else None
        )
        self.processor = AutoImageProcessor.from_pretrained(settings.model, trust_remote_code=False)
        self.device, self.dtype = settings.device, _dtype(settings)
        config = self.model.config
        kinds = dict.fromkeys([config.text_config.hidden_act, config.vision_config.hidden_act])
        self.activation = "+".join(kinds)

    def texts(self, texts: Sequence[str]) -> "Tensor":
        import torch

        assert self.tokenizer is not None
        length = self.model.config.text_config.max_position_embeddings
        tokens = self.tokenizer(list(texts), padding=True, truncation=True, max_length=length, return_tensors="pt")
        with torch.inference_mode():
            return _features(self.model.get_text_features(**tokens.to(self.device)))

    def images(self, images: Sequence[Path]) -> "Tensor":
        import torch

        pictures = [_picture(path) for path in images]
        pixels = self.processor(images=pictures, return_tensors="pt")["pixel_values"]
        with torch.inference_mode():
            return _features(self.model.get_image_features(pixel_values=pixels.to(self.device, self.dtype)))


class MultilingualText:
    """M-CLIP's side of texts: `transformer.*` is XLM-R, `LinearTransformation.*` the map into the picture's space."""

    def __init__(self, settings: ClipSettings, folder: Path) -> None:
        import torch
        from safetensors.torch import load_file
        from transformers import AutoTokenizer, XLMRobertaConfig, XLMRobertaModel

        weights = folder / "model.safetensors"
        if not weights.is_file():
            raise UserError(f"multilingual CLIPScore: {weights}: no such file; no pickled weights are loaded")
        config = XLMRobertaConfig.from_pretrained(folder)
        found = load_file(weights)
        linear = found.get("LinearTransformation.weight")
        if linear is None:
            raise UserError(f"multilingual CLIPScore: {weights} has no LinearTransformation; it is not M-CLIP's")
        self.linear = torch.nn.Linear(linear.shape[1], linear.shape[0])
        self.linear.load_state_dict({name: found[f"LinearTransformation.{name}"] for name in ("weight", "bias")})
        self.transformer = XLMRobertaModel(config, add_pooling_layer=False)
        own = {
            key.removeprefix("transformer."): value for key, value in found.items() if key.startswith("transformer.")
        }
        unused = ("pooler.", "embeddings.position_ids")
        self.transformer.load_state_dict({key: value for key, value in own.items() if not key.startswith(unused)})
        for part in (self.transformer, self.linear):
            part.to(settings.device, _dtype(settings)).eval()
        self.tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
        self.length = config.max_position_embeddings - 2  # XLM-R's positions begin behind the padding's
        self.device = settings.device

    def texts(self, texts: Sequence[str]) -> "Tensor":
        import torch

        tokens = self.tokenizer(list(texts), padding=True, truncation=True, max_length=self.length, return_tensors="pt")
        mask = tokens["attention_mask"].to(self.device)
        with torch.inference_mode():
            states = self.transformer(tokens["input_ids"].to(self.device), attention_mask=mask).last_hidden_state
            mean = (states * mask[:, :, None]).sum(dim=1) / mask.sum(dim=1, keepdim=True)
            return self.linear(mean.to(self.linear.weight.dtype))


def _features(output: "Tensor") -> "Tensor":
    """Releases of transformers differ in whether the features come alone or as a field."""
    return getattr(output, "pooler_output", output)


def _dtype(settings: ClipSettings) -> "torch.dtype":
    import torch

    kinds = {"float32": torch.float32, "float16": torch.float16, "bfloat16": torch.bfloat16}
    if settings.dtype not in kinds:
        raise UserError(f"CLIPScore: dtype '{settings.dtype}' is not known (known: {', '.join(kinds)})")
    return kinds[settings.dtype]


def _need_folder(folder: Path) -> None:
    if not (folder / "config.json").is_file():
        raise UserError(f"CLIPScore: {folder}: no CLIP model saved by transformers there; name a folder that has one")


def _picture(path: Path) -> "Image":
    try:
        return decode_image(path)
    except BadSample as error:
        raise UserError(f"CLIPScore: {path} cannot be scored ({error})") from None


def _batches(keys: Sequence[str], size: int) -> Iterator[Sequence[str]]:
    for start in range(0, len(keys), size):
        yield keys[start : start + size]
