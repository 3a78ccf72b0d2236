"""`babelcap data build` of a fine-tuning corpus (`kind = "finetune"`), and its counts beside the published ones."""

import json
import sys
from pathlib import Path
from typing import Any

import typer

from babelcap.cli.leakage import benchmark_images


def build_finetune_corpus(config: Path, overrides: list[str], dry_run: bool, as_json: bool) -> None:
    from babelcap.config import load_config
    from babelcap.data.inspect.stats import skipped_of
    from babelcap.generate.finetune.build import build_finetune
    from babelcap.generate.finetune.config import FinetuneConfig

    settings = load_config(FinetuneConfig, config, overrides)
    if dry_run:
        _print_counts(settings, as_json)
        return
    result = build_finetune(settings, benchmark_images(settings.leakage.benchmarks, settings.leakage.root))
    set_aside = [
        {"stage": stage, "shard": shard, "why": why}
        for stage, shards in result.build.set_aside.items()
        for shard, why in shards.items()
    ]
    corpus = result.corpus
    left_out = {} if corpus is None else skipped_of(corpus)
    if as_json:
        values = {
            "corpus": str(corpus.folder) if corpus else None,
            "content_hash": corpus.content_hash if corpus else None,
            "left_out": left_out,
            "missing_pairs": result.missing_pairs,
            "set_aside": set_aside,
        }
        typer.echo(json.dumps(values, ensure_ascii=False, indent=2))
    elif corpus is not None:
        num_pairs = len(settings.coverage.all_pairs)
        typer.echo(
            f"{corpus.folder}: {corpus.num_images():,} images, {corpus.manifest.num_annotations:,} annotations, "
            f"{num_pairs - len(result.missing_pairs)} of {num_pairs} pairs"
        )
        for reason, number in left_out.items():
            typer.echo(f"left out: {reason}: {number:,}")
    for row in set_aside:
        typer.echo(f"set aside: {row['stage']} {row['shard']}: {row['why']}", err=True)
    if set_aside:
        typer.echo("all other shards of that stage are done; the same command tries these again", err=True)
    if result.missing_pairs:
        typer.echo(f"no training text for {', '.join(result.missing_pairs)}", err=True)
    if set_aside or result.missing_pairs:
        raise typer.Exit(1)


def _print_counts(settings: Any, as_json: bool) -> None:
    """What the paper states, what its code implies, what this configuration would give, and what was built."""
    from rich.console import Console
    from rich.table import Column, Table

    from babelcap.generate.finetune.counts import COLUMNS, counts, totals

    rows = counts(settings)
    if as_json:
        typer.echo(json.dumps({"rows": [row._asdict() for row in rows], "totals": totals(rows)}, indent=2))
        return
    table = Table("source", "task", "language", "by", *(Column(name, justify="right") for name in COLUMNS))
    for row in rows:
        table.add_row(row.source, row.task, row.language, row.by, *map(_number, row[4:]))
    table.add_section()
    for task, numbers in totals(rows).items():
        table.add_row("all", task, "", "", *map(_number, numbers.values()))
    (Console() if sys.stdout.isatty() else Console(width=120)).print(table)
    typer.echo("'configured': before test images are left out and translations dropped; 'built': what the corpus has")


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
