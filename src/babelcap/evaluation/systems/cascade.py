"""A captioner that speaks English, and a translator behind it: any two systems in a row, BLIP-2 and NLLB by default.

Captions are translated. A translation carries the caption as context, which is cut from the result; where nothing was
cut, or next to nothing is left, the source is translated without it. Losses are computed with the caption in line.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import cast

from babelcap.errors import UserError
from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.systems.protocol import Answer, System
from babelcap.evaluation.systems.settings import SystemOptions, cannot, fill, read_settings, sources_of

NAME = "cascade"
MARK = "#"
MIN_CHARACTERS = 6  # different ones, that must be left of a translation before its mark
ENGLISH = "en"


class Cascade:
    def __init__(self, captioner: System, translator: System, options: SystemOptions) -> None:
        self.captioner, self.translator = captioner, translator
        self.settings = read_settings(NAME, options)

    @property
    def identity(self) -> Mapping[str, str | int | float | bool | None]:
        parts = {"captioner": self.captioner.identity, "translator": self.translator.identity}
        found = {f"{part}_{name}": value for part, inner in parts.items() for name, value in inner.items()}
        return {"name": NAME, "prompts": self.settings.prompts_hash, "batch_size": self.batch_size, **found}

    @property
    def batch_size(self) -> int:
        return self.settings.batch_size

    def caption(self, items: Sequence[Item]) -> list[Answer]:
        captions = self._captions(items)
        answers = [Answer(caption, caption) for caption in captions]
        foreign = [number for number, item in enumerate(items) if item.language != ENGLISH and captions[number]]
        asked = [replace(items[number], task="translation", source=captions[number]) for number in foreign]
        for number, answer in zip(foreign, self.translator.translate(asked) if asked else [], strict=True):
            answers[number] = answer
        return answers

    def translate(self, items: Sequence[Item]) -> list[Answer]:
        sources_of(NAME, items)
        helped = self.translator.translate(self._with_context(items, self.settings.translate))
        cut = [answer.text.partition(MARK)[0].strip() if MARK in answer.text else "" for answer in helped]
        bad = [number for number, text in enumerate(cut) if len(set(text)) < MIN_CHARACTERS]
        again = self.translator.translate([items[number] for number in bad]) if bad else []
        answers = [Answer(answer.raw, text) for answer, text in zip(helped, cut, strict=True)]
        for number, answer in zip(bad, again, strict=True):
            answers[number] = answer
        return answers

    def token_losses(self, items: Sequence[Item], answers: Sequence[str]) -> list[list[float]]:
        for item in items:
            if item.task != "translation":
                raise cannot(NAME, item.task, item, "two models in a row give a caption no probability")
        sources_of(NAME, items)
        return self.translator.token_losses(self._with_context(items, self.settings.ambiguity), answers)

    def _with_context(self, items: Sequence[Item], prompt: str | None) -> list[Item]:
        captions = self._captions([replace(item, style="short") for item in items])
        return [
            replace(item, source=fill(cast(str, prompt), item, caption))
            for item, caption in zip(items, captions, strict=True)
        ]

    def _captions(self, items: Sequence[Item]) -> list[str]:
        """In English; each picture once."""
        asked = {
            (item.image, item.style): replace(item, task="caption", language=ENGLISH, source=None) for item in items
        }
        found = dict(zip(asked, self.captioner.caption(list(asked.values())), strict=True))
        return [found[item.image, item.style].text for item in items]


def split_names(path: str) -> tuple[str, str]:
    captioner, plus, translator = path.partition("+")
    if not (captioner and plus and translator):
        raise UserError(f"{NAME}: found '{path}'; name both models, {NAME}:CAPTIONER+TRANSLATOR")
    return captioner, translator
