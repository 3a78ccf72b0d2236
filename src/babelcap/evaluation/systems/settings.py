"""How each system is asked: prompts and settings of prompts.toml, and what a user chose in their place."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field

from babelcap.config import ConfigModel, build_config
from babelcap.coverage import CAPTION, TRANSLATION, Style
from babelcap.errors import UserError
from babelcap.evaluation.benchmarks import Item
from babelcap.languages import LANGUAGES, Language, find_language
from babelcap.storage import read_toml, text_sha256

if TYPE_CHECKING:
    from babelcap.models.generation.requests import PrefixMode

HERE = Path(__file__).parent
MAX_BEAMS, MAX_NEW_TOKENS, MAX_BATCH = 64, 4096, 4096


@dataclass(frozen=True)
class SystemOptions:
    """What a user may choose. None: as prompts.toml says; the last four are for captioners of this package."""

    device: str | None = None  # by default a graphics card where there is one
    dtype: str | None = None
    batch_size: int | None = None
    num_beams: int | None = None
    max_new_tokens: int | None = None
    prefix: "PrefixMode" = "auto"
    shortlist: bool = False
    image_size_px: int | None = None
    encoder_tokenizer: str | None = None
    decoder_tokenizer: str | None = None

    def refuse_own(self, system: str) -> None:
        """Stops where an option is set that this system does not have."""
        names = ("prefix", "shortlist", "image_size_px", "encoder_tokenizer", "decoder_tokenizer")
        for name in names:
            if getattr(self, name) != getattr(SystemOptions, name):
                raise UserError(f"{system} has no {name}; that is an option of ours:MODEL")


class Settings(ConfigModel):
    """A table of prompts.toml."""

    num_beams: int = Field(ge=1, le=MAX_BEAMS)
    max_new_tokens: int = Field(ge=1, le=MAX_NEW_TOKENS)
    dtype: str = Field(pattern="^(float32|float16|bfloat16)$")
    batch_size: int = Field(ge=1, le=MAX_BATCH)
    caption: dict[Style, str] = Field(default_factory=dict)
    translate: str | None = None
    ambiguity: str | None = None  # what token losses are computed after, where it is not what translations are made of
    system_text: dict[str, str] = Field(default_factory=dict)  # of a chat, by the model's type
    languages: tuple[str, ...] = ()  # that captions can be in; none: any

    def caption_prompt(self, system: str, item: Item) -> str:
        if self.languages and item.language not in self.languages:
            raise cannot(system, CAPTION, item, f"it captions in {', '.join(self.languages)} only")
        if item.style not in self.caption:
            known = ", ".join(self.caption) or "none"
            raise cannot(system, CAPTION, item, f"styles of captions that it has a prompt for: {known}")
        return fill(self.caption[Style(item.style)], item)

    def translation_prompt(self, system: str, item: Item) -> str:
        if self.translate is None:
            raise cannot(system, TRANSLATION, item, "it has no prompt for it")
        return fill(self.translate, item)

    def prompt(self, system: str, item: Item) -> str:
        return (self.caption_prompt if item.task == CAPTION else self.translation_prompt)(system, item)

    @property
    def prompts_hash(self) -> str:
        """Of all texts, for a system's identity."""
        texts = self.model_dump(mode="json", include={"caption", "translate", "ambiguity", "system_text"})
        return text_sha256(json.dumps(texts, sort_keys=True))[:16]


def read_settings(system: str, options: SystemOptions) -> Settings:
    values = dict(read_toml(HERE / "prompts.toml")[system])
    for name in ("num_beams", "max_new_tokens", "dtype", "batch_size"):
        if getattr(options, name) is not None:
            values[name] = getattr(options, name)
    return build_config(Settings, values, system)


def fill(prompt: str, item: Item, caption: str = "") -> str:
    """A prompt with its places filled; what is filled in is never read as a place itself."""
    language = language_of(item.language)
    places = {"name": language.name, "code": language.code, "source": item.source or "", "caption": caption}
    parts = prompt.split("{")
    filled = parts[0]
    for part in parts[1:]:
        name, closed, rest = part.partition("}")
        filled += places[name] + rest if closed and name in places else f"{{{part}"
    return filled


@cache
def _other_languages() -> dict[str, Language]:
    """Without a prefix: none is published for them, and no system here but ours takes one."""
    rows = read_toml(HERE / "languages.toml")
    return {
        code: Language.model_construct(code=code, name=name, nllb=nllb, prefix="", script=nllb.partition("_")[2])
        for code, (name, nllb) in rows.items()
    }


def language_of(code: str) -> Language:
    return find_language(code, (*LANGUAGES, *_other_languages().values()))


def sources_of(system: str, items: Iterable[Item]) -> None:
    """Stops at an item that there is nothing to translate in."""
    for item in items:
        if not (item.source or "").strip():
            raise cannot(system, TRANSLATION, item, "it has no source text")


def cannot(system: str, task: str, item: Item, why: str) -> UserError:
    where = f"{item.id} asks for '{item.language}'" + (f", {item.style}" if task == CAPTION else "")
    return UserError(f"{system} cannot do this {task} ({where}): {why}")
