import errno
import re
import subprocess
import sys

import pytest
import typer
from typer.testing import CliRunner

from babelcap.cli import Commands, app
from babelcap.errors import UserError
from babelcap.version import VERSION

HEAVY = ("torch", "transformers", "tokenizers", "pyarrow", "scipy", "matplotlib", "numpy", "PIL", "pandas")


def run(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run([sys.executable, "-m", "babelcap", *arguments], capture_output=True, text=True, check=False)


def groups() -> list[str]:
    return [group.name for group in app.registered_groups if group.name]


def test_version() -> None:
    done = run("--version")
    assert (done.returncode, done.stdout) == (0, f"babelcap {VERSION}\n")
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", VERSION)


def test_help_names_every_group() -> None:
    result = CliRunner().invoke(app, ["--help"])
    assert result.exit_code == 0
    assert "languages it has never captioned in" in " ".join(result.output.split())
    for name in groups():
        assert name in result.output


@pytest.mark.parametrize("name", groups())
def test_every_group_has_help(name: str) -> None:
    result = CliRunner().invoke(app, [name, "--help"])
    assert result.exit_code == 0
    assert "Usage" in result.output


def test_without_arguments_it_teaches() -> None:
    done = run()
    assert "Usage" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["no-such-group"], ["--no-such-option"]])
def test_a_wrong_command_line_is_exit_code_2(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "No such" in done.stderr
    assert "Traceback" not in done.stderr


def test_help_comes_without_heavy_imports() -> None:
    code = (
        "import sys\nfrom typer.testing import CliRunner\nfrom babelcap.cli import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_captioning_imports_no_corpus_tools() -> None:
    """A caption waits for torch and transformers; it does not wait for what reads, imports or describes corpora."""
    unused = ["pyarrow.compute", "pandas", "matplotlib", "babelcap.data.importers", "babelcap.data.inspect.card"]
    code = f"import sys, babelcap.models.inference\nprint([name for name in {unused!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.fixture
def raising() -> typer.Typer:
    """The command line with a nested group whose commands fail in every way."""
    outer = typer.Typer(cls=Commands)
    inner = typer.Typer()
    outer.add_typer(inner, name="group")

    @inner.command()
    def user() -> None:
        raise UserError("seed: found 'x'; give a whole number")

    @inner.command()
    def disk(number: int) -> None:
        raise OSError(number, "an error of the system", "out/file")

    @inner.command()
    def fault() -> None:
        raise ZeroDivisionError

    return outer


def test_a_users_mistake_is_one_line_and_exit_code_2(raising: typer.Typer) -> None:
    result = CliRunner().invoke(raising, ["group", "user"])
    assert result.exit_code == 2
    assert result.stderr == "babelcap: seed: found 'x'; give a whole number\n"
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "the disk is full"),
        (errno.EDQUOT, "quota"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission denied"),
    ],
)
def test_a_disk_that_cannot_take_more_is_told(raising: typer.Typer, number: int, words: str) -> None:
    result = CliRunner().invoke(raising, ["group", "disk", str(number)])
    assert result.exit_code == 2
    assert result.stderr.startswith("babelcap: out/file: ")
    assert words in result.stderr
    assert result.stderr.count("\n") == 1


def test_anything_else_stays_a_traceback(raising: typer.Typer) -> None:
    assert isinstance(CliRunner().invoke(raising, ["group", "fault"]).exception, ZeroDivisionError)
    assert isinstance(CliRunner().invoke(raising, ["group", "disk", str(errno.EIO)]).exception, OSError)
