"""`babelcap study`: the whole method from one configuration, from a world or a corpus to laws and a report."""

import json
from collections import Counter
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
    dry_run: bool = typer.Option(False, help="Print the steps and what they take; run, submit and write nothing."),
    submit: Scheduler | None = typer.Option(None, help="Submit the steps as jobs in place of running them here."),
    workers: int | None = typer.Option(None, min=1, help="Processes of one thread each. [default: one a core]"),
    json_output: bool = JSON,
) -> None:
    """Run a study, or finish one that was stopped; a changed setting reruns only what it affects.

    \b
    babelcap study run configs/study/micro.toml
    babelcap study run configs/study/micro.toml --dry-run
    babelcap study run configs/study/paper.toml --submit slurm --dry-run
    """
    settings = _load(config, overrides, workers)
    if dry_run:
        _show_dry_run(settings, submit is not None, json_output)
    elif submit is not None:
        from babelcap.study.slurm import submit_study

        jobs = submit_study(settings)
        if json_output:
            typer.echo(json.dumps({"jobs": jobs}))
            return
        for name, job in jobs.items():
            typer.echo(f"submitted job {job}: {name}")
        if not jobs:
            typer.echo("nothing to submit: every step is done or queued")
    else:
        from babelcap.study.local import run_study

        report = run_study(settings)
        if json_output:
            typer.echo(json.dumps({"study": str(settings.output), "report": str(report)}))
        else:
            typer.echo(f"report: {report}")


@group.command()
def status(config: Path = CONFIG, overrides: list[str] = OVERRIDES, json_output: bool = JSON) -> None:
    """What of a study is done, what its jobs do, and how long the rest will take.

    \b
    babelcap study status configs/study/micro.toml
    """
    from babelcap.study.overview import describe_study, show_states

    settings = _load(config, overrides)
    described = describe_study(settings)
    if json_output:
        typer.echo(json.dumps(described))
    elif _is_large(settings):
        typer.echo(show_states(described))
    else:
        _show_kinds(described)


@group.command()
def gather(config: Path = CONFIG, overrides: list[str] = OVERRIDES, json_output: bool = JSON) -> None:
    """Put the records of the runs that have ended together, and make laws and a report of them.

    \b
    babelcap study gather configs/study/paper.toml
    """
    from babelcap.study.gather import gather_study

    page, missing = gather_study(_load(config, overrides))
    if json_output:
        typer.echo(json.dumps({"report": str(page), "missing": missing}))
        return
    if missing:
        typer.echo(f"not ended yet: {', '.join(missing)}")
    typer.echo(f"report: {page}")


@group.command(hidden=True)
def step(job: Path = typer.Argument(help="job.json of a submitted step.", show_default=False)) -> None:
    """What a job of a submitted study runs. Exit code 75: saved, start me again."""
    from babelcap.jobs.signals import REQUEUE_EXIT_CODE
    from babelcap.study.slurm import run_submitted
    from babelcap.training.loop import Requeue

    try:
        run_submitted(job)
    except Requeue as stopped:
        typer.echo(f"babelcap: {stopped}", err=True)
        raise typer.Exit(REQUEUE_EXIT_CODE) from None


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
    from babelcap.study.config import load_study

    return load_study(config, [*(overrides or []), *([f"num_workers={workers}"] if workers else [])])


def _is_large(settings: "StudyConfig") -> bool:
    """Whether it has sizes for GPUs, of which the seconds that a core takes say nothing."""
    return not all(size.startswith("micro-") for block in settings.grid for size in block.sizes)


def _show_dry_run(settings: "StudyConfig", on_slurm: bool, json_output: bool) -> None:
    from babelcap.study.overview import describe_study, first_script, show_costs

    with_costs = on_slurm or _is_large(settings)
    described = describe_study(settings, with_costs)
    if on_slurm:
        described["script"] = first_script(settings)
    if json_output:
        typer.echo(json.dumps(described))
    elif with_costs:
        typer.echo(show_costs(described))
        if on_slurm:
            typer.echo("\nscript of the first training; other jobs differ in name, resources and what they wait for:\n")
            typer.echo(described["script"])
    else:
        _show_kinds(described)


def _show_kinds(described: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.table import Table

    from babelcap.jobs.progress import duration
    from babelcap.study.display import KINDS

    table = Table("", "steps", "done", "jobs", "to do takes", "measured")
    for kind, label in KINDS.items():
        rows = [row for row in described["steps"] if row["kind"] == kind]
        if rows:
            todo = [row for row in rows if not row["done"]]
            states = Counter(row["state"] for row in todo if row["state"] != "to do")
            jobs = ", ".join(f"{number} {state}" for state, number in states.items())
            measured = f"{sum(row['measured'] for row in rows)} of {len(rows)}"
            seconds = duration(sum(row["seconds"] for row in todo))
            table.add_row(label, str(len(rows)), str(len(rows) - len(todo)), jobs, seconds, measured)
    Console().print(table)
    typer.echo(
        f"{described['name']}: {described['num_runs']} records from {described['num_steps']} steps, "
        f"{described['num_done']} done; the rest takes {duration(described['core_seconds'])} of one core, about "
        f"{duration(described['wall_seconds'])} with {described['num_workers']} workers ('measured': by rates of this "
        "study's own steps, else by defaults)"
    )
