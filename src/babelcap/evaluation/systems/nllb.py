"""NLLB and its kin (M2M-100, MADLAD-400, Marian): translation of the text alone. It sees no picture."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.systems.encoder_decoder import answer_losses, generated_texts, tokenizer_of
from babelcap.evaluation.systems.loading import load_model
from babelcap.evaluation.systems.protocol import Answer
from babelcap.evaluation.systems.settings import (
    SystemOptions,
    cannot,
    language_of,
    read_settings,
    sources_of,
)
from babelcap.generate.backends.translators import model_family, steering

NAME = "nllb"
KINDS = ("m2m_100", "t5", "marian")
SOURCE_LANGUAGES = {"nllb": "eng_Latn", "m2m100": "en"}


class Nllb:
    def __init__(self, path_or_id: str, options: SystemOptions) -> None:
        self.settings = read_settings(NAME, options)
        self.loaded = load_model(NAME, path_or_id, KINDS, "AutoModelForSeq2SeqLM", self.settings, options)
        self.tokenizer = tokenizer_of(self.loaded)
        self.family = model_family(self.tokenizer, self.loaded.model.config.to_dict())
        if self.family in SOURCE_LANGUAGES:
            self.tokenizer.src_lang = SOURCE_LANGUAGES[self.family]

    @property
    def identity(self) -> Mapping[str, str | int | float | bool | None]:
        return {
            "name": NAME,
            **self.loaded.identity,
            "prompts": self.settings.prompts_hash,
            "num_beams": self.settings.num_beams,
            "max_new_tokens": self.settings.max_new_tokens,
            "batch_size": self.settings.batch_size,
            "losses": "answer-tokens+end",
        }

    @property
    def batch_size(self) -> int:
        return self.settings.batch_size

    def caption(self, items: Sequence[Item]) -> list[Answer]:
        raise cannot(NAME, "caption", items[0], "it sees no picture")

    def translate(self, items: Sequence[Item]) -> list[Answer]:
        sources_of(NAME, items)
        found: dict[int, str] = {}
        for code, numbers in _by_language(items).items():
            inputs, first = self._inputs(code, [items[number] for number in numbers])
            forced = {"forced_bos_token_id": first[0]} if first else {}
            texts = generated_texts(self.loaded, inputs, self.settings, **forced)
            found |= dict(zip(numbers, texts, strict=True))
        return [Answer(found[number], found[number].strip()) for number in range(len(items))]

    def token_losses(self, items: Sequence[Item], answers: Sequence[str]) -> list[list[float]]:
        sources_of(NAME, items)
        end = self.tokenizer.eos_token_id
        found: dict[int, list[float]] = {}
        for code, numbers in _by_language(items).items():
            inputs, first = self._inputs(code, [items[number] for number in numbers])
            bodies = self.tokenizer([answers[number].strip() for number in numbers], add_special_tokens=False)
            targets = [[*first, *body, end] for body in bodies["input_ids"]]
            losses = answer_losses(self.loaded.model, inputs, targets, num_given=len(first))
            found |= dict(zip(numbers, losses, strict=True))
        return [found[number] for number in range(len(items))]

    def _inputs(self, code: str, items: Sequence[Item]) -> tuple[dict[str, Any], list[int]]:
        """Of items in one language, and the token that its answers are forced to begin with, if there is one."""
        steer = steering(self.family, self.tokenizer, language_of(code))
        texts = [steer.source_prefix + self.settings.translation_prompt(NAME, item) for item in items]
        inputs = self.tokenizer(texts, padding=True, return_tensors="pt").to(self.loaded.device)
        first = [] if steer.first_token is None else [self.tokenizer.convert_tokens_to_ids(steer.first_token)]
        return {name: inputs[name] for name in ("input_ids", "attention_mask")}, first


def _by_language(items: Sequence[Item]) -> dict[str, list[int]]:
    """The numbers of the items of each language: a batch is told one."""
    groups: dict[str, list[int]] = defaultdict(list)
    for number, item in enumerate(items):
        groups[item.language].append(number)
    return groups
