"""Slurm: a training command as a job that survives preemption and its own time limit, and the ranks of such a job.

Slurm says "leave" with SIGTERM (preemption) or SIGUSR1 (`signal_seconds` before the time limit). The training command
then saves and exits with REQUEUE_EXIT_CODE, the job is requeued, and the same command resumes. submitit writes the
script and submits it.
"""

import math
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import model_validator

from babelcap.config import ConfigModel, plain_name, resource
from babelcap.errors import UserError
from babelcap.jobs.signals import REQUEUE_EXIT_CODE, STOP_SIGNALS, stop_requests

# What `submit` decides itself (another value would break saving, requeueing or the logs) and what has a key of its own.
RESERVED = {
    "array",
    "dependency",
    "error",
    "job-name",
    "kill-on-invalid-dep",
    "no-requeue",
    "ntasks",
    "open-mode",
    "output",
    "requeue",
    "signal",
}
RESERVED |= {"cpus-per-task", "gpus-per-node", "nodes", "ntasks-per-node", "time"}
# Ports from here on, below those that Linux gives to outgoing connections.
FIRST_PORT, NUM_PORTS = 15_000, 15_000


class ClusterConfig(ConfigModel):
    """What to ask Slurm for. Nothing here changes a run's result."""

    partition: str | None = resource(None)
    account: str | None = resource(None)
    qos: str | None = resource(None)
    constraint: str | None = resource(None)
    nodes: int = resource(1, ge=1)
    gpus_per_node: int = resource(0, ge=0)
    tasks_per_node: int | None = resource(None, ge=1)  # None: one a GPU, or one where there are none
    cpus_per_task: int = resource(1, ge=1)
    memory_gb: float | None = resource(None, gt=0)  # of each node; None: the partition's default
    time_hours: float = resource(24.0, gt=0)
    signal_seconds: int = resource(180, ge=1, le=65_535)  # before the time limit, to save in; Slurm may be 60 s early
    max_requeues: int = resource(100, ge=0)  # 0: a preempted or timed-out job stays ended
    setup: tuple[str, ...] = resource(())  # shell lines before the start, such as "module load cuda"
    extra: dict[str, bool | int | str] = resource({})  # other options of sbatch by their long names

    @property
    def num_tasks(self) -> int:
        return self.nodes * self.tasks_on_node

    @property
    def tasks_on_node(self) -> int:
        return self.tasks_per_node or self.gpus_per_node or 1

    @property
    def time_minutes(self) -> int:
        return math.ceil(self.time_hours * 60)

    @model_validator(mode="after")
    def _can_work(self) -> Self:
        if self.signal_seconds >= self.time_minutes * 60:
            raise ValueError(
                f"signal_seconds is {self.signal_seconds}, not less than the time limit of {self.time_minutes * 60} s"
            )
        reserved = {name for name in self.extra if name.replace("_", "-") in RESERVED}
        if reserved:
            raise ValueError(f"extra.{min(reserved)} is set by babelcap itself or by another key of cluster; remove it")
        words = {name: getattr(self, name) for name in ("partition", "account", "qos", "constraint")} | self.extra
        for name, value in [*words.items(), *((name, name) for name in self.extra)]:
            if not str(value).isprintable():  # a line break would put a line of its own into the script
                raise ValueError(f"{name!r} is {value!r}; options of sbatch have no line breaks or control characters")
        return self


def submit(
    command: list[str],
    cluster: ClusterConfig,
    folder: Path,
    name: str,
    dry_run: bool = False,
    after: Collection[str] = (),
) -> str:
    """Submits `command`, run once a task, and returns the job's id. Logs and the script go to `folder`.

    It starts when the jobs `after` have ended well, and is cancelled when one of them has not. With `dry_run` nothing
    is written or submitted, Slurm need not be there, and the script itself is returned.
    """
    try:
        plain_name(name)
    except ValueError as error:
        raise UserError(f"a job cannot be called {name!r}: {error}") from None
    if not str(folder).isprintable():
        raise UserError(f"{str(folder)!r}: a job's folder has no line breaks or control characters")
    try:
        import submitit
        from submitit.core.utils import FailedJobError
    except ImportError:
        raise UserError("Slurm jobs need submitit; install it with: pip install 'babelcap[cluster]'") from None

    class ScriptWriter(submitit.SlurmExecutor):
        @classmethod
        def affinity(cls) -> int:
            return 1  # "available", though srun is not: this one only writes scripts

    try:
        executor = (ScriptWriter if dry_run else submitit.SlurmExecutor)(folder)
    except RuntimeError:
        raise UserError(
            "Slurm's srun is not on this machine's PATH; submit from a login node, or use --dry-run"
        ) from None
    executor.update_parameters(**_script_parameters(command, cluster, name, after))
    if dry_run:
        return str(executor._make_submission_file_text(executor._submitit_command_str, ""))
    try:
        return str(executor.submit(TrainingTask(tuple(command), cluster.max_requeues)).job_id)
    except FailedJobError as error:
        reason = str(error).strip().splitlines() or ["no reason given"]
        raise UserError(f"sbatch refused the job: {reason[-1]}") from None


