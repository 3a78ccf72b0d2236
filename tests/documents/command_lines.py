"""Parses a command line as its program would, without running it: a command or an option that is misspelt fails."""

import functools
import re
import shlex
from typing import Any

import typer.main

from babelcap.cli import app

from .markdown import REPOSITORY

TARGETS = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(encoding="utf-8"), re.M))
FOLDERS = ("bench/", "cluster/", "configs/", "docs/", "notebooks/", "release/", "results/", "tests/")
PLACEHOLDER = re.compile(r"\.\.\.|[<>*]")


class WrongLine(Exception):
    """A command line that its program would refuse, and why."""


def parse_line(line: str, *, whole: bool = True, with_files: bool = True) -> None:
    """Of a line that is not whole (a mention within a sentence) only the names of commands and options are checked."""
    for part in line.split(" | "):
        words = shlex.split(part)
        while words and "=" in words[0] and words[0].split("=")[0].isupper():
            words = words[1:]
        if words[:1] == ["time"]:
            words = words[1:]
        _parse(words, whole)
        for before, word in zip(["", *words], words, strict=False):
            if before in ("-o", "--output") or not with_files:
                continue
            if word.startswith(FOLDERS) and not PLACEHOLDER.search(word) and not (REPOSITORY / word).exists():
                raise WrongLine(f"{word}: not in the repository")


def _parse(words: list[str], whole: bool) -> None:
    program, *rest = words or [""]
    if program.endswith("/babelcap"):
        program = "babelcap"
    if program == "babelcap":
        _parse_babelcap(rest, whole)
    elif program == "make":
        unknown = [word for word in rest if "=" not in word and word not in TARGETS]
        if unknown:
            raise WrongLine(f"make has no target {unknown[0]}")
    elif program.split("/")[-1] in ("torchrun", "python", "python3") and "babelcap" in rest:
        _parse_babelcap(rest[rest.index("babelcap") + 1 :], whole)


@functools.cache
def command_line() -> Any:
    return typer.main.get_command(app)


def _parse_babelcap(words: list[str], whole: bool) -> None:
    words = [word.strip("[]") if re.fullmatch(r"\[-.*\]", word) else word for word in words]
    command = command_line()
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        names = words[0].split("|")  # cc12m|multi30k: one of these
        unknown = [name for name in names if name not in command.commands]
        if unknown:
            raise WrongLine(f"{command.name} has no command {unknown[0]}")
        command, words = command.commands[names[0]], words[1:]
    if not whole or any("..." in word for word in words):
        _check_options(command, words)
        return
    if hasattr(command, "commands") and not words:
        raise WrongLine(f"{command.name} is a group of commands")
    try:
        if not {"--help", "--version"} & set(words):
            command.make_context(command.name, list(words))
    except Exception as error:
        raise WrongLine(f"babelcap {command.name}: {getattr(error, 'message', error)}") from error


def _check_options(command: Any, words: list[str]) -> None:
    known = {"--help"} | {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    for word in words:
        option = word.split("=")[0]
        if re.fullmatch(r"--?[a-zA-Z][\w-]*", option) and option not in known:
            raise WrongLine(f"{command.name} has no option {option}")
