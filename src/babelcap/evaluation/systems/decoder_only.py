"""Systems that read picture and prompt and go on writing: PaliGemma, BLIP-2, chat models; batches padded on the left.

The loss of an answer is that of its own tokens, from the first on. Where they are is found by difference of ids: what
stands before is the prompt's, what a template puts behind an answer is the template's, and neither is counted.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from jinja2 import TemplateError
from torch import Tensor

from babelcap.coverage import CAPTION, TRANSLATION
from babelcap.errors import UserError
from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.metrics.contrastive import answer_span
from babelcap.evaluation.systems.loading import Loaded, open_image
from babelcap.evaluation.systems.protocol import Answer
from babelcap.evaluation.systems.settings import Settings, cannot, sources_of


class DecoderOnly:
    """What a system adds: `_inputs`, by which its processor is asked, and `_text`, which is what it wrote, cleaned."""

    def __init__(self, name: str, loaded: Loaded, settings: Settings) -> None:
        self.name, self.loaded, self.settings = name, loaded, settings
        loaded.processor.tokenizer.padding_side = "left"

    @property
    def identity(self) -> Mapping[str, str | int | float | bool | None]:
        chosen = self.settings
        return {
            "name": self.name,
            **self.loaded.identity,
            "prompts": chosen.prompts_hash,
            "num_beams": chosen.num_beams,
            "max_new_tokens": chosen.max_new_tokens,
            "batch_size": chosen.batch_size,
            "losses": "answer-tokens",
        }

    @property
    def batch_size(self) -> int:
        return self.settings.batch_size

    def caption(self, items: Sequence[Item]) -> list[Answer]:
        return self._answer([_as(item, CAPTION) for item in items])

    def translate(self, items: Sequence[Item]) -> list[Answer]:
        sources_of(self.name, items)
        return self._answer([_as(item, TRANSLATION) for item in items])

    def _answer(self, items: Sequence[Item]) -> list[Answer]:
        inputs = self._encode(items, None)
        with torch.inference_mode():
            ids = self.loaded.model.generate(
                **inputs,
                max_new_tokens=self.settings.max_new_tokens,
                num_beams=self.settings.num_beams,
                do_sample=False,
            )
        # transformers gives the prompt's tokens back, except where a model is fed embeddings.
        start = inputs["input_ids"].shape[1]
        is_echoed = ids.shape[1] >= start and bool((ids[:, :start] == inputs["input_ids"]).all())
        tokenizer = self.loaded.processor.tokenizer
        wholes = tokenizer.batch_decode(ids[:, start:] if is_echoed else ids, skip_special_tokens=True)
        return [Answer(raw, self._text(item, raw)) for item, raw in zip(items, wholes, strict=True)]

    def token_losses(self, items: Sequence[Item], answers: Sequence[str]) -> list[list[float]]:
        for item, answer in zip(items, answers, strict=True):
            if not answer.strip():
                raise cannot(self.name, item.task, item, "the answer whose losses are asked for is empty")
        inputs = self._encode(items, answers)
        rows = _unpadded(inputs)
        prompts, with_nothing = (_unpadded(self._encode(items, given)) for given in (None, [""] * len(items)))
        spans = [answer_span(*ids) for ids in zip(prompts, with_nothing, rows, strict=True)]
        # From the end, where padding on the left leaves all rows alike.
        places = [(len(row) - span.start, len(row) - span.stop) for row, span in zip(rows, spans, strict=True)]
        kept = max(start for start, _ in places) + 1
        with torch.inference_mode():
            logits: Tensor = self.loaded.model(**inputs, **self._keep(kept)).logits[:, -kept:].float()
        losses = _next_token_losses(logits, inputs["input_ids"][:, -kept:]).cpu()
        return [
            row[len(row) - start : len(row) - stop].tolist() for row, (start, stop) in zip(losses, places, strict=True)
        ]

    def _keep(self, num_positions: int) -> dict[str, int]:
        """How the model is told that the logits of the last positions are enough."""
        return {"logits_to_keep": num_positions}

    def _encode(self, items: Sequence[Item], answers: Sequence[str] | None) -> dict[str, Any]:
        images = [open_image(self.name, item) for item in items]
        try:
            found = self._inputs(items, images, answers)
        except (TemplateError, ValueError, TypeError) as error:  # a template or a processor that is not made for this
            raise UserError(f"{self.name}: its processor refuses ({' '.join(str(error).split())[:300]})") from None
        moved = found.to(self.loaded.device, self.loaded.dtype)
        return {name: value for name, value in moved.items() if name != "labels"}

    def _inputs(self, items: Sequence[Item], images: Sequence[Any], answers: Sequence[str] | None) -> Any:
        """A padded batch: the prompts alone, or each with its answer, an empty one too, as the model was taught."""
        raise NotImplementedError

    def _text(self, item: Item, raw: str) -> str:
        return raw.strip()


def _as(item: Item, task: str) -> Item:
    """An item by what is asked now: a translation's picture can be captioned too."""
    return item if item.task == task else replace(item, task=task)


def _unpadded(inputs: Mapping[str, Tensor]) -> list[list[int]]:
    pairs = zip(inputs["input_ids"], inputs["attention_mask"], strict=True)
    return [ids[mask.bool()].tolist() for ids, mask in pairs]


def _next_token_losses(logits: Tensor, ids: Tensor) -> Tensor:
    """[rows, positions] -> nats of each token but the first, given those before it."""
    return torch.nn.functional.cross_entropy(logits[:, :-1].transpose(1, 2), ids[:, 1:], reduction="none")
