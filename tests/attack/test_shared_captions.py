"""Captions shared among processes, killed: nothing is lost, nobody is left behind, the same command goes on."""

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from babelcap.world.render import render
from babelcap.world.scenes import draw_scene, generator

pytestmark = [
    pytest.mark.slow,  # three processes that load a model
    pytest.mark.skipif(sys.platform != "linux", reason="processes are forked on Linux alone"),
]
WAIT_SECONDS = 60.0


def command(folder: Path, output: Path, processes: int) -> list[str]:
    start = [sys.executable, "-c", "from babelcap.cli import main\nmain()"]
    options = ["--model", "micro", "--language", "en,fr", "--processes", str(processes), "--output", str(output)]
    return [*start, "caption", str(folder), "--batch-size", "4", *options]


def captions(output: Path) -> dict[tuple[str, str], str]:
    lines = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    found = {(line["image"], line["language"]): line["caption"] for line in lines}
    assert len(found) == len(lines)
    return found


def test_a_killed_command_leaves_no_helper_and_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for number in range(80):
        rng = generator(3, "shared", number)
        render(draw_scene(rng), rng, 64).save(folder / f"{number:03d}.png")
    output, undisturbed = tmp_path / "killed.jsonl", tmp_path / "undisturbed.jsonl"
    process = subprocess.Popen(command(folder, output, 2), stderr=subprocess.DEVNULL)
    until = time.monotonic() + WAIT_SECONDS
    helpers: list[psutil.Process] = []
    while time.monotonic() < until and process.poll() is None:
        helpers = psutil.Process(process.pid).children()
        if len(helpers) == 2 and output.exists() and output.stat().st_size:
            break
        time.sleep(0.02)
    assert len(helpers) == 2
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(helpers, timeout=WAIT_SECONDS)
    assert not alive
    assert 0 < len(output.read_bytes().splitlines()) < 160
    again = subprocess.run(command(folder, output, 2), capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    alone = subprocess.run(command(folder, undisturbed, 1), capture_output=True, text=True, check=False)
    assert alone.returncode == 0, alone.stderr
    assert captions(output) == captions(undisturbed)
