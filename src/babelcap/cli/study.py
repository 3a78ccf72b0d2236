"""`babelcap study`: the whole method from one configuration, from a world or a corpus to laws and a report."""

import json
from collections import Counter
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from babelcap.errors import UserError

if TYPE_CHECKING:
    from babelcap.records import RunRecord
    from babelcap.study.config import StudyConfig

group = typer.Typer(
    no_args_is_help=True,
    help="Run a study: a grid of runs, their measures, the laws and a report.\n\n"
    "Example: babelcap study run configs/study/micro.toml",
)
CONFIG = typer.Argument(help="TOML file of a study, or the folder of an earlier one.", show_default=False)
OVERRIDES = typer.Argument(None, metavar="[KEY=VALUE]...", help="Settings that take the file's place.")
WHERE = typer.Option([], "--where", help="Only some of the records, as size=NAME or size!=NAME.")
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


@group.command()
def predict(
    config: Path = CONFIG,
    overrides: list[str] = OVERRIDES,
    output: Path | None = typer.Option(None, "--output", "-o", help="File. [default: in the study's folder]"),
    records: Path | None = typer.Option(None, help="runs.jsonl of another study, to predict from beside this one's."),
    where: list[str] = WHERE,
    workers: int | None = typer.Option(None, min=1, help="Processes of one thread each. [default: one a core]"),
    json_output: bool = JSON,
) -> None:
    """Predict the runs that have not been run from those that have: losses, their parts, objects and colours.

    Written with the time and a hash of the records it is made of, never written over, and refused where every run has
    its record. `babelcap study judge` holds it against what was measured afterwards.

    \b
    babelcap study predict configs/study/small.toml -o results/small/prediction.json
    babelcap study predict configs/study/xl.toml --records results/small/runs.jsonl --where 'size!=micro-gemma-xl'
    """
    from babelcap.laws.runs import MAIN
    from babelcap.study.prediction import predict_study

    if where and records is None:
        raise UserError("--where chooses among the runs of --records; a study's own are all taken")
    others = [] if records is None else [run for run in _records_where(records, where) if run.kind == MAIN]
    path = predict_study(_load(config, overrides, workers), output, others)
    typer.echo(json.dumps({"prediction": str(path)}) if json_output else f"prediction: {path}")


@group.command()
def judge(
    prediction: Path = typer.Argument(help="File of an earlier `study predict`.", show_default=False),
    records: Path = typer.Argument(help="runs.jsonl of the study, with the runs that came after.", show_default=False),
    where: list[str] = WHERE,
    json_output: bool = JSON,
) -> None:
    """Hold a prediction against what was measured: errors, how many intervals held, and guesses that need no law.

    The error of a loss is relative, that of a rate (objects, colours) a difference in points. Skill is 1 less the error
    over that of the better of the two guesses without a law.

    \b
    babelcap study judge results/small/prediction.json results/small/runs.jsonl
    """
    from rich.console import Console
    from rich.table import Table

    from babelcap.laws.ahead import read_prediction
    from babelcap.laws.judged import judge as judge_prediction

    given = read_prediction(prediction)
    found = judge_prediction(given, _records_where(records, where))
    if json_output:
        typer.echo(json.dumps([row.model_dump(mode="json") for row in found]))
        return
    names = ("runs", "in interval", "error", "through loss", "law without T", "last budget", "nearest size", "skill")
    table = Table("measure", "", *names)
    for row in found:
        guesses = (row.error_law_ps, row.error_last_budget, row.error_nearest_size)
        shown = [_percent(error) for error in (row.error, row.error_through_loss, *guesses)]
        skill = "-" if row.skill is None else f"{row.skill:.2f}"
        table.add_row(row.measure, row.target, str(row.num_runs), f"{row.num_inside}", *shown, skill)
    Console(width=150).print(table)
    inside, total = sum(row.num_inside for row in found), sum(row.num_runs for row in found)
    typer.echo(f"{inside} of {total} values lie in their intervals of {given.confidence:.0%}; predicted {given.time}")


def _records_where(path: Path, where: list[str]) -> "list[RunRecord]":
    from babelcap.laws import parse_map
    from babelcap.laws.runs import check_fields, differing
    from babelcap.records import read_run_records

    wanted = parse_map(",".join(where), "where", "num_steps=1200")
    check_fields(wanted)
    return [record for record in read_run_records(path) if differing(record, wanted) is None]


def _percent(error: float | None) -> str:
    return "-" if error is None else f"{100 * error:.1f} %"


@group.command()
def keep(
    config: Path = CONFIG,
    overrides: list[str] = OVERRIDES,
    output: Path = typer.Option(..., "--output", "-o", help="Folder for what is kept."),
    json_output: bool = JSON,
) -> None:
    """Keep what an ended study is judged by: records, settings, gallery, laws, times, and every caption.

    A few megabytes in place of gigabytes of checkpoints. `babelcap report build` makes the page of it, and `babelcap
    study rejudge` judges its captions anew when the rule has changed.

    \b
    babelcap study keep configs/study/small.toml -o results/small
    """
    from babelcap.study.kept import keep_study

    names = keep_study(_load(config, overrides), output)
    typer.echo(json.dumps({"folder": str(output), "files": names}) if json_output else f"{output}: {', '.join(names)}")


@group.command()
def rejudge(
    folder: Path = typer.Argument(help="Folder of `babelcap study keep`.", show_default=False),
    json_output: bool = JSON,
) -> None:
    """Judge the captions of a kept study by today's rule, and write its records and gallery anew; nothing is trained.

    \b
    babelcap study rejudge results/small
    """
    from babelcap.study.kept import rejudge as judge_anew

    found = judge_anew(folder)
    if json_output:
        typer.echo(json.dumps(found._asdict()))
        return
    typer.echo(
        f"{found.num_captions:,} captions judged: {found.num_changed} values of {found.num_runs} runs are others now; "
        f"babelcap report build {folder} makes the page"
    )


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
        "study's own steps, else by defaults). Budgets that share a trunk: trainings see "
        f"{described['trained_share']:.0%} of the samples of one training for each budget"
    )