def _script_parameters(command: list[str], cluster: ClusterConfig, name: str, after: Collection[str]) -> dict[str, Any]:
    in_one_line = shlex.join(command).replace("\n", " ")
    parameters = {
        "job_name": name,
        "partition": cluster.partition,
        "account": cluster.account,
        "qos": cluster.qos,
        "constraint": cluster.constraint,
        "nodes": cluster.nodes,
        "ntasks_per_node": cluster.tasks_on_node,
        "gpus_per_node": cluster.gpus_per_node or None,
        "cpus_per_task": cluster.cpus_per_task,
        "mem": None if cluster.memory_gb is None else f"{math.ceil(cluster.memory_gb * 1024)}M",
        "time": cluster.time_minutes,
        "setup": [f"# each task runs: {in_one_line}", *cluster.setup],
        # submitit's own signal is SIGUSR2, which reaches the training process too and would kill it.
        "additional_parameters": {
            **{option: value for option, value in cluster.extra.items() if value is not False},
            "signal": f"USR1@{cluster.signal_seconds}",
            "requeue" if cluster.max_requeues else "no-requeue": True,
            **({"dependency": ":".join(["afterok", *after]), "kill-on-invalid-dep": "yes"} if after else {}),
        },
        # Since 22.05 srun does not take cpus-per-task over from sbatch. A rank that fails ends the others, which would
        # wait for it.
        "srun_args": [f"--cpus-per-task={cluster.cpus_per_task}", "--kill-on-bad-exit=1"],
    }
    return {option: value for option, value in parameters.items() if value is not None}


@dataclass(frozen=True)
class TrainingTask:
    """What every task of the job calls: runs the command, hands stop signals on to it, and has the job requeued."""

    command: tuple[str, ...]
    max_requeues: int

    def __call__(self) -> int:
        """Returns 0 when the training is done; otherwise leaves with an exit code, and submitit writes no result."""
        with stop_requests():  # so that a second signal does not end this process while it has the job requeued
            code = run_stoppable(self.command)
            if code == 0:
                return 0
            # Only the command's own word counts, not the signals that came: srun also ends the ranks of a failed one by
            # SIGTERM, and that job must fail.
            if code != REQUEUE_EXIT_CODE:
                sys.exit(code if code > 0 else 128 - code)
            # The ranks agree on the requeue exit code, so one of them speaks for all. Zero, because srun would kill the
            # speaker if another rank left with a fault.
            if os.environ.get("SLURM_PROCID", "0") != "0":
                sys.exit(0)
            sys.exit(requeue(self.max_requeues))


def run_stoppable(command: tuple[str, ...]) -> int:
    """Runs the command with stop signals handed on to it and returns its exit code (minus a signal).

    It starts with them blocked until its own `stop_requests`: one that comes during the imports waits, and is not lost.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        process = subprocess.Popen(command)
        # Where Slurm tracks processes by cgroups, its signals reach only the one it started: this one.
        before = {
            number: signal.signal(number, lambda number, frame: process.send_signal(number)) for number in STOP_SIGNALS
        }
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def requeue(max_requeues: int) -> int:
    """Asks Slurm to start this job again, unless Slurm is ending it already. Returns the task's exit code."""
    job, num_restarts = os.environ["SLURM_JOB_ID"], int(os.environ.get("SLURM_RESTART_COUNT", "0"))
    if num_restarts >= max_requeues:
        _say(f"the run is not finished, but it was requeued {num_restarts} times (cluster.max_requeues)")
        return REQUEUE_EXIT_CODE
    if (state := _state_of(job)) == "RUNNING":
        _say(f"requeueing the job (restart {num_restarts + 1})")
        done = subprocess.run(["scontrol", "requeue", job], capture_output=True, text=True)
        if done.returncode == 0:
            return 0
        if (state := _state_of(job)) == "RUNNING":
            _say(f"the job could not be requeued: {done.stderr.strip()}")
            return REQUEUE_EXIT_CODE
    if not state:
        _say("the job was not requeued: squeue does not tell its state")
        return REQUEUE_EXIT_CODE
    # A preempted job without a grace time is requeued by Slurm itself; one that its user cancelled must stay so.
    _say(f"Slurm is ending this job itself ({state}): nothing to do")
    return 0


def _state_of(job: str) -> str:
    done = subprocess.run(["squeue", "--noheader", "--jobs", job, "--format=%T"], capture_output=True, text=True)
    return done.stdout.strip()


def _say(message: str) -> None:
    print(f"babelcap: {message}", file=sys.stderr, flush=True)


def distributed_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT: torchrun's, or made from those of a Slurm step.

    Empty for a process that neither started. A batch script and a shell in an allocation have Slurm's variables too,
    but only what srun starts has a step's.
    """
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    if "RANK" in environment:
        return {name: environment[name] for name in names if name in environment}
    if "SLURM_STEP_ID" not in environment or "SLURM_PROCID" not in environment:
        return {}
    # One port for each job and step, the same in all its ranks.
    step = int(environment["SLURM_JOB_ID"]) * 31 + int(environment["SLURM_STEP_ID"])
    on_one_node = environment.get("SLURM_STEP_NUM_NODES") == "1"
    return {
        "RANK": environment["SLURM_PROCID"],
        "WORLD_SIZE": environment.get("SLURM_STEP_NUM_TASKS") or environment["SLURM_NTASKS"],
        "LOCAL_RANK": environment["SLURM_LOCALID"],
        "MASTER_ADDR": "127.0.0.1" if on_one_node else first_host(_nodes_of(environment)),
        "MASTER_PORT": environment.get("MASTER_PORT") or str(FIRST_PORT + step % NUM_PORTS),
    }


def _nodes_of(environment: Mapping[str, str]) -> str:
    return environment.get("SLURM_STEP_NODELIST") or environment["SLURM_JOB_NODELIST"]


def first_host(nodes: str) -> str:
    """The first of Slurm's short form for many names: gpu[003-005,9],cpu1 -> gpu003; rank 0 runs there."""
    first = re.match(r"(?:[^,\[]|\[[^\]]*\])+", nodes)
    if first is None:
        raise UserError(f"SLURM_JOB_NODELIST is '{nodes}', which names no host")
    return re.sub(r"\[([^\],-]*)[^\]]*\]", r"\1", first.group())
