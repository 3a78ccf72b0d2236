"""PaliGemma: captions in the languages it was tuned on (coco35l: 36 of them), "caption de" and a line end."""

import re
from collections.abc import Sequence
from typing import Any

from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.systems.decoder_only import DecoderOnly
from babelcap.evaluation.systems.loading import load_model
from babelcap.evaluation.systems.settings import SystemOptions, read_settings

IMAGE_MARK = "<image>"
# It was taught Chinese in pieces with spaces between them.
SPACE_WITHIN_CHINESE = re.compile(r"(?<=[⺀-鿿豈-﫿　-〿＀-￯]) +(?=[⺀-鿿豈-﫿　-〿＀-￯])")


class PaliGemma(DecoderOnly):
    def __init__(self, path_or_id: str, options: SystemOptions) -> None:
        name = "paligemma"
        settings = read_settings(name, options)
        kinds = ("paligemma",)
        super().__init__(
            name, load_model(name, path_or_id, kinds, "PaliGemmaForConditionalGeneration", settings, options), settings
        )

    def _inputs(self, items: Sequence[Item], images: Sequence[Any], answers: Sequence[str] | None) -> Any:
        # Its processor puts the line end behind the prompt, and the end of text behind an answer.
        texts = [IMAGE_MARK + self.settings.prompt(self.name, item) for item in items]
        suffix = {} if answers is None else {"suffix": [answer.strip() for answer in answers]}
        # Tensors are made afterwards: it reads its own with numpy, which warns.
        found = self.loaded.processor(images=list(images), text=texts, padding=True, **suffix)
        return found.convert_to_tensors("pt")

    def _text(self, item: Item, raw: str) -> str:
        return SPACE_WITHIN_CHINESE.sub("", raw.strip()) if item.language == "zh" else raw.strip()
