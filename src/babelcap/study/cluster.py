"""A study whose runs are jobs of a cluster, each a training configuration with a seed and a budget.

GPU-hours = training FLOPs / (peak FLOPs of a GPU x the share of it that is reached): both are settings, not measured.
"""

import sys
from pathlib import Path
from typing import Any, Self

from pydantic import model_validator

from babelcap.config import ConfigModel, build_config, content_hash, load_config, read_values, resource, write_config
from babelcap.errors import UserError
from babelcap.jobs.slurm import submit
from babelcap.records import RunRecord, write_run_records
from babelcap.storage import read_json
from babelcap.study.finish import build_page
from babelcap.study.records import RUNS
from babelcap.training.config import TrainConfig
from babelcap.training.cost import run_cost
from babelcap.training.schedule import num_trained_steps, plan_legs


class ClusterRun(ConfigModel):
    """Every budget of a training configuration is a job of its own, unless they branch off one trunk."""

    config: Path  # relative to the study's file
    size: str  # of the model, whose folder need not be there to plan
    seeds: tuple[int, ...] = (0,)
    budgets: tuple[int, ...] = ()  # none: those of the configuration
    overrides: tuple[str, ...] = ()  # key=value


class ClusterStudy(ConfigModel):
    name: str
    output: Path = resource(Path("studies/cluster"))
    runs: tuple[ClusterRun, ...]
    peak_tflops: float = resource(989.0, gt=0)  # of one GPU in the runs' precision; 989 is an H100's in bf16, dense
    reached_share: float = resource(0.35, gt=0, le=1)  # of the peak: an assumption until measured

    @model_validator(mode="after")
    def _some_runs(self) -> Self:
        if not self.runs:
            raise ValueError("[[runs]] is empty; a cluster study lists at least one")
        return self


class ClusterJob(ConfigModel):
    name: str
    size: str
    config: TrainConfig


def is_cluster_study(path: Path) -> bool:
    return path.is_file() and "runs" in read_values(path)


def load_cluster_study(path: Path, overrides: list[str]) -> tuple[ClusterStudy, list[ClusterJob]]:
    study = load_config(ClusterStudy, path, overrides)
    jobs = []
    for run in study.runs:
        place = path.parent / run.config
        base = load_config(TrainConfig, place, list(run.overrides))
        budgets = run.budgets or base.budgets
        groups = [budgets] if base.schedule.kind == "wsd" else [(budget,) for budget in budgets]
        jobs += [_job(study, run, base, seed, group) for seed in run.seeds for group in groups]
    names = [job.name for job in jobs]
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise UserError(f"{path}: runs: job '{twice}' comes twice; give each size and seed once")
    return study, jobs


def _job(study: ClusterStudy, run: ClusterRun, base: TrainConfig, seed: int, budgets: tuple[int, ...]) -> ClusterJob:
    steps = "-".join(f"{budget:06d}" for budget in budgets)
    name = f"{run.size}.s{seed}.b{steps}"
    changes = {"name": name, "seed": seed, "budgets": budgets, "output": study.output / "runs" / name}
    config = build_config(TrainConfig, base.model_dump() | changes, str(run.config))
    return ClusterJob(name=name, size=run.size, config=config)


def plan_cluster_study(path: Path, overrides: list[str]) -> dict[str, Any]:
    """Jobs, FLOPs, GPU-hours and the scripts. Nothing is written or submitted."""
    study, jobs = load_cluster_study(path, overrides)
    plans: dict[str, dict[str, Any]] = {}
    rows = []
    for job in jobs:  # the model is counted once for each configuration: its budgets differ in samples alone
        like = content_hash(job.config.model_copy(update={"budgets": (1,), "seed": 0}))
        if like not in plans:
            plans[like] = run_cost(job.config, job.config.cluster.num_tasks, job.size)
        rows.append(_plan_job(study, job, plans[like]))
    return {
        "name": study.name,
        "num_jobs": len(rows),
        "training_flops": sum(row["training_flops"] for row in rows),
        "gpu_hours": sum(row["gpu_hours"] for row in rows),
        "peak_tflops": study.peak_tflops,
        "reached_share": study.reached_share,
        "jobs": rows,
    }


