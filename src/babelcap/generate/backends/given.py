"""Captions that an image set came with, by people or by a captioner that was run elsewhere: JSON lines, read by key.

    {"image": "1000268201.jpg", "en": "A little girl climbing into a wooden playhouse.", "en_captions": ["...", "..."]}

They take the captioner's place, and stand for their image where the embedder knows texts alone.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

from babelcap.config import ConfigModel
from babelcap.data.store.tar import TarMember
from babelcap.errors import UserError
from babelcap.generate.backends.captioners import Answer, Question
from babelcap.storage import read_json_lines

MISSING = "no caption given"


class GivenTexts(ConfigModel):
    """`text` is a field that holds one text or a list of them; `key` one that holds the image's key or file name."""

    file: Path
    key: str = "key"
    text: str = "caption"


class GivenCaptioner:
    """The first text of each image."""

    def __init__(self, given: Mapping[str, str] | None) -> None:
        self.texts = load_given(given, "caption")

    def answer(self, questions: Sequence[Question]) -> list[Answer]:
        found = [self.texts.get(question.key) for question in questions]
        return [Answer(texts[0]) if texts else Answer("", drop=MISSING) for texts in found]


def given_inputs(given: GivenTexts | None) -> dict[str, Path]:
    """As a shard's input: another content of the file makes its shards again."""
    if given is None:
        return {}
    if not given.file.is_file():
        raise UserError(f"given.file: {given.file}: no such file")
    return {"given": given.file}


def load_given(given: Mapping[str, str] | None, block: str) -> dict[str, list[str]]:
    """key -> its texts; once a process for each file."""
    if given is None:
        raise UserError(f"{block}.given is not set; name the file, its key and its text: {{ file = ..., key = ..., }}")
    return _load(Path(given["file"]), given["key"], given["text"])


@lru_cache(maxsize=2)
def _load(path: Path, key: str, text: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for line in read_json_lines(path):
        values = line.value if isinstance(line.value, dict) else {}
        name, texts = values.get(key), values.get(text)
        texts = [texts] if isinstance(texts, str) else texts
        if not isinstance(name, str) or not isinstance(texts, list) or not all(isinstance(one, str) for one in texts):
            what = line.error or f"found fields {', '.join(values) or 'none'}"
            raise UserError(f"{path}:{line.number}: {what}; expected a text '{key}' and texts '{text}'")
        found[TarMember(name, 0, 0).key] = [one.strip() for one in texts if one.strip()]
    return found
