"""The options of `babelcap data`."""

import inspect
from collections.abc import Iterator
from typing import NamedTuple

import pytest
import typer
from typer.models import OptionInfo
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.cli.data import group


class Number(NamedTuple):
    command: tuple[str, ...]
    name: str
    option: OptionInfo


def numbers(commands: typer.Typer, path: tuple[str, ...] = ("data",)) -> Iterator[Number]:
    """Every option of a command that takes a number."""
    for command in commands.registered_commands:
        assert command.callback is not None
        name = command.name or command.callback.__name__
        for parameter in inspect.signature(command.callback, eval_str=True).parameters.values():
            if parameter.annotation in (int, float):
                yield Number((*path, name), parameter.name, parameter.default)
    for inner in commands.registered_groups:
        if inner.typer_instance is not None and inner.name:
            yield from numbers(inner.typer_instance, (*path, inner.name))


NUMBERS = list(numbers(group))


def test_the_walk_finds_options() -> None:
    of_self_caption = {"candidates", "max_new_tokens", "max_place", "guidance_scale", "batch_size", "tars"}
    names = {"workers", "seed", "num", "max_distance", "dev_share", *of_self_caption}
    assert {number.name for number in NUMBERS} == names
    assert {number.command for number in NUMBERS} >= {("data", "show"), ("data", "import", "cc12m"), ("data", "check")}


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: " ".join((*number.command, number.name)))
def test_every_number_has_bounds(number: Number) -> None:
    least, most = number.option.min, number.option.max
    assert least is not None
    assert most is not None
    for value in (least - 1, most + 1):
        done = CliRunner().invoke(app, [*number.command, f"--{number.name.replace('_', '-')}", str(value)])
        assert done.exit_code == 2
        assert "than or equal to" in " ".join(done.output.replace("│", " ").split())  # whatever the box breaks
