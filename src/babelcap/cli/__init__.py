"""The command line: one file a group. Heavy imports stand inside the commands, so that help comes at once."""

import os
import sys
from typing import Any

import typer
from typer.core import TyperGroup

from babelcap.cli import caption, data, evaluate, language, laws, lmms, model, report, serving, study, train, world
from babelcap.cli.starting import ending
from babelcap.errors import UserError, disk_message
from babelcap.version import VERSION


class Commands(TyperGroup):
    """Turns a user's mistake into one line on standard error and exit code 2; anything else stays a traceback."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except UserError as error:
            typer.echo(f"babelcap: {error}", err=True)
        except OSError as error:
            message = disk_message(error)
            if message is None:
                raise
            typer.echo(f"babelcap: {message}", err=True)
        raise typer.Exit(2)


app = typer.Typer(
    name="babelcap",
    cls=Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Teach an image captioner languages it has never captioned in, from translation data alone, "
    "and predict by scaling laws how well that will work.",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"babelcap {VERSION}")
        raise typer.Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", callback=_print_version, is_eager=True, help="Print the version."),
) -> None:
    pass


app.add_typer(data.group, name="data")
app.add_typer(laws.group, name="laws")
app.add_typer(world.group, name="world")
app.add_typer(model.group, name="model")
app.add_typer(language.group, name="language")
app.add_typer(evaluate.group, name="eval")
evaluate.group.command()(lmms.lmms_items)
app.add_typer(study.group, name="study")
app.add_typer(report.group, name="report")
app.command()(train.train)
app.command()(caption.caption)
app.command()(caption.translate)
app.command("app")(serving.app)
app.command()(serving.serve)


def main() -> None:
    if not sys.stderr.isatty():  # bars of other libraries are for terminals, not for logs
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    with ending():
        app()
