"""Killing a build at random moments of a stage and starting it again, on both engines.

Kills hit all of its processes, or one worker, while the stage has shards to make.
"""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

from torture.killing import Forge, is_alive, workers_of

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


class Kills(NamedTuple):
    """That hit while there were files to make; of these, of a worker alone."""

    num_hits: int
    num_workers: int


class Builder(Forge):
    """Runs builds of configuration files, one after the other."""

    def build(self, folder: Path, until: str = "assemble") -> int:
        return self.start(["data", "build", str(folder / "build.json"), "--until", until])


def make_builder(log: Path, *modules: str, environment: Mapping[str, str] = os.environ) -> Builder:
    rooms = ("build", "clean", "unique", "text_sources", "search", "backends.world")
    return Builder(*(f"babelcap.generate.{room}" for room in rooms), *modules, log=log, environment=environment)


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
    pid = builder.build(folder, COMMAND_OF[stage])
    until = time.monotonic() + 60
    while not has_begun(folder, stage, files) and is_alive(pid) and time.monotonic() < until:
        time.sleep(0.0005)
    return pid, files


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
        while sum(path.exists() for path in files) < num_done and is_alive(pid):
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
    builder.build(folder)
    assert builder.end() == 0
    check_same(whole, folder)
    return Kills(num_hits, num_workers)
