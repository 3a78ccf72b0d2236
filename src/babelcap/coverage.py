"""Which task is seen in which language: the intentional hole, the three test splits and the prompts.

UC  unseen captioning     ST  seen translation     SC  seen captioning
Everything that asks "was this pair trained on?" asks here.
"""

from collections import Counter
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, field_validator, model_validator

from babelcap.errors import UserError
from babelcap.languages import LANGUAGES, Language, find_language


class Task(StrEnum):
    CAPTION = "caption"
    TRANSLATION = "translation"


class Style(StrEnum):
    SHORT = "short"
    DETAILED = "detailed"
    MORE_DETAILED = "more_detailed"


class Pair(NamedTuple):
    """A task in a target language, written `caption-de`."""

    task: Task
    language: str

    def __str__(self) -> str:
        return f"{self.task}-{self.language}"

    @classmethod
    def parse(cls, text: str) -> "Pair":
        task, _, language = text.partition("-")
        if task not in set(Task) or not language:
            raise UserError(f"'{text}' is not a task-language pair; write {' or '.join(f'{t}-LANGUAGE' for t in Task)}")
        return cls(Task(task), language)


TASK_SENTENCES: dict[Style, str] = {
    Style.SHORT: "What does the image describe?",
    Style.DETAILED: "Describe in detail what is shown in the image.",
    Style.MORE_DETAILED: "Describe with a paragraph what is shown in the image.",
}


def caption_prompt(language: Language, style: Style = Style.SHORT) -> str:
    return f"The target language is {language.name}. {TASK_SENTENCES[style]}"


def translation_prompt(language: Language, source: str) -> str:
    return f"The target language is {language.name}. Translate the following text: {source}"


class Coverage(BaseModel):
    """The languages, the pairs that training sees, and the test splits over pairs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    languages: tuple[Language, ...] = LANGUAGES  # a language of the built-in table may be given by its code alone
    source_language: str = "en"  # what translations are made from, and what prompts are written in
    seen: tuple[str, ...] = (
        "caption-en",
        "caption-de",
        "translation-de",
        "translation-fr",
        "translation-es",
        "translation-ru",
        "translation-zh",
    )
    splits: dict[str, tuple[str, ...]] = {
        "UC": ("caption-es", "caption-zh"),
        "ST": ("translation-es", "translation-zh"),
        "SC": ("caption-en", "caption-de"),
    }

    @field_validator("languages", mode="before")
    @classmethod
    def _built_in_by_code(cls, languages: Any) -> Any:
        if not isinstance(languages, list | tuple):
            return languages
        return tuple(find_language(item) if isinstance(item, str) else item for item in languages)

    @model_validator(mode="after")
    def _known_pairs(self) -> Self:
        codes = [language.code for language in self.languages]
        for name, values in {"languages": codes, "seen": self.seen, **self.splits}.items():
            twice = [value for value, number in Counter(values).items() if number > 1]
            if twice:
                raise ValueError(f"{name}: '{twice[0]}' is there more than once")
        if self.source_language not in codes:
            raise ValueError(f"source_language: '{self.source_language}' is not among languages ({', '.join(codes)})")
        known = set(map(str, self.all_pairs))
        for name, pairs in {"seen": self.seen, **self.splits}.items():
            for pair in pairs:
                if pair not in known:
                    raise ValueError(
                        f"{name}: '{pair}' is not a pair of the known languages ({', '.join(sorted(known))})"
                    )
        return self

    @cached_property
    def all_pairs(self) -> tuple[Pair, ...]:
        """Captioning in every language, translation into every language but the source's."""
        codes = [language.code for language in self.languages]
        captions = [Pair(Task.CAPTION, code) for code in codes]
        return tuple(captions + [Pair(Task.TRANSLATION, code) for code in codes if code != self.source_language])

    @cached_property
    def seen_pairs(self) -> tuple[Pair, ...]:
        return tuple(map(Pair.parse, self.seen))

    @cached_property
    def hole(self) -> tuple[Pair, ...]:
        """The pairs that training never sees."""
        return tuple(pair for pair in self.all_pairs if pair not in set(self.seen_pairs))

    @cached_property
    def evaluated_pairs(self) -> tuple[Pair, ...]:
        """Every pair of a test split, once, in order."""
        return tuple(dict.fromkeys(pair for name in self.splits for pair in self.split(name)))

    def split(self, name: str) -> tuple[Pair, ...]:
        if name not in self.splits:
            raise UserError(f"unknown test split '{name}' (known: {', '.join(self.splits)})")
        return tuple(map(Pair.parse, self.splits[name]))

    def is_seen(self, pair: Pair) -> bool:
        return pair in set(self.seen_pairs)

    def language(self, code: str) -> Language:
        return find_language(code, self.languages)

    def prompt(self, pair: Pair, style: Style | None = None, source: str | None = None) -> str:
        """What the encoder reads for a pair: captions need a style, translations a source text."""
        language = self.language(pair.language)
        if pair.task is Task.TRANSLATION:
            if source is None:
                raise ValueError(f"{pair} needs a source text")
            return translation_prompt(language, source)
        return caption_prompt(language, style or Style.SHORT)

    def full(self) -> "Coverage":
        """The same languages with every pair seen: what fine-tuning uses."""
        # Not model_copy, which would carry the cached properties over.
        return Coverage(**(self.model_dump() | {"seen": tuple(map(str, self.all_pairs))}))


def mean_over_splits(per_pair: dict[str, float], coverage: Coverage) -> dict[str, float]:
    """A value per test split: the mean over its pairs that were measured; a split with none is left out."""
    values: dict[str, float] = {}
    for name in coverage.splits:
        found = [per_pair[str(pair)] for pair in coverage.split(name) if str(pair) in per_pair]
        if found:
            values[name] = sum(found) / len(found)
    return values
