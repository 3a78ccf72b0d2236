"""`babelcap train`: a run from its configuration, here, under torchrun, or submitted to Slurm."""

import json
import os
import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from babelcap.training.config import TrainConfig
    from babelcap.training.run import Evaluate


class Scheduler(StrEnum):
    SLURM = "slurm"


def train(
    config: Path = typer.Argument(
        help="TOML file of the run, or the config.json of an earlier one.", show_default=False
    ),
    overrides: list[str] = typer.Argument(None, metavar="[KEY=VALUE]...", help="Settings that take the file's place."),
    evaluate: bool = typer.Option(
        True, help="Measure the loss before and after training, on the corpus' split eval, else val, else test."
    ),
    submit: Scheduler | None = typer.Option(None, help="Submit the run as a job in place of running it here."),
    dry_run: bool = typer.Option(False, help="Print what the run would take, and the job's script; run nothing."),
    size: str = typer.Option(
        None, help="With --dry-run: the model's size, where its folder is not there and its path does not say it."
    ),
    export: Path = typer.Option(None, help="Train nothing: write the captioner that the last checkpoint holds here."),
    json_output: bool = typer.Option(False, "--json", help="Print the records (or the plan) as JSON."),
) -> None:
    """Train a captioner: continued pretraining on an incomplete corpus, or fine-tuning.

    The same command goes on where a run was stopped, and ends with the same result. Ctrl-C saves first; a second one
    leaves at once. Exit code 75 means: saved, start me again.

    \b
    babelcap train configs/pretrain/0.4B.toml data.corpus=corpora/cc12m budgets=[500,2000]
    torchrun --nproc-per-node 8 -m babelcap train configs/pretrain/3.5B.toml
    babelcap train configs/pretrain/11.2B.toml --submit slurm cluster.partition=gpu
    """
    from babelcap.config import load_config
    from babelcap.training.config import TrainConfig

    settings = load_config(TrainConfig, config, overrides or [])
    command = [sys.executable, "-m", "babelcap", "train", str(config.resolve()), *(overrides or [])]
    command += [] if evaluate else ["--no-evaluate"]
    if export is not None:
        from babelcap.training.export import export_checkpoint

        typer.echo(f"{export}: step {export_checkpoint(settings, export)}")
    elif dry_run:
        _show_plan(settings, command, size, submit is not None, json_output)
    elif submit is not None:
        from babelcap.jobs.slurm import submit as submit_job

        job = submit_job(command, settings.cluster, settings.output / "slurm", settings.name)
        typer.echo(json.dumps({"job": job}) if json_output else f"submitted job {job}; logs in {settings.output}/slurm")
    else:
        _run(settings, evaluate, json_output)


def _run(settings: "TrainConfig", evaluate: bool, json_output: bool) -> None:
    from babelcap.jobs.signals import INTERRUPT_EXIT_CODE, REQUEUE_EXIT_CODE
    from babelcap.training.loop import Requeue
    from babelcap.training.run import train, with_coverage

    settings = with_coverage(settings)
    try:
        records = train(settings, _evaluation(settings) if evaluate else None)
    except Requeue as stopped:
        typer.echo(f"babelcap: {stopped}", err=True)
        code = INTERRUPT_EXIT_CODE if stopped.signal_name == "SIGINT" else REQUEUE_EXIT_CODE
        raise typer.Exit(code) from None
    except KeyboardInterrupt:
        typer.echo("babelcap: left at once; the same command goes on from the last checkpoint", err=True)
        raise typer.Exit(INTERRUPT_EXIT_CODE) from None
    if not _is_first():
        return
    for record in records:
        done = f"{record.run}: {record.S:,} samples in {record.seconds:.0f} s"
        typer.echo(record.model_dump_json() if json_output else done)
    if not json_output:
        typer.echo(str(settings.output))


def _evaluation(settings: "TrainConfig") -> "Evaluate | None":
    """The loss on the corpus' eval split, or on what stands for one; says on what, and what is not there."""
    from dataclasses import replace

    from babelcap.data.store.store import Corpus
    from babelcap.evaluation.loss import LossEvaluation, loss_evaluation
    from babelcap.evaluation.splits import CANDIDATES, find_split

    corpus = Corpus.open(settings.data.corpus)
    stopping = settings.stopping
    split = find_split(corpus, stopping.split if stopping is not None else None)
    if split == settings.data.split:
        split = None  # what is trained on says nothing
    wanted = settings.coverage.evaluated_pairs
    found = [pair for pair in wanted if split is not None and corpus.counts(split).get(pair)]
    if split is None or not found:
        why = f"it has none of the splits {', '.join(CANDIDATES)} (it has: {', '.join(corpus.splits)})"
        if split is not None:
            why = f"split '{split}' has none of the pairs {', '.join(map(str, wanted))}"
        _say(f"{corpus.folder}: no evaluation, because {why}")
        return None
    lacking = [str(pair) for pair in wanted if pair not in found]
    rest = f"; not there: {', '.join(lacking)}" if lacking else ""
    _say(f"evaluating on split '{split}': {', '.join(map(str, found))}{rest}")
    options = LossEvaluation(settings.data, split=split)
    if stopping is not None:  # what decides is the loss with the own picture
        options = replace(options, limit=stopping.num_samples, shuffled=False)
    return loss_evaluation(corpus.folder, settings.coverage, options)


def _say(line: str) -> None:
    if _is_first():
        typer.echo(line, err=True)


def _is_first() -> bool:
    from babelcap.jobs.slurm import distributed_environment

    return distributed_environment(os.environ).get("RANK", "0") == "0"


def _show_plan(
    settings: "TrainConfig", command: list[str], size: str | None, on_slurm: bool, json_output: bool
) -> None:
    from babelcap.jobs.slurm import submit
    from babelcap.training.cost import how_to_make, run_cost

    num_processes = settings.cluster.num_tasks if on_slurm else int(os.environ.get("WORLD_SIZE", "1"))
    plan = run_cost(settings, num_processes, size)
    if on_slurm:
        plan["script"] = submit(command, settings.cluster, settings.output / "slurm", settings.name, dry_run=True)
    if json_output:
        typer.echo(json.dumps(plan))
        return
    legs = ", ".join(f"{leg['name']} (steps {leg['start']} to {leg['end']})" for leg in plan["legs"])
    memory = ", ".join(f"{part} {number / 2**30:.2f}" for part, number in plan["memory_bytes_per_process"].items())
    if plan["size"] is not None and not Path(settings.model).exists():
        advice = how_to_make(settings.model)
        typer.echo(f"{settings.model}: no such folder; planned by size {plan['size']}; {advice}", err=True)
    typer.echo(f"run        {plan['name']}: P {plan['P']:,}, trained {plan['Pt']:,}")
    typer.echo(f"legs       {legs}")
    typer.echo(f"steps      {plan['num_steps']:,} of {settings.batch_size:,} samples: {plan['num_samples']:,} samples")
    typer.echo(f"tokens     at most {plan['max_target_tokens']:,} target tokens")
    typer.echo(f"compute    {plan['training_flops']:.3g} FLOPs (forward and backward)")
    typer.echo(f"processes  {num_processes}")
    typer.echo(f"memory     GiB of each process: {memory}")
    if on_slurm:
        typer.echo(f"\n{plan['script']}")
