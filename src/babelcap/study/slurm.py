"""Launches a study on a cluster: a Slurm job for each step that is not done, started when its inputs' jobs have ended.

    slurm.json          step's hash -> job's id; a step whose job is still queued or running is not submitted again
    slurm/NAME/         job.json (what to do), the job's script and logs
The last job puts the records together and builds the report. All of it must lie on a file system that the nodes share.
"""

import os
import sys
from pathlib import Path
from typing import Any

import torch

from babelcap.errors import UserError
from babelcap.jobs.queue import ENDED, job_states
from babelcap.jobs.slurm import submit
from babelcap.storage import read_json_object, write_json
from babelcap.study.config import StudyConfig
from babelcap.study.cost import cluster_of
from babelcap.study.finish import finish_study
from babelcap.study.graph import Step
from babelcap.study.grid import StudyGraph, study_graph
from babelcap.study.local import JOBS, claimed, write_study
from babelcap.study.steps import STEPS, run_step

REPORT = "report"  # the last job, in the place of a step's hash


def submit_study(config: StudyConfig) -> dict[str, str]:
    """Name of each step that was submitted -> its job's id."""
    study = config.output.resolve()
    graph = study_graph(config)
    with claimed(study):
        write_study(graph, study)
        jobs = read_jobs(study)
        active = {hash for hash, state in states_of(study).items() if state not in ENDED}
        submitted: dict[str, str] = {}
        waiting: dict[str, str] = {}  # hash -> job, of steps that are not done
        for step in graph.steps:
            if step.done(study) is not None:
                continue
            if step.hash not in active:
                after = [waiting[need.hash] for need in step.inputs.values() if need.hash in waiting]
                jobs[step.hash] = submitted[step.name] = _submit_step(graph, step, study, after)
                write_json(study / JOBS, jobs)  # after each, so that nothing is submitted twice
            waiting[step.hash] = jobs[step.hash]
        if not waiting:
            finish_study(graph, study)
        elif submitted or REPORT not in active:
            jobs[REPORT] = submitted[REPORT] = _submit_report(graph, study, list(waiting.values()))
            write_json(study / JOBS, jobs)
        return submitted


def _submit_step(graph: StudyGraph, step: Step, study: Path, after: list[str]) -> str:
    folder = study / "slurm" / job_name(step)
    write_json(folder / "job.json", step.job(study))
    return submit(_command(folder), cluster_of(graph.config, step.kind, step), folder, job_name(step), after=after)


def _submit_report(graph: StudyGraph, study: Path, after: list[str]) -> str:
    command = [sys.executable, "-m", "babelcap", "study", "gather", str(study)]
    return submit(command, cluster_of(graph.config, REPORT), study / "slurm" / REPORT, REPORT, after=after)


def job_name(step: Step) -> str:
    return f"{step.kind}-{step.slug}-{step.hash[:8]}"


def _command(folder: Path) -> list[str]:
    return [sys.executable, "-m", "babelcap", "study", "step", str(folder / "job.json")]


def script_of(config: StudyConfig, step: Step) -> str:
    """What would be submitted for a step, but for the jobs that it waits for."""
    folder = config.output.resolve() / "slurm" / job_name(step)
    return submit(_command(folder), cluster_of(config, step.kind, step), folder, job_name(step), dry_run=True)


def read_jobs(study: Path) -> dict[str, str]:
    found: dict[str, Any] = read_json_object(study / JOBS) if (study / JOBS).is_file() else {}
    return {str(hash): str(job) for hash, job in found.items()}


def states_of(study: Path) -> dict[str, str]:
    """Step's hash -> what Slurm says of its job; without those that Slurm knows nothing of."""
    jobs = read_jobs(study)
    states = job_states(jobs.values()) if jobs else {}
    return {hash: states[job] for hash, job in jobs.items() if job in states}


def _belongs(path: Path, study: Path, folder: Path) -> bool:
    real = study.resolve()
    return real in path.resolve().parents and real in folder.resolve().parents and ".." not in folder.parts


def run_submitted(path: Path) -> None:
    """What a job does: one step, with as many threads as it asked for."""
    job = read_json_object(path)
    texts = {name: job.get(name) for name in ("kind", "name", "hash", "study", "folder", "at", "size")}
    parts = [job.get(name) for name in ("settings", "resources", "inputs")]
    is_job = all(isinstance(text, str) for text in texts.values()) and all(isinstance(part, dict) for part in parts)
    # Its folder is emptied where the step begins anew: it is one of the study's, whose job this is.
    if not is_job or job["kind"] not in STEPS or not _belongs(path, Path(job["study"]), Path(job["folder"])):
        raise UserError(f"{path} is not the job of a step; `babelcap study run --submit slurm` writes those")
    torch.set_num_threads(int(os.environ.get("SLURM_CPUS_PER_TASK", "1")))
    run_step(job)
