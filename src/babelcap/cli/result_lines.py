"""Results as they come: printed, or appended to a file of JSON lines that the same command goes on with."""

import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import typer

from babelcap.errors import UserError
from babelcap.storage import locked, read_json_lines, text_sha256, write_text

if TYPE_CHECKING:
    from babelcap.languages import Language
    from babelcap.models import GeneratedText, GenerationResult

STATE = "image_state"
Identity = dict[str, str | None]  # what a line is about: image, language, text


class ResultLines:
    def __init__(self, what: str, output: Path | None, settings: dict[str, Any], *, json_output: bool, total: int):
        """`what` is the name of the text in a line; lines in `output` of other settings stop the command."""
        self.what, self.output, self.json_output, self.total = what, output, json_output, total
        self.signature = text_sha256(json.dumps(settings, sort_keys=True, default=str))[:12]
        self._done: set[tuple[str | None, ...]] = set()
        self._asked: Counter[str] = Counter()
        self._elsewhere: dict[str, Counter[str]] = {}
        self._num_cut = self._longest_cut = 0
        self._file: TextIO | None = None
        self._open = ExitStack()

    def __enter__(self) -> "ResultLines":
        if self.output is not None:
            if self.output.is_dir():
                raise UserError(f"--output: {self.output} is a folder; name a file in it")
            refuse = f"--output: {self.output} is being written"
            self._open.enter_context(locked(self.output.parent / f".{self.output.name}.lock", refuse=refuse))
            self._read(self.output)
            self._file = self._open.enter_context(self.output.open("a", encoding="utf-8"))
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _read(self, output: Path) -> None:
        """What is there already. A line that was cut when its writer was killed is dropped and computed again."""
        if not output.exists():
            return
        lines = list(read_json_lines(output))
        good = [line.value for line in lines if self._is_result(line.value)]
        if len(good) < len([line for line in lines if line.error is None]):
            raise UserError(f"--output: {output} holds lines that are no {self.what}s; choose another file")
        if any(value.get("settings") != self.signature for value in good):
            raise UserError(f"--output: {output} holds {self.what}s of another model or settings; choose another file")
        current = [value for value in good if _state(value.get("image")) in (None, value.get(STATE))]
        if len(current) < len(good):
            number = len(good) - len(current)
            typer.echo(f"babelcap: {number} {self.what}s are of images that changed since; made again", err=True)
        self._done = {_key(value) for value in current}
        text = output.read_bytes()
        if len(current) < len(lines) or not text.endswith(b"\n"):
            write_text(output, "".join(_line(value) for value in current))

    @property
    def num_added(self) -> int:
        return self._asked.total()

    def _is_result(self, value: Any) -> bool:
        return isinstance(value, dict) and self.what in value and all(isinstance(v, str | None) for v in _key(value))

    def has(self, identity: Identity) -> bool:
        return _key(identity) in self._done

    def add(self, identity: Identity, result: "GenerationResult") -> None:
        language = result.request.language
        self._asked[language] += 1
        if result.is_in_language is False:
            self._elsewhere.setdefault(language, Counter())[result.language_found or "another script"] += 1
        row = {
            **identity,
            **_text_values(self.what, result.texts[0]),
            "prefix": result.prefix,
            "language_found": result.language_found,
            "is_in_language": result.is_in_language,
        }
        if result.request.source is not None:
            row["num_tokens_cut"] = result.num_tokens_cut
            self._longest_cut = max(self._longest_cut, result.num_tokens_cut)
            self._num_cut += result.num_tokens_cut > 0
        if len(result.texts) > 1:
            row["alternatives"] = [_text_values(self.what, text) for text in result.alternatives]
        if self._file is not None:
            state = _state(identity.get("image"))
            self._file.write(_line(row | {"settings": self.signature} | ({STATE: state} if state else {})))
            self._file.flush()
        elif self.json_output:
            typer.echo(_line(row), nl=False)
        else:
            for line in self._plain(identity, result):
                typer.echo(line)

    def _plain(self, identity: Identity, result: "GenerationResult") -> Iterator[str]:
        names = [value for value in identity.values() if value] if self.total > 1 else []
        for text in result.texts:
            score = [f"{text.score.mean:.3f}"] if len(result.texts) > 1 and text.score is not None else []
            yield "\t".join([*names, *score, " ".join(text.text.split())])

    def remarks(self, languages: "Iterable[Language]") -> Iterator[str]:
        """Sources that were read in part, and a line for each language asked for in which some texts are not."""
        if self._num_cut:
            yield (
                f"{self._num_cut} of {self.num_added} {self.what}s are of texts longer than the model reads: "
                f"up to {self._longest_cut} tokens at the end were left out; give such texts in pieces"
            )
        names = {language.code: language.name for language in languages}
        for code, found in self._elsewhere.items():
            written = ", ".join(f"{number} in {names.get(other, other)}" for other, number in found.most_common())
            yield f"{found.total()} of {self._asked[code]} {self.what}s are not in {names[code]} as asked ({written})"


def _text_values(what: str, text: "GeneratedText") -> dict[str, Any]:
    values: dict[str, Any] = {what: text.text}
    if text.score is not None:
        values |= {"log_probability": text.score.total, "mean_log_probability": text.score.mean}
    return values


def _key(values: dict[str, Any]) -> tuple[str | None, ...]:
    return tuple(values.get(name) for name in ("image", "text", "language"))


def _state(image: Any) -> str | None:
    """Tells whether an image's file changed, without reading it; nothing of what is no file, such as an address."""
    try:
        found = os.stat(image)
    except (OSError, ValueError, TypeError):
        return None
    return f"{found.st_size}-{found.st_mtime_ns}"


def _line(row: dict[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"
