"""`babelcap data build`, and a command for each of its stages: a dataset out of images and parallel text."""

import json
import sys
from pathlib import Path
from typing import Any, Literal

import typer

CONFIG = typer.Argument(..., help="A TOML file, such as configs/data/world.toml.")
OVERRIDES = typer.Argument(None, help="Settings as key=value, e.g. align.select.num_texts=2.")
ENGINE = typer.Option(None, help="Processes of this machine, or Ray.")
ADDRESS = typer.Option(None, help="Of a Ray cluster.", show_default="Ray on this machine")
WORKERS = typer.Option(None, min=1, help="Worker processes.", show_default="one a core")
JSON = typer.Option(False, "--json", help="Print JSON for a script to read.")
EngineName = Literal["local", "ray"] | None
ENDING = """

    Makes what it needs from the stages before, too; what is done stays done. Stopped or killed, the same command goes
    on where it was. Exit code 1 where shards had to be set aside.

    Example: babelcap data {name} configs/data/world.toml"""
HELP = {
    "clean": "Read parallel text in chunks and keep the pairs that can be trusted, each of them once.",
    "caption": "Write English captions of the images.",
    "translate": "Carry the captions into the caption languages, sentence by sentence.",
    "embed": "Put images and the English sides of clean text into one space.",
    "align": "Find each image's nearest texts, choose among them and write the published columns.",
    "assemble": "Make the corpus out of all that, and the page that shows it: the same as `data build`.",
}


def build(
    config: Path = CONFIG,
    overrides: list[str] | None = OVERRIDES,
    until: Literal["clean", "caption", "translate", "embed", "align", "assemble"] = typer.Option(
        "assemble", help="The last stage to make, with what it needs."
    ),
    dry_run: bool = typer.Option(False, "--dry-run", help="Say what it would cost, by stage; make and read nothing."),
    engine: EngineName = ENGINE,
    address: str | None = ADDRESS,
    workers: int | None = WORKERS,
    as_json: bool = JSON,
) -> None:
    """Caption, translate, embed, align and assemble: images and parallel text become a corpus, and a page shows it.

    Stopped or killed, the same command goes on where it was. Exit code 1 where shards had to be set aside. Each stage
    is a command too: babelcap data clean, caption, translate, embed, align, assemble.

    Example: babelcap data build configs/data/world.toml align.select.num_texts=2
    """
    from babelcap.cli.finetune import build_finetune_corpus
    from babelcap.config import load_config, read_values
    from babelcap.generate.config import BuildConfig

    given = {"engine": engine, "address": address, "num_workers": workers}
    options = [f"{name}={value}" for name, value in given.items() if value is not None]
    if read_values(config).get("kind") == "finetune":
        build_finetune_corpus(config, [*(overrides or []), *options], dry_run, as_json)
        return
    settings = load_config(BuildConfig, config, [*(overrides or []), *options])
    if dry_run:
        _print_costs(settings, as_json)
        return
    from babelcap.generate.build import build_dataset

    _report(build_dataset(settings, until=until), as_json)


def add_stages(group: typer.Typer) -> None:
    """A command for each stage: `build` up to it."""
    for name, what in HELP.items():
        group.command(name, help=what + ENDING.format(name=name))(_stage_command(name))


def _stage_command(name: str) -> Any:
    def run(
        config: Path = CONFIG,
        overrides: list[str] | None = OVERRIDES,
        engine: EngineName = ENGINE,
        address: str | None = ADDRESS,
        workers: int | None = WORKERS,
        as_json: bool = JSON,
    ) -> None:
        until: Any = name
        build(config, overrides, until, False, engine, address, workers, as_json)

    return run


def _report(result: Any, as_json: bool) -> None:
    """What was made, on standard output; what was set aside, on standard error."""
    from babelcap.generate.summary import stage_rows

    stages = stage_rows(result.build)
    set_aside = [
        {"stage": stage, "shard": shard, "why": why}
        for stage, shards in result.build.set_aside.items()
        for shard, why in shards.items()
    ]
    if as_json:
        values = {
            "work": str(result.build.work),
            "stages": stages,
            "corpus": str(result.corpus.folder) if result.corpus else None,
            "content_hash": result.corpus.content_hash if result.corpus else None,
            "page": str(result.page) if result.page else None,
            "set_aside": set_aside,
        }
        typer.echo(json.dumps(values, ensure_ascii=False, indent=2))
    else:
        for row in stages:
            shards = f"{row['num_shards']:,} shards ({row['num_made']:,} made now)"
            drops = ", ".join(f"{reason} {number:,}" for reason, number in row["drops"].items())
            rows = f"{row['num_in']:,} rows in, {row['num_out']:,} out"
            typer.echo(f"{row['stage']:<15} {shards}: {rows}{f'; dropped: {drops}' if drops else ''}")
        if result.corpus is not None:
            counts = f"{result.corpus.num_images():,} images, {result.corpus.manifest.num_annotations:,} annotations"
            typer.echo(f"{result.corpus.folder}: {counts}")
            typer.echo(f"page: {result.page}")
        else:
            typer.echo(f"files: {result.build.work}")
    for row in set_aside:
        typer.echo(f"set aside: {row['stage']} {row['shard']}: {row['why']}", err=True)
    if set_aside:
        typer.echo("all other shards are done; the same command tries these again", err=True)
        raise typer.Exit(1)


def _print_costs(settings: Any, as_json: bool) -> None:
    from rich.console import Console
    from rich.table import Column, Table

    from babelcap.generate.cost import estimate

    found = estimate(settings)
    if as_json:
        typer.echo(json.dumps(found.model_dump(mode="json"), indent=2))
        return
    numbers = [Column(name, justify="right") for name in ("items", "GPU-hours", "CPU-hours", "storage")]
    table = Table("stage", "passes", *numbers)
    for row in [*found.stages, found.total]:
        hours = [f"{row.gpu_hours:,.1f}", f"{row.cpu_hours:,.1f}"]
        table.add_row(row.stage, row.unit, f"{row.num_items:,.0f}" if row.num_items else "", *hours, row.storage)
    (Console() if sys.stdout.isatty() else Console(width=120)).print(table)
    typer.echo("Assumed, not measured (settings of [cost]):")
    for name, value in found.assumptions.items():
        typer.echo(f"  {name} = {value:g}")
    for line in found.choices:
        typer.echo(line)
