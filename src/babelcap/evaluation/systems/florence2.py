"""Florence-2 as it came: English captions in three lengths, each by its own task token."""

from collections.abc import Mapping, Sequence
from typing import Any

from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.systems.encoder_decoder import answer_losses, generated_texts
from babelcap.evaluation.systems.loading import load_model, open_image
from babelcap.evaluation.systems.protocol import Answer
from babelcap.evaluation.systems.settings import SystemOptions, cannot, read_settings

NAME = "florence2"


class Florence2:
    def __init__(self, path_or_id: str, options: SystemOptions) -> None:
        self.settings = read_settings(NAME, options)
        auto_class = "Florence2ForConditionalGeneration"
        self.loaded = load_model(NAME, path_or_id, ("florence2",), auto_class, self.settings, options)

    @property
    def identity(self) -> Mapping[str, str | int | float | bool | None]:
        chosen = self.settings
        return {
            "name": NAME,
            **self.loaded.identity,
            "prompts": chosen.prompts_hash,
            "num_beams": chosen.num_beams,
            "max_new_tokens": chosen.max_new_tokens,
            "batch_size": chosen.batch_size,
            "losses": "answer-tokens+end",
        }

    @property
    def batch_size(self) -> int:
        return self.settings.batch_size

    def caption(self, items: Sequence[Item]) -> list[Answer]:
        wholes = generated_texts(self.loaded, self._inputs(items), self.settings)
        return [Answer(raw, raw.strip()) for raw in wholes]

    def translate(self, items: Sequence[Item]) -> list[Answer]:
        raise cannot(NAME, "translation", items[0], "it captions only")

    def token_losses(self, items: Sequence[Item], answers: Sequence[str]) -> list[list[float]]:
        for item in items:
            if item.task != "caption":
                raise cannot(NAME, item.task, item, "it captions only")
        tokenizer = self.loaded.processor.tokenizer
        bodies = tokenizer([answer.strip() for answer in answers], add_special_tokens=False)["input_ids"]
        # The end of text starts its decoder, which is then forced to begin with the begin of text.
        targets = [[tokenizer.bos_token_id, *body, tokenizer.eos_token_id] for body in bodies]
        return answer_losses(self.loaded.model, self._inputs(items), targets, num_given=1)

    def _inputs(self, items: Sequence[Item]) -> dict[str, Any]:
        texts = [self.settings.caption_prompt(NAME, item) for item in items]
        images = [open_image(NAME, item) for item in items]
        found = self.loaded.processor(images=images, text=texts, padding=True, return_tensors="pt")
        return dict(found.to(self.loaded.device, self.loaded.dtype))