def _plan_job(study: ClusterStudy, job: ClusterJob, plan: dict[str, Any]) -> dict[str, Any]:
    cluster = job.config.cluster
    num_steps = num_trained_steps(plan_legs(job.config.budgets, job.config.schedule))
    num_samples = num_steps * job.config.batch_size
    flops = num_samples * plan["training_flops"] / plan["num_samples"]
    num_gpus = cluster.nodes * cluster.gpus_per_node
    gpu_hours = flops / (study.peak_tflops * 1e12 * study.reached_share) / 3600
    folder = job.config.output
    return {
        "name": job.name,
        "size": job.size,
        "seed": job.config.seed,
        "budgets": list(job.config.budgets),
        "P": plan["P"],
        "num_samples": num_samples,
        "training_flops": flops,
        "num_gpus": num_gpus,
        "gpu_hours": gpu_hours,
        "hours": gpu_hours / max(1, num_gpus),
        "memory_gib": plan["memory_bytes_per_process"]["total"] / 2**30,
        "script": submit(_command(folder), cluster, folder / "slurm", job.name, dry_run=True),
    }


def _command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "babelcap", "train", str(folder.resolve() / "job.json")]


def submit_cluster_study(path: Path, overrides: list[str]) -> dict[str, str]:
    """Name -> job id. A run that has all its records is not submitted again."""
    _, jobs = load_cluster_study(path, overrides)
    ids = {}
    for job in jobs:
        folder = job.config.output
        if all((folder / f"budget-{budget:06d}" / "record.json").is_file() for budget in job.config.budgets):
            continue
        write_config(folder / "job.json", job.config)
        ids[job.name] = submit(_command(folder), job.config.cluster, folder / "slurm", job.name)
    return ids


def gather_cluster_study(path: Path, overrides: list[str]) -> tuple[Path, list[str]]:
    """Laws and report of the runs that have ended; returns the report, and the names of those that have not."""
    study, jobs = load_cluster_study(path, overrides)
    records: list[RunRecord] = []
    missing: list[str] = []
    for job in jobs:
        for budget in job.config.budgets:
            name, place = f"{job.size}.s{job.config.seed}.b{budget:06d}", job.config.output / f"budget-{budget:06d}"
            if not (place / "record.json").is_file():
                missing.append(name)
                continue
            record = RunRecord.model_validate(read_json(place / "record.json"))
            records.append(record.model_copy(update={"run": name, "study": study.name, "size": job.size}))
    if not records:
        raise UserError(f"{path}: none of its {len(missing)} runs has ended yet (their records go to {study.output})")
    write_run_records(study.output / RUNS, sorted(records, key=lambda record: record.run))
    return build_page(study.output), missing


def show_cluster_plan(plan: dict[str, Any]) -> str:
    head = (
        f"{'job':<20} {'P':>8} {'samples':>12} {'FLOPs':>9} {'GPUs':>5} {'GPU-hours':>10} {'hours':>7} {'GiB/GPU':>8}"
    )
    rows = [
        f"{job['name']:<20} {job['P'] / 1e9:>7.2f}B {job['num_samples']:>12,} {job['training_flops']:>9.2e} "
        f"{job['num_gpus']:>5} {job['gpu_hours']:>10.1f} {job['hours']:>7.1f} {job['memory_gib']:>8.1f}"
        for job in plan["jobs"]
    ]
    lines = [head, *rows]
    lines.append(
        f"{plan['num_jobs']} jobs, {plan['training_flops']:.3g} FLOPs, {plan['gpu_hours']:.0f} GPU-hours, assuming "
        f"{plan['reached_share']:.0%} of {plan['peak_tflops']:g} TFLOP/s a GPU (peak_tflops, reached_share)"
    )
    lines += ["", f"script of the first job ({plan['jobs'][0]['name']}); the others differ in name and resources:", ""]
    return "\n".join([*lines, plan["jobs"][0]["script"]])
