"""What Slurm says of jobs, asked from outside of them."""

import subprocess
from collections.abc import Collection

# A job in one of these will not run again by itself.
ENDED = {"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "TIMEOUT"}


def job_states(jobs: Collection[str]) -> dict[str, str]:
    """What Slurm says of these jobs: squeue of those that it still has in mind, sacct of others where it keeps books.

    A job that neither knows is left out; all are where there is no Slurm.
    """
    wanted = set(jobs)
    found = _answers(["squeue", "--all", "--states=all", "--noheader", "--format=%A|%T"])
    if missing := sorted(wanted - found.keys()):
        found |= _answers(
            [
                "sacct",
                "--noheader",
                "--parsable2",
                "--allocations",
                "--format=JobIDRaw,State",
                "--jobs",
                ",".join(missing),
            ]
        )
    return {job: state for job, state in found.items() if job in wanted}


def _answers(command: list[str]) -> dict[str, str]:
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        return {}
    rows = [line.strip().split("|") for line in done.stdout.splitlines()] if done.returncode == 0 else []
    return {row[0]: row[1].split()[0] for row in rows if len(row) == 2 and row[1]}  # "CANCELLED by 0"
