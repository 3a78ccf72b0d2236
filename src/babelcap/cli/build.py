"""`babelcap data build`: a dataset out of images and parallel text."""

import json
import sys
from pathlib import Path
from typing import Any, Literal

import typer


def build(
    config: Path = typer.Argument(..., help="A TOML file, such as configs/data/world.toml."),
    overrides: list[str] | None = typer.Argument(None, help="Settings as key=value, e.g. align.select.num_texts=2."),
    dry_run: bool = typer.Option(False, "--dry-run", help="Say what it would cost, by stage; make and read nothing."),
    engine: Literal["local", "ray"] | None = typer.Option(None, help="Processes of this machine, or Ray."),
    address: str | None = typer.Option(None, help="Of a Ray cluster. [default: Ray on this machine]"),
    workers: int | None = typer.Option(None, min=1, help="Worker processes. [default: one a core]"),
    as_json: bool = typer.Option(False, "--json", help="Print JSON for a script to read."),
) -> None:
    """Caption, translate, embed, align and assemble: images and parallel text become a corpus, and a page shows it.

    Stopped or killed, the same command goes on where it was. Exit code 1 where shards had to be set aside.

    Example: babelcap data build configs/data/world.toml align.select.num_texts=2
    """
    from babelcap.config import load_config
    from babelcap.generate.config import BuildConfig

    given = {"engine": engine, "address": address, "num_workers": workers}
    options = [f"{name}={value}" for name, value in given.items() if value is not None]
    settings = load_config(BuildConfig, config, [*(overrides or []), *options])
    if dry_run:
        _print_costs(settings, as_json)
        return
    from babelcap.generate.build import build_dataset

    result = build_dataset(settings)
    set_aside = [
        {"stage": stage, "shard": shard, "why": why}
        for stage, shards in result.build.set_aside.items()
        for shard, why in shards.items()
    ]
    if as_json:
        values = {
            "corpus": str(result.corpus.folder) if result.corpus else None,
            "content_hash": result.corpus.content_hash if result.corpus else None,
            "page": str(result.page) if result.page else None,
            "set_aside": set_aside,
        }
        typer.echo(json.dumps(values, ensure_ascii=False, indent=2))
    elif result.corpus is not None:
        counts = f"{result.corpus.num_images():,} images, {result.corpus.manifest.num_annotations:,} annotations"
        typer.echo(f"{result.corpus.folder}: {counts}")
        typer.echo(f"page: {result.page}")
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
