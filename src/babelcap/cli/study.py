"""`babelcap study`: the whole method from one configuration, from a world or a corpus to laws and a report."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from babelcap.study.config import StudyConfig

group = typer.Typer(
    no_args_is_help=True,
    help="Run a study: a grid of runs, their measures, the laws and a report.\n\n"
    "Example: babelcap study run configs/study/micro.toml",
)
CONFIG = typer.Argument(help="TOML file of a study, or the folder of an earlier one.", show_default=False)
OVERRIDES = typer.Argument(None, metavar="[KEY=VALUE]...", help="Settings that take the file's place.")
JSON = typer.Option(False, "--json", help="Print the answer as JSON.")


class Scheduler(StrEnum):
    SLURM = "slurm"


@group.command()
def run(
    config: Path = CONFIG,
    overrides: list[str] = OVERRIDES,
    dry_run: bool = typer.Option(False, help="Print the steps and how long they will take; run nothing."),
    submit: Scheduler | None = typer.Option(None, help="Submit the runs of a cluster study as jobs."),
    workers: int | None = typer.Option(None, min=1, help="Processes of one thread each. [default: one a core]"),
    json_output: bool = JSON,
) -> None:
    """Run a study, or finish one that was stopped; a changed setting reruns only what it affects.

    \b
    babelcap study run configs/study/micro.toml
    babelcap study run configs/study/micro.toml --dry-run
    babelcap study run configs/study/paper.toml --submit slurm --dry-run
    """
    from babelcap.study.cluster import is_cluster_study

    if is_cluster_study(config):
        _run_on_cluster(config, overrides or [], submit is not None, dry_run, json_output)
        return
    settings = _load(config, overrides, workers)
    if submit is not None:
        from babelcap.errors import UserError

        raise UserError(f"--submit: {config} is a study of this machine; a cluster study lists its runs in [[runs]]")
    from babelcap.study.runner import describe_plan, run_study

    if dry_run:
        _show_plan(describe_plan(settings), json_output)
        return
    report = run_study(settings)
    if json_output:
        typer.echo(json.dumps({"study": str(settings.output), "report": str(report)}))
    else:
        typer.echo(f"report: {report}")


@group.command()
def status(config: Path = CONFIG, overrides: list[str] = OVERRIDES, json_output: bool = JSON) -> None:
    """What of a study is done, and how long the rest will take.

    \b
    babelcap study status configs/study/micro.toml
    """
    from babelcap.study.runner import describe_plan

    _show_plan(describe_plan(_load(config, overrides)), json_output)


@group.command()
def gather(config: Path = CONFIG, overrides: list[str] = OVERRIDES, json_output: bool = JSON) -> None:
    """Put the records of a cluster study's finished jobs together, and make laws and a report of them.

    \b
    babelcap study gather configs/study/paper.toml
    """
    from babelcap.errors import UserError
    from babelcap.study.cluster import gather_cluster_study, is_cluster_study

    if not is_cluster_study(config):
        raise UserError(f"{config} lists no [[runs]]; a study of this machine puts its records together when it is run")
    page, missing = gather_cluster_study(config, overrides or [])
    if json_output:
        typer.echo(json.dumps({"report": str(page), "missing": missing}))
        return
    if missing:
        typer.echo(f"not ended yet: {', '.join(missing)}")
    typer.echo(f"report: {page}")


@group.command()
def report(
    folder: Path = typer.Argument(help="Folder of a study with its runs.jsonl.", show_default=False),
    json_output: bool = JSON,
) -> None:
    """Build the report again from a study's records, without running anything.

    \b
    babelcap study report studies/micro
    """
    from babelcap.study.finish import build_page

    page = build_page(folder)
    typer.echo(json.dumps({"report": str(page)}) if json_output else f"report: {page}")


def _load(config: Path, overrides: list[str] | None, workers: int | None = None) -> "StudyConfig":
    from babelcap.config import load_config
    from babelcap.study.config import StudyConfig

    given = [*(overrides or []), *([f"num_workers={workers}"] if workers else [])]
    if config.is_dir():
        config = config / "config.json"
    return load_config(StudyConfig, config, given)


def _show_plan(plan: dict[str, Any], json_output: bool) -> None:
    if json_output:
        typer.echo(json.dumps(plan))
        return
    from rich.console import Console
    from rich.table import Table

    from babelcap.jobs.progress import duration
    from babelcap.study.display import KINDS

    table = Table("", "steps", "done", "to do takes", "measured")
    for kind, label in KINDS.items():
        rows = [row for row in plan["steps"] if row["kind"] == kind]
        if rows:
            todo = [row for row in rows if not row["done"]]
            measured = sum(row["measured"] for row in rows)
            seconds = duration(sum(row["seconds"] for row in todo))
            table.add_row(label, str(len(rows)), str(len(rows) - len(todo)), seconds, f"{measured} of {len(rows)}")
    Console().print(table)
    typer.echo(
        f"{plan['name']}: {plan['num_runs']} records from {plan['num_steps']} steps, {plan['num_done']} done; "
        f"the rest takes {duration(plan['core_seconds'])} of one core, about {duration(plan['wall_seconds'])} with "
        f"{plan['num_workers']} workers ('measured': by rates of this study's own steps, else by defaults)"
    )


def _run_on_cluster(config: Path, overrides: list[str], submit: bool, dry_run: bool, json_output: bool) -> None:
    from babelcap.study.cluster import plan_cluster_study, show_cluster_plan, submit_cluster_study

    plan = plan_cluster_study(config, overrides)
    if dry_run or not submit:
        typer.echo(json.dumps(plan) if json_output else show_cluster_plan(plan))
        return
    jobs = submit_cluster_study(config, overrides)
    if json_output:
        typer.echo(json.dumps({"jobs": jobs}))
    for name, job in {} if json_output else jobs.items():
        typer.echo(f"submitted job {job}: {name}")
