"""A two-rank job that is interrupted in the middle ends with the result of one that is not."""

import sys
from pathlib import Path

import pytest

from babelcap.jobs.slurm import ClusterConfig, submit
from babelcap.storage import read_json

pytestmark = pytest.mark.cluster
NUM_STEPS = 150
# The partition, what happens, and who has the job started again: Slurm does not where a job leaves in its grace time.
INTERRUPTIONS = {
    "preempted at once": ("scavenge", "preempt", "Slurm is ending this job itself"),
    "preempted with a grace time": ("patient", "preempt", "requeueing the job (restart 1)"),
    "warned of the time limit": ("scavenge", "warn", "requeueing the job (restart 1)"),
}


def stand_in(folder: Path, num_steps: int = NUM_STEPS) -> list[str]:
    folder.mkdir()
    return [sys.executable, str(Path(__file__).with_name("stand_in.py")), str(folder), str(num_steps)]


def has_begun(folder: Path) -> bool:
    path = folder / "progress.txt"
    return path.exists() and int(path.read_text() or 0) > 5


def error_log(folder: Path, end: dict[str, str]) -> str:
    return (folder / f"{end['JobId']}_0_log.err").read_text()


@pytest.fixture(scope="module")
def expected(cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """The result of a job that nothing interrupts."""
    folder = tmp_path_factory.mktemp("cluster") / "run"
    end = cluster.run(stand_in(folder), folder / "slurm")
    assert (end["JobState"], end["Restarts"]) == ("COMPLETED", "0")
    return read_json(folder / "result.json")


@pytest.mark.parametrize("kind", INTERRUPTIONS)
def test_an_interrupted_job_ends_like_a_whole_one(kind: str, cluster, expected, tmp_path: Path) -> None:
    partition, interruption, message = INTERRUPTIONS[kind]
    folder = tmp_path / "run"
    end = cluster.run(
        stand_in(folder),
        folder / "slurm",
        ClusterConfig(partition=partition, tasks_per_node=2, time_hours=0.25),
        interrupt=getattr(cluster, interruption),
        has_begun=lambda: has_begun(folder),
    )
    assert (end["JobState"], end["Restarts"]) == ("COMPLETED", "1")
    assert message in error_log(folder / "slurm", end)
    first, second = (int(line) for line in (folder / "attempts.txt").read_text().split())
    assert first == 0
    assert 5 < second < NUM_STEPS
    assert read_json(folder / "result.json") == expected
    assert (expected["step"], expected["world_size"]) == (NUM_STEPS, 2)


def test_a_cancelled_job_saves_and_stays_cancelled(cluster, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = stand_in(folder, num_steps=100_000)
    end = cluster.run(command, folder / "slurm", interrupt=cluster.cancel, has_begun=lambda: has_begun(folder))
    assert (end["JobState"], end["Restarts"]) == ("CANCELLED", "0")
    cluster.wait_for("the processes to leave", lambda: cluster.call("squeue", "--noheader", "--all") == "")
    assert (folder / "state.json").exists()
    assert cluster.show(end["JobId"])["JobState"] == "CANCELLED"


def test_requeues_have_an_end(cluster, tmp_path: Path) -> None:
    config = ClusterConfig(partition="scavenge", tasks_per_node=2, time_hours=0.25, max_requeues=1)
    end = cluster.run([sys.executable, "-c", "raise SystemExit(75)"], tmp_path, config)
    assert (end["JobState"], end["ExitCode"], end["Restarts"]) == ("FAILED", "75:0", "1")
    assert "requeued 1 times (cluster.max_requeues)" in error_log(tmp_path, end)


# The first rank waits, as in a collective, until it is told to leave, and then fails too; the second one fails first.
ONE_FAILS = """
import os, sys, time
from pathlib import Path
from babelcap.jobs.signals import stop_requests

is_first, waiting = os.environ["SLURM_PROCID"] == "0", Path(sys.argv[1])
with stop_requests() as stop:
    if is_first:
        waiting.touch()
    while not (stop if is_first else waiting.exists()):
        time.sleep(0.1)
sys.exit(1 if is_first else 2)
"""


def test_a_job_that_fails_is_not_started_again(cluster, tmp_path: Path) -> None:
    end = cluster.run([sys.executable, "-c", ONE_FAILS, str(tmp_path / "waiting")], tmp_path)
    assert (end["JobState"], end["ExitCode"], end["Restarts"]) == ("FAILED", "2:0", "0")


def test_a_dry_run_is_what_is_submitted(cluster, tmp_path: Path) -> None:
    config = ClusterConfig(partition="scavenge", time_hours=0.25)
    text = submit(["true"], config, tmp_path, name="test", dry_run=True)
    end = cluster.run(["true"], tmp_path, config)
    assert end["JobState"] == "COMPLETED"
    assert (tmp_path / f"{end['JobId']}_submission.sh").read_text() == text
