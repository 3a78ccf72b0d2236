"""The Slurm that `cluster/with_slurm.sh` starts around these tests, as seen from them."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from babelcap.jobs.slurm import ClusterConfig, submit

FINAL = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY"}
PATIENCE_SECONDS = 300
TWO_RANKS = ClusterConfig(partition="scavenge", tasks_per_node=2, time_hours=0.25)


class Cluster:
    """Asks and tells Slurm through its own commands."""

    def call(self, *command: str) -> str:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    def show(self, job: str) -> dict[str, str]:
        return dict(re.findall(r"(\w+)=(\S*)", self.call("scontrol", "--oneliner", "show", "job", job)))

    def run(
        self,
        command: list[str],
        folder: Path,
        config: ClusterConfig = TWO_RANKS,
        *,
        interrupt: Callable[[str], object] | None = None,
        has_begun: Callable[[], bool] = lambda: True,
    ) -> dict[str, str]:
        """Submits the command and follows the job. Logs and script lie in `folder`."""
        return self.follow(submit(command, config, folder, name="test"), folder, interrupt, has_begun)

    def follow(
        self, job: str, folder: Path, interrupt: Callable[[str], object] | None, has_begun: Callable[[], bool]
    ) -> dict[str, str]:
        """Returns what Slurm says of the job at its end. `interrupt` is called with its id once it `has_begun`."""
        try:
            if interrupt is not None:
                self.wait_for("the job to begin", lambda: has_begun() or self.show(job)["JobState"] in FINAL)
                interrupt(job)
            self.wait_for("the job to end", lambda: self.show(job)["JobState"] in FINAL)
            return self.show(job)
        finally:
            self.call("scancel", "--quiet", job)
            for log in sorted(folder.glob(f"{job}_*_log.*")):  # shown by pytest where a test fails
                print(f"--- {log.name}\n{log.read_text()}")

    def wait_for(self, what: str, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < end, f"waited {PATIENCE_SECONDS} s for {what}\n{self.call('squeue', '--all')}"
            time.sleep(0.25)

    def preempt(self, job: str) -> None:
        """By a job of two seconds that needs the whole node and comes first. Slurm then sends SIGCONT and SIGTERM."""
        self.hold(job)
        options = ["--partition=urgent", "--ntasks=2", "--time=1", "--output=/dev/null"]
        self.call("sbatch", *options, "--wrap", "sleep 2")

    def warn(self, job: str) -> None:
        """What Slurm sends before the time limit."""
        self.hold(job)
        self.call("scancel", "--signal=USR1", job)
        self.call("scancel", "--signal=CONT", job)

    def hold(self, job: str) -> None:
        """Stops the job's processes, so that a short job is still there when it is interrupted, on any machine."""
        self.call("scancel", "--signal=STOP", job)

    def cancel(self, job: str) -> None:
        self.call("scancel", job)


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    if "SLURM_CONF" not in os.environ or shutil.which("sbatch") is None:
        pytest.fail("no Slurm is running for these tests; start them with: make test-cluster")
    return Cluster()
