"""`babelcap report`: a study's page from its records."""

import json
from pathlib import Path

import typer

group = typer.Typer(no_args_is_help=True, help="Build the page of a study from its records: claims, figures, tables.")


@group.callback()
def _group() -> None:
    """Build the page of a study from its records: claims, figures, tables."""


@group.command()
def build(
    study: Path = typer.Argument(..., metavar="STUDY_DIR", help="A study's folder, with runs.jsonl in it."),
    output: Path = typer.Option(None, "-o", "--output", help="Where it goes; STUDY_DIR/report where not given."),
    as_json: bool = typer.Option(False, "--json", help="Print the verdicts and what was measured as JSON."),
) -> None:
    """Build index.html, with every figure as PNG and SVG and every table as CSV beside it. Needs no GPU and no model.

    Example: babelcap report build studies/micro
    """
    from babelcap.report import read_report

    report = read_report(study)
    page = str(report.write(output or study / "report"))
    shown = json.dumps({"page": page, **report.summary()}, ensure_ascii=False, indent=2) if as_json else page
    typer.echo(shown)
