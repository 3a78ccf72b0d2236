"""Killed at random moments of every stage, under Ray: the same command ends with the bytes of the local engine.

One Ray serves all runs, as a cluster would: a killed run leaves workers behind, which Ray ends a moment later,
while the next run may have begun. A third of the kills hit a worker alone, which Ray replaces.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from torture.kill_stages import (
    NUM_KILLS,
    STAGES,
    Builder,
    check_same,
    copy_build,
    kill_in_stage,
    make_builder,
    stage_files,
)
from torture.killing import workers_of

pytest.importorskip("ray", reason="Ray is not installed (pip install 'babelcap[cluster]')")

pytestmark = pytest.mark.slow
# The token is these tests' own: a Ray refuses whoever does not have its token.
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
ENVIRONMENT = os.environ | {"RAY_USAGE_STATS_ENABLED": "0"} | TOKEN
KEEPER = """
import ray, sys
ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, configure_logging=False)
print(ray.get_runtime_context().gcs_address, flush=True)
sys.stdin.read()
"""


class Cluster(NamedTuple):
    address: str
    pid: int  # of the process that keeps it


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    command = [sys.executable, "-W", "ignore", "-c", KEEPER]
    keeper = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert keeper.stdout is not None
    yield Cluster(keeper.stdout.readline().strip(), keeper.pid)
    keeper.communicate(timeout=120)


@pytest.fixture(scope="module")
def ray_builder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Builder]:
    found = make_builder(tmp_path_factory.mktemp("builder") / "log.txt", "ray", "ray.data", environment=ENVIRONMENT)
    yield found
    found.close()


def ray_workers(pid: int) -> list[int]:
    """Processes below this one that run a stage's tasks; not Ray's agents, whose death ends its node."""
    found = []
    for child in workers_of(pid):
        found += ray_workers(child)
        with contextlib.suppress(OSError):
            name = Path(f"/proc/{child}/cmdline").read_bytes()
            found += [child] if name.startswith(b"ray::") and b"Map" in name else []
    return found


@pytest.mark.parametrize("stage", STAGES)
def test_killed_twenty_times_in_every_stage_under_ray(
    ray_builder: Builder, whole: Path, small: Callable[..., Path], cluster: Cluster, tmp_path: Path, stage: str
) -> None:
    folder = tmp_path / "ray"
    copy_build(whole, folder)
    small(folder, engine="ray", address=cluster.address)
    kills = kill_in_stage(ray_builder, whole, folder, stage, NUM_KILLS, lambda _: ray_workers(cluster.pid))
    print(f"{stage}: {kills.num_hits} kills while it had files to make, {kills.num_workers} of a worker", flush=True)
    assert kills.num_hits >= NUM_KILLS // 2


def test_a_whole_ray_killed_while_it_builds(whole: Path, small: Callable[..., Path], tmp_path: Path) -> None:
    """Ray and all its processes at once, as where a machine goes down, from the first stage on; by the command."""
    folder = small(tmp_path / "ray", engine="ray")
    for stage in ("clean", "translate", "search"):
        command = [sys.executable, "-W", "ignore", "-m", "babelcap", "data", "build", str(folder / "build.json")]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True, env=ENVIRONMENT
        )
        while process.poll() is None and not stage_files(folder, stage):
            time.sleep(0.001)
        assert process.poll() is None
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    check_same(whole, folder)
