"""`babelcap eval lmms-items`: our benchmarks' items for lmms-eval, which lacks them."""

from pathlib import Path

import typer


def lmms_items(
    benchmarks: list[str] = typer.Argument(help="Names of benchmarks, such as xm3600 or commute.", show_default=False),
    root: Path = typer.Option(..., help="Folder that holds the benchmarks as distributed.", show_default=False),
    language: str = typer.Option(None, "--language", "-l", help="Some languages only, such as de or de,fr."),
    output: Path = typer.Option(Path(), "--output", "-o", help="The folder that lmms-eval will be started in."),
) -> None:
    """Write a benchmark's items where the task files for lmms-eval look for them, and say how to run them.

    Example: babelcap eval lmms-items commute --root benchmarks -l de
    """
    from babelcap.evaluation.lmms_eval.tasks import TASK_FILES, write_items

    languages = [code.strip() for code in language.split(",") if code.strip()] if language else None
    for name in benchmarks:
        path, num_items = write_items(name, root, output, languages)
        typer.echo(f"{path}: {num_items:,} items")
    tasks = ",".join(f"babelcap_{name.replace('-', '_')}" for name in benchmarks)
    typer.echo(
        f"In {output.resolve()}: lmms-eval --model babelcap --model_args pretrained=MODEL "
        f"--include_path {TASK_FILES} --tasks {tasks}"
    )
