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
    from babelcap.report import build_report

    page = build_report(study, output)
    if not as_json:
        typer.echo(str(page))
        return
    from babelcap.report.build import summary

    typer.echo(json.dumps({"page": str(page), **summary(study)}, ensure_ascii=False, indent=2))
