"""The table of tasks, and which task is seen in which language: the intentional hole, the test splits, the prompts.

UC  unseen captioning     ST  seen translation     SC  seen captioning
Everything that asks "was this pair trained on?" or "what does this task need?" asks here. A task is a row of `TASKS`,
or of a configuration, where those of the table need only a name; the hole is any set of task x language.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, NamedTuple, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from babelcap.errors import UserError
from babelcap.languages import LANGUAGES, Language, OneLine, find_language


class Style(StrEnum):
    SHORT = "short"
    DETAILED = "detailed"
    MORE_DETAILED = "more_detailed"


def check_style(name: str) -> Style:
    if name not in set(Style):
        raise UserError(f"style '{name}' is unknown; known are {', '.join(Style)}")
    return Style(name)


CAPTION, TRANSLATION = "caption", "translation"  # the built-in tasks, for those who make such texts
TEXTS = ("source", "question")  # what the text can be that a task reads beside the image
TaskName = Annotated[str, Field(pattern="^[a-z][a-z0-9_]*$", max_length=40)]
Prompts = Annotated[dict[Style, str], Field(min_length=1)]


class Task(BaseModel):
    """A row of the table of tasks. What a task needs is what its prompt has a place for.

    {"name": "question", "prompt": "Answer the question: {question}", "gives": "answers in"}
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: TaskName  # the first half of a pair's name
    prompt: str | Prompts  # what the encoder reads after the language's sentence; one a style where it has styles
    gives: OneLine  # what comes out, as figures say it before a language's name
    after_prefix: bool = False  # whether the decoder can be started with the language's prefix

    @model_validator(mode="after")
    def _known_places(self) -> Self:
        prompts = [self.prompt] if isinstance(self.prompt, str) else list(self.prompt.values())
        found = {tuple(sorted(re.findall(r"\{(.*?)\}", prompt))) for prompt in prompts}
        if len(found) > 1 or found.pop() not in {(), *((name,) for name in TEXTS)}:
            raise ValueError(f"prompt: has places other than one of {{{'}, {'.join(TEXTS)}}}, the same in every style")
        return self

    @cached_property
    def text(self) -> str | None:
        """What the text is that it reads beside the image, if any: an annotation holds it as its `source`."""
        prompt = self.prompt if isinstance(self.prompt, str) else next(iter(self.prompt.values()))
        return next((name for name in TEXTS if f"{{{name}}}" in prompt), None)

    @property
    def needs_source(self) -> bool:
        """Whether it carries a text over from the source language: there is no such task into that language."""
        return self.text == "source"

    @property
    def styles(self) -> tuple[Style | None, ...]:
        """The styles that it can be asked for in; a task without styles has None alone."""
        return (None,) if isinstance(self.prompt, str) else tuple(self.prompt)

    def sentence(self, style: Style | None = None, text: str | None = None) -> str:
        """What is asked for, without the language: `text` is what the task reads, if it reads any."""
        if self.text is not None and text is None:
            raise ValueError(f"{self.name} needs a {self.text} text")
        if isinstance(self.prompt, str):
            return self.prompt.replace(f"{{{self.text}}}", text or "")
        style = style or next(iter(self.prompt))
        if style not in self.prompt:
            raise UserError(f"{self.name} has no style '{style}' (known: {', '.join(self.prompt)})")
        return self.prompt[style].replace(f"{{{self.text}}}", text or "")

    def instruction(self, language: Language, style: Style | None = None, text: str | None = None) -> str:
        """What the encoder reads."""
        return f"The target language is {language.name}. {self.sentence(style, text)}"


TASKS: tuple[Task, ...] = (
    Task(
        name=CAPTION,
        prompt={
            Style.SHORT: "What does the image describe?",
            Style.DETAILED: "Describe in detail what is shown in the image.",
            Style.MORE_DETAILED: "Describe with a paragraph what is shown in the image.",
        },
        gives="captions in",
        after_prefix=True,
    ),
    Task(name=TRANSLATION, prompt="Translate the following text: {source}", gives="translations into"),
)


def find_task(name: str, tasks: Iterable[Task] = TASKS) -> Task:
    table = {task.name: task for task in tasks}
    if name not in table:
        raise UserError(f"unknown task '{name}' (known: {', '.join(table)})")
    return table[name]


def caption_prompt(language: Language, style: Style = Style.SHORT) -> str:
    return find_task(CAPTION).instruction(language, style)


def translation_prompt(language: Language, source: str) -> str:
    return find_task(TRANSLATION).instruction(language, text=source)


class Pair(NamedTuple):
    """A task in a target language, written `caption-de`."""

    task: str
    language: str

    def __str__(self) -> str:
        return f"{self.task}-{self.language}"

    @classmethod
    def parse(cls, text: str, tasks: Iterable[Task] = TASKS) -> "Pair":
        name, _, language = text.partition("-")
        names = [task.name for task in tasks]
        if name not in names or not language:
            raise UserError(
                f"'{text}' is not a task-language pair; write {' or '.join(f'{t}-LANGUAGE' for t in names)}"
            )
        return cls(name, language)


