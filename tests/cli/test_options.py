"""Every number on the command line has bounds, and one outside of them is refused before anything heavy is imported."""

import inspect
import json
import os
import subprocess
import sys
import typing
from collections.abc import Iterator

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
