"""Every number on the command line has bounds, and one outside of them is refused before anything heavy is imported.

So are misspelt words of the commands that take seconds to start.
"""

import inspect
import json
import os
import subprocess
import sys
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.models import ParameterInfo

from babelcap.cli import app

HEAVY = ("torch", "transformers", "tokenizers", "pyarrow", "scipy", "matplotlib", "numpy", "PIL", "pandas")


class Number(typing.NamedTuple):
    command: tuple[str, ...]
    option: str
    kind: type
    info: ParameterInfo


def commands(group: typer.Typer = app, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], typing.Any]]:
    for command in group.registered_commands:
        assert command.callback is not None
        yield (*path, command.name or command.callback.__name__.replace("_", "-")), command.callback
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        yield from commands(inner.typer_instance, (*path, inner.name or ""))


def numbers() -> list[Number]:
    found = []
    for path, callback in commands():
        hints = typing.get_type_hints(callback)
        for name, parameter in inspect.signature(callback).parameters.items():
            kinds = {hints[name], *typing.get_args(hints[name])} & {int, float}
            if kinds and isinstance(parameter.default, ParameterInfo):
                given = [text for text in parameter.default.param_decls or () if text.startswith("--")]
                option = given[0] if given else f"--{name.replace('_', '-')}"
                found.append(Number(path, option, kinds.pop(), parameter.default))
    return found


def test_numbers_are_found() -> None:
    """The walk sees the commands: what it asserts of each of them is not about none."""
    assert {("world", "make"), ("data", "show"), ("eval", "loss")} <= {number.command for number in numbers()}


@pytest.mark.parametrize("number", numbers(), ids=lambda number: " ".join((*number.command, number.option)))
def test_every_number_has_bounds(number: Number) -> None:
    assert number.info.min is not None or number.info.max is not None


WALK = """
import contextlib, io, json, sys
from babelcap.cli import app
told = []
for arguments in json.loads(sys.argv[1]):
    words = io.StringIO()
    with contextlib.redirect_stderr(words), contextlib.redirect_stdout(words):
        try:
            code = app(arguments, standalone_mode=True)
        except SystemExit as stop:
            code = stop.code
    if code != 2 or f"Invalid value for '{arguments[-1].partition('=')[0]}'" not in words.getvalue():
        told.append([arguments, code, words.getvalue()[-300:]])
print(json.dumps([told, [name for name in json.loads(sys.argv[2]) if name in sys.modules]]))
"""


def test_what_is_out_of_bounds_is_refused_at_once() -> None:
    calls = []
    for number in numbers():
        step = 1 if number.kind is int else 0.5
        for bound, sign in ((number.info.min, -1), (number.info.max, 1)):
            if bound is not None:
                calls.append([*number.command, f"{number.option}={bound + sign * step}"])
    code = [sys.executable, "-c", WALK, json.dumps(calls), json.dumps(HEAVY)]
    wide = os.environ | {"COLUMNS": "300"}
    done = subprocess.run(code, capture_output=True, text=True, check=True, env=wide)
    told, heavy = json.loads(done.stdout)
    assert told == []
    assert heavy == []
    assert len(calls) > 20


MISSPELT = [
    (["caption", "x.png", "-m", "model", "-l", "de", "--prefix", "alway"], "prefix 'alway' is unknown"),
    (["caption", "x.png", "-m", "model", "-l", "de", "--style", "long"], "style 'long' is unknown"),
    (["caption", "x.png", "-m", "model", "-l", "de,dee"], "unknown language 'dee'; did you mean 'de'?"),
    (["caption", "x.png", "-m", "model", "-l", "it"], ""),
    (["caption", "x.png", "-l", "de"], "no model given"),
    (
        ["translate", "-t", "a", "-m", "model", "-l", "en"],
        "there is no translation into 'en' (known: de, fr, es, ru, zh, it)",
    ),
    (["eval", "captions", "model", "corpus", "--style", "long"], "style 'long' is unknown"),
    (["eval", "captions", "model", "corpus", "--variant", "plan"], "variant 'plan' is unknown"),
    (["eval", "loss", "model", "corpus"], "corpus"),
]
WORDS = """
import contextlib, io, json, sys
from babelcap.cli import app
for arguments in json.loads(sys.argv[1]):
    words = io.StringIO()
    with contextlib.redirect_stderr(words):
        try:
            app(arguments)
        except SystemExit as stop:
            print(json.dumps([stop.code, words.getvalue()]))
        except ModuleNotFoundError as error:
            print(json.dumps([error.name, ""]))
"""


def test_misspelt_words_are_told_before_torch_is_imported(tmp_path: Path) -> None:
    """A language of the model's own is known from its configuration: the command goes on to what needs torch."""
    italian = {"code": "it", "name": "Italian", "nllb": "ita_Latn", "prefix": "Ecco", "script": "Latn"}
    coverage = {"languages": ["en", "de", "fr", "es", "ru", "zh", italian]}
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "config.json").write_text(json.dumps({"coverage": coverage}))
    without_torch = f"import sys\nsys.modules['torch'] = None\n{WORDS}"
    calls = [arguments for arguments, _ in MISSPELT]
    environment = {name: value for name, value in os.environ.items() if name != "BABELCAP_MODEL"}
    done = subprocess.run(
        [sys.executable, "-c", without_torch, json.dumps(calls)],
        cwd=tmp_path, capture_output=True, text=True, check=True, env=environment,
    )  # fmt: skip
    told = [json.loads(line) for line in done.stdout.splitlines()]
    for (arguments, words), (code, line) in zip(MISSPELT, told, strict=True):
        expected = "torch" if arguments[-1] == "it" else 2
        assert (code, line.count("\n")) == (expected, 0 if expected == "torch" else 1), (arguments, code, line)
        assert words in line
