"""The worker processes: values and errors come back, a death is reported and mended, nobody outlives the parent."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from babelcap.errors import UserError
from babelcap.jobs.pool import Outcome, Pool

JOBS = """
import os, signal, sys, time
from babelcap.errors import UserError

def run(job):
    if job["do"] == "mistake":
        raise UserError("the field is wrong")
    if job["do"] == "fault":
        raise ValueError("not like this")
    if job["do"] == "full":
        with open("/dev/full", "w") as file:
            file.write("x")
    if job["do"] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if job["do"] == "sleep":
        open(job["path"], "w").write(str(os.getpid()))
        time.sleep(600)
    return os.environ["OMP_NUM_THREADS"]
"""
PARENT = """
import sys
from pathlib import Path
from babelcap.jobs.pool import Pool
if __name__ == "__main__":
    with Pool(1, "pool_jobs:run", Path(sys.argv[1])) as pool:
        pool.start({"do": "sleep", "path": sys.argv[2]})
        while True:
            pool.wait(60)
"""

# `Thread.start` waits for ever where the new thread has no memory to say that it began.
WITHOUT_THREADS = """
import multiprocessing, os, sys, threading
from babelcap.jobs.pool import worker_main
threading.Thread.start = lambda self: os._exit(3)
ours, theirs = multiprocessing.Pipe()
ours.send({"do": "value"})
ours.close()
worker_main(theirs, "pool_jobs:run", os.getppid(), sys.argv[1])
"""


@pytest.fixture
def jobs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "pool_jobs.py").write_text(JOBS)
    monkeypatch.syspath_prepend(str(tmp_path))  # which spawned processes take over
    return tmp_path


def outcomes(pool: Pool, number: int) -> list[Outcome]:
    found: list[Outcome] = []
    until = time.monotonic() + 60
    while len(found) < number and time.monotonic() < until:
        found += pool.wait(1.0)
    return found


def test_values_errors_and_deaths_come_back(jobs: Path) -> None:
    with Pool(1, "pool_jobs:run", jobs / "logs") as pool:
        found = {}
        for what in ("value", "mistake", "fault", "die", "again"):
            pool.start({"do": what})
            assert pool.num_idle == 0
            (found[what],) = outcomes(pool, 1)
        assert found["value"].value == found["again"].value == "1"
        assert (found["mistake"].error, found["mistake"].trace) == ("the field is wrong", "")
        assert found["fault"].error == "ValueError: not like this"
        assert "Traceback" in found["fault"].trace
        assert found["die"].died == "was ended by SIGKILL; out of memory?"
        processes = [worker.process for worker in pool.workers]
    assert not any(process.is_alive() for process in processes)
    assert "not like this" in (jobs / "logs" / "worker-0.log").read_text()


def test_workers_that_cannot_start_are_an_error(jobs: Path) -> None:
    with Pool(1, "no_such_module:run", jobs / "logs") as pool, pytest.raises(UserError, match="die before"):
        outcomes(pool, 1)


def test_workers_leave_when_their_parent_is_killed(jobs: Path) -> None:
    (jobs / "pool_parent.py").write_text(PARENT)
    told = jobs / "pid"
    parent = subprocess.Popen([sys.executable, str(jobs / "pool_parent.py"), str(jobs / "logs"), str(told)])
    until = time.monotonic() + 60
    while not (told.is_file() and told.read_text()) and time.monotonic() < until:
        time.sleep(0.05)
    worker = int(told.read_text())
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    while _runs(worker) and time.monotonic() < until:
        time.sleep(0.05)
    assert not _runs(worker)


def _runs(process: int) -> bool:
    """An orphan that nobody reaps stays as a zombie, which runs no more."""
    try:
        os.kill(process, 0)
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (ProcessLookupError, FileNotFoundError):
        return False


def test_an_error_comes_back_where_the_log_cannot_be_written(jobs: Path) -> None:
    (jobs / "logs").mkdir()
    (jobs / "logs" / "worker-0.log").symlink_to("/dev/full")
    with Pool(1, "pool_jobs:run", jobs / "logs") as pool:
        pool.start({"do": "full"})
        (full,) = outcomes(pool, 1)
        pool.start({"do": "fault"})
        (found,) = outcomes(pool, 1)
    assert (full.error or "").startswith("the disk is full; nothing was replaced")
    assert (found.error, found.died) == ("ValueError: not like this", None)


def test_a_worker_waits_for_no_thread_to_begin(jobs: Path) -> None:
    path = os.pathsep.join([str(jobs), *filter(None, sys.path)])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", WITHOUT_THREADS, str(jobs / "log")]
    assert subprocess.run(command, env=environment, check=False, timeout=60).returncode == 0
    assert (jobs / "log").read_text() == ""
