"""BLIP-2 over OPT: English captions that go on from "a photo of". Mostly the first half of a cascade."""

from collections.abc import Sequence
from typing import Any

from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.systems.decoder_only import DecoderOnly
from babelcap.evaluation.systems.loading import load_model
from babelcap.evaluation.systems.settings import SystemOptions, read_settings


class Blip2(DecoderOnly):
    def __init__(self, path_or_id: str, options: SystemOptions) -> None:
        name = "blip2"
        settings = read_settings(name, options)
        kinds = ("blip-2",)
        super().__init__(
            name, load_model(name, path_or_id, kinds, "Blip2ForConditionalGeneration", settings, options), settings
        )

    def _inputs(self, items: Sequence[Item], images: Sequence[Any], answers: Sequence[str] | None) -> Any:
        texts = [self.settings.prompt(self.name, item) for item in items]
        if answers is not None:
            texts = [f"{text} {answer.strip()}".strip() for text, answer in zip(texts, answers, strict=True)]
        return self.loaded.processor(images=list(images), text=texts, padding=True, return_tensors="pt")

    def _keep(self, num_positions: int) -> dict[str, int]:
        return {}  # its forward has no such argument

    def _text(self, item: Item, raw: str) -> str:
        """The prompt is no part of the caption; it is given back where the model is fed token ids."""
        return raw.strip().removeprefix(self.settings.prompt(self.name, item)).strip()