class Coverage(BaseModel):
    """The languages, the pairs that training sees, and the test splits over pairs."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    languages: tuple[Language, ...] = LANGUAGES  # a language of the built-in table may be given by its code alone
    # Left out of what is written and hashed where it is the table: the field came later than the records.
    tasks: Annotated[tuple[Task, ...], Field(min_length=1, exclude_if=lambda tasks: tasks == TASKS)] = TASKS
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

    @field_validator("languages", "tasks", mode="before")
    @classmethod
    def _built_in_by_name(cls, rows: Any, info: ValidationInfo) -> Any:
        find: Callable[[str], Language | Task] = find_language if info.field_name == "languages" else find_task
        if not isinstance(rows, list | tuple):
            return rows
        return tuple(find(row) if isinstance(row, str) else row for row in rows)

    @model_validator(mode="after")
    def _known_pairs(self) -> Self:
        codes = [language.code for language in self.languages]
        names = [task.name for task in self.tasks]
        for name, values in {"languages": codes, "tasks": names, "seen": self.seen, **self.splits}.items():
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
        """Every task in every language, but a task that carries over from the source language not into it."""
        return tuple(
            Pair(task.name, language.code)
            for task in self.tasks
            for language in self.languages
            if not (task.needs_source and language.code == self.source_language)
        )

    @cached_property
    def seen_pairs(self) -> tuple[Pair, ...]:
        return tuple(map(self.pair, self.seen))

    def pair(self, text: str) -> Pair:
        """A pair by its name, of a task that is known here."""
        return Pair.parse(text, self.tasks)

    def task(self, name: str) -> Task:
        return find_task(name, self.tasks)

    def possible_pair(self, task: str, language: str) -> Pair:
        """The pair, where there can be one: not a translation into the language that is translated from."""
        pair = Pair(self.task(task).name, self.language(language).code)
        if pair not in self.all_pairs:
            known = ", ".join(other.language for other in self.pairs_of(task))
            raise UserError(f"language: there is no {task} into '{language}' (known: {known})")
        return pair

    def pairs_of(self, task: str, *, seen: bool | None = None) -> tuple[Pair, ...]:
        """The pairs of a task: all of them, those that training sees, or those of the hole."""
        among = self.all_pairs if seen is None else self.seen_pairs if seen else self.hole
        return tuple(pair for pair in among if pair.task == task)

    def caption_languages(self, *, seen: bool | None = None) -> tuple[str, ...]:
        """The codes of the languages that are captioned in; `seen=False`: those that training never captions in."""
        return tuple(pair.language for pair in self.pairs_of(CAPTION, seen=seen))

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
        return tuple(map(self.pair, self.splits[name]))

    def is_seen(self, pair: Pair) -> bool:
        return pair in set(self.seen_pairs)

    def language(self, code: str) -> Language:
        return find_language(code, self.languages)

    def prompt(self, pair: Pair, style: Style | None = None, text: str | None = None) -> str:
        """What the encoder reads for a pair: `text` is what its task needs, a source text or a question."""
        return self.task(pair.task).instruction(self.language(pair.language), style, text)

    def full(self) -> "Coverage":
        """The same languages with every pair seen: what fine-tuning uses."""
        return self._with_seen(map(str, self.all_pairs))

    def after(self, before: "Coverage") -> "Coverage":
        """What a model has seen that was trained on `before` first: its pairs too, where they are known here."""
        known = set(map(str, self.all_pairs))
        return self._with_seen((*self.seen, *(pair for pair in before.seen if pair in known)))

    def _with_seen(self, pairs: Iterable[str]) -> "Coverage":
        # Not model_copy, which would carry the cached properties over.
        return Coverage(**(self.model_dump() | {"seen": tuple(dict.fromkeys(pairs))}))


def mean_over_splits(
    per_pair: dict[str, float], coverage: Coverage, mean: Callable[[list[float]], float] | None = None
) -> dict[str, float]:
    """A value per test split: the mean over its pairs that were measured; a split with none is left out.

    By default the mean of rates, which leaves out what is not a number.
    """
    values: dict[str, float] = {}
    for name in coverage.splits:
        found = [per_pair[str(pair)] for pair in coverage.split(name) if str(pair) in per_pair]
        if found:
            values[name] = (mean or mean_of_numbers)(found)
    return values


def mean_of_numbers(values: Iterable[float]) -> float:
    """The mean without what is not a number (a rate over nothing); NaN where nothing is left."""
    numbers = [value for value in values if not math.isnan(value)]
    return sum(numbers) / len(numbers) if numbers else math.nan
