"""The table of languages. Adding one is a row here, or in a configuration, where those of this table need only a code:

coverage.languages = ["en", "de", {code = "it", name = "Italian", nllb = "ita_Latn", prefix = "...", script = "Latn"}]
"""

import difflib
import unicodedata
from collections.abc import Iterable
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from babelcap.errors import UserError

MAX_CHARACTERS = 200
PrefixMode = Literal["auto", "always", "none"]  # auto: where the model never learnt the task in the language
PREFIX_MODES: tuple[PrefixMode, ...] = get_args(PrefixMode)
CONTROLS = {"Cc", "Cs", "Zl", "Zp"}  # controls, halves of characters, line and paragraph ends


def check_one_line(text: str) -> str:
    if any(unicodedata.category(letter) in CONTROLS for letter in text):
        raise ValueError("has a line end or another control character; give plain text in one line")
    return text


Code = Annotated[str, Field(pattern="^[A-Za-z0-9][A-Za-z0-9_-]*$", max_length=40)]  # becomes part of file names
OneLine = Annotated[str, Field(min_length=1, max_length=MAX_CHARACTERS), AfterValidator(check_one_line)]


class Language(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    code: Code  # ISO 639-1
    name: OneLine  # as the prompt calls it
    nllb: Code  # NLLB's code
    prefix: OneLine  # starts the decoder to unlock captioning in a language it was never trained to caption in
    script: Code  # ISO 15924


LANGUAGES: tuple[Language, ...] = (
    Language(code="en", name="English", nllb="eng_Latn", prefix="The image shows", script="Latn"),
    Language(code="de", name="German", nllb="deu_Latn", prefix="Das Bild zeigt", script="Latn"),
    Language(code="fr", name="French", nllb="fra_Latn", prefix="La photo montre", script="Latn"),
    Language(code="es", name="Spanish", nllb="spa_Latn", prefix="La imagen muestra", script="Latn"),
    Language(code="ru", name="Russian", nllb="rus_Cyrl", prefix="На картинке изображен", script="Cyrl"),
    Language(code="zh", name="simplified Chinese", nllb="zho_Hans", prefix="图为", script="Hans"),
)


def check_prefix_mode(name: str) -> PrefixMode:
    for mode in PREFIX_MODES:
        if mode == name:
            return mode
    raise UserError(
        f"prefix '{name}' is unknown; known are {', '.join(PREFIX_MODES)}, and a text of your own is given as "
        "prefix_text (--prefix-text)"
    )


def find_language(code: str, languages: Iterable[Language] = LANGUAGES) -> Language:
    table = {language.code: language for language in languages}
    if code in table:
        return table[code]
    names = {name: key for key, entry in table.items() for name in (key, entry.name.lower())}
    near = difflib.get_close_matches(code[:80].lower(), names, n=1)
    hint = f"; did you mean '{names[near[0]]}'?" if near else ""
    raise UserError(f"unknown language '{code:.80}'{hint} (known: {', '.join(table)})")
