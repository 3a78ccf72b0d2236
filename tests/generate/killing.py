"""Killing a build at random moments of a stage and starting it again: what the tests of both engines share.

A process that has imported everything forks for each run, and its workers fork too (they are spawned otherwise): so
a run costs half a second. Kills hit all of its processes, or one worker, while the stage has shards to make.
"""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

NOT_COMPARED = ["logs", "attempts", "checksums.json", ".lock", "index"]  # of a run, or derived
COMMANDS = {
    "clean": ["read", "clean", "repeats", "unique"],
    "caption": ["caption"],
    "translate": ["translate", "translate_eval"],
    "embed": ["embed_texts", "embed_images"],
    "align": ["search", "select", "align"],
    "assemble": ["assemble"],
}
COMMAND_OF = {stage: command for command, stages in COMMANDS.items() for stage in stages}
STAGES = list(COMMAND_OF)
NUM_KILLS = 20
PARENT = """
import importlib, multiprocessing, os, sys
from types import SimpleNamespace
import pyarrow.dataset  # what reading Parquet would import, pandas with it
import babelcap.jobs.pool as pool
for name in sys.argv[1:]:
    importlib.import_module(name)
from babelcap.config import load_config
from babelcap.generate.build import build_dataset
from babelcap.generate.config import BuildConfig
for name in ("clean", "unique", "text_sources", "search", "backends.world"):
    importlib.import_module("babelcap.generate." + name)
pool.STOP_SECONDS = 0.05  # forked, they hold each other's connections open and do not see them close
pool.multiprocessing = SimpleNamespace(get_context=lambda _: multiprocessing.get_context("fork"))
for line in sys.stdin:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        os.dup2(2, 1)  # Ray tells of dead workers on the standard output, which is for pids here
        os.nice(5)  # whoever is to kill it must not be slower
        try:
            path, until = line.split()
            os._exit(3 if build_dataset(load_config(BuildConfig, path), until=until).build.set_aside else 0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(4)
    print(pid, flush=True)
    print(os.waitpid(pid, 0)[1], flush=True)
"""


class Kills(NamedTuple):
    """That hit while there were files to make; of these, of a worker alone."""

    num_hits: int
    num_workers: int


class Builder:
    """Runs builds of configuration files, one after the other."""

    def __init__(self, *modules: str, environment: Mapping[str, str] = os.environ) -> None:
        """`modules` are imported once for all runs."""
        command = [sys.executable, "-W", "ignore", "-c", PARENT, *modules]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(environment)
        )

    def start(self, folder: Path, until: str = "assemble") -> int:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{folder / 'build.json'} {until}\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def end(self) -> int:
        """The exit status, as `waitpid` gives it."""
        assert self.process.stdout is not None
        return int(self.process.stdout.readline())


def stage_files(folder: Path, stage: str) -> list[Path]:
    """What makes a stage done, and is taken away to have it run again."""
    if stage == "assemble":
        return [*sorted((folder / "out").glob("annotations/*.parquet")), folder / "out" / "corpus.json"]
    return sorted(path for found in (folder / "work").glob(f"{stage}-*") for path in found.glob("*.parquet"))


def has_begun(folder: Path, stage: str, files: list[Path]) -> bool:
    if stage == "assemble":
        return any((folder / "out").rglob(".*.partial")) or any(path.exists() for path in files)
    return any(any(found.iterdir()) for found in (folder / "work" / "attempts").glob(f"{stage}-*")) or any(
        path.exists() for path in files
    )


def take_away(whole: Path, folder: Path, stage: str, rng: random.Random) -> list[Path]:
    """Removes most of what a stage made; these files, and those that are missing already."""
    expected = [folder / path.relative_to(whole) for path in stage_files(whole, stage)]
    files = [path for path in expected if not path.exists() or path.name == "corpus.json" or rng.random() < 0.7]
    files = files or expected[:1]
    for path in files:
        path.unlink(missing_ok=True)
    for left in (folder / "work" / "attempts").glob(f"{stage}-*"):  # would say that it has begun
        shutil.rmtree(left)
    return files


def run_stage_again(
    builder: Builder, whole: Path, folder: Path, stage: str, rng: random.Random
) -> tuple[int, list[Path]]:
    """Takes most of a stage's files away and starts the build; returns when the stage has begun to make them."""
    files = take_away(whole, folder, stage, rng)
    pid = builder.start(folder, COMMAND_OF[stage])
    until = time.monotonic() + 60
    while not has_begun(folder, stage, files) and Path(f"/proc/{pid}/task").exists() and time.monotonic() < until:
        time.sleep(0.0005)
    return pid, files


def workers_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def check_same(whole: Path, folder: Path) -> None:
    for name in ("out", "work"):
        excluded = [f"--exclude={entry}" for entry in NOT_COMPARED]
        command = ["diff", "-r", *excluded, str(whole / name), str(folder / name)]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (found.returncode, found.stdout) == (0, "")
        assert not list((folder / name).rglob("*.partial"))


def copy_build(whole: Path, folder: Path) -> None:
    shutil.copytree(whole, folder, symlinks=True)
    values = (folder / "build.json").read_text().replace(f"{whole}/", f"{folder}/")
    (folder / "build.json").write_text(values)


def kill_in_stage(
    builder: Builder,
    whole: Path,
    folder: Path,
    stage: str,
    num_kills: int,
    find_workers: Callable[[int], list[int]] = workers_of,
) -> Kills:
    """How many kills hit the stage while it had files to make; then the build is finished and compared."""
    rng = random.Random(stage)
    num_hits = num_workers = 0
    for _ in range(3 * num_kills):
        pid, files = run_stage_again(builder, whole, folder, stage, rng)
        # The moment is drawn by what is done of the stage, and some milliseconds: machines differ in speed.
        num_done = rng.randrange(len(files))
        while sum(path.exists() for path in files) < num_done and Path(f"/proc/{pid}/task").exists():
            time.sleep(0.0002)
        time.sleep(rng.uniform(0, 0.005))
        is_hit = not all(path.exists() for path in files)
        num_hits += is_hit
        workers = find_workers(pid)
        goes_on = bool(workers) and rng.random() < 0.3  # where a worker alone is killed
        with contextlib.suppress(ProcessLookupError):  # it was faster
            if goes_on:
                num_workers += is_hit
                os.kill(rng.choice(workers), signal.SIGKILL)
            else:
                os.killpg(pid, signal.SIGKILL)
        status = builder.end()
        assert status == 0 or not goes_on
        print(f"{stage}: {'a worker' if goes_on else 'all'} {'in' if is_hit else 'after'} the stage", flush=True)
        if num_hits == num_kills:
            break
    builder.start(folder)
    assert builder.end() == 0
    check_same(whole, folder)
    return Kills(num_hits, num_workers)
