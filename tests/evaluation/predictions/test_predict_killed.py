"""Predictions killed at any moment, and on Ray: the same command ends with the same bytes but for seconds."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from babelcap.evaluation.predictions.folder import ANSWERS
from planted import make_benchmark, predict_planted, read_file, without_seconds


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    return make_benchmark(tmp_path / "data")


SCRIPT = """
import sys
from pathlib import Path
from planted import predict_planted, read_file
if __name__ == "__main__":
    workers, benchmark, output = sys.argv[1:]
    how = {"num_workers": 2, "engine": "ray"} if workers == "ray" else {"num_workers": int(workers)}
    predict_planted(read_file(Path(benchmark)), Path(output), {"batch_size": 1}, **how)
"""


def environment_of(seconds: float) -> dict[str, str]:
    """Of a process that finds the planted system, which takes so long for a batch."""
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path)])
    return os.environ | {"PYTHONPATH": paths, "PLANTED_SECONDS": str(seconds), "OMP_NUM_THREADS": "1"}


def killed_once(command: Sequence[str], environment: dict[str, str], seconds: float, grown: Path | None) -> bool:
    """Whether it was killed: after so many seconds, counted from when `grown` has a file of answers that grows."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    sizes = {path: path.stat().st_size for path in grown.rglob("answers.jsonl")} if grown else {}
    while grown and process.poll() is None:
        if any(path.stat().st_size > sizes.get(path, 0) for path in grown.rglob("answers.jsonl")):
            break
        time.sleep(0.005)
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGKILL)
        process.communicate()
        return True
    told, _ = process.communicate()
    assert process.returncode == 0, told
    return False


def test_killed_twice_it_ends_with_the_same_bytes(benchmark: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), "1", str(benchmark), str(tmp_path / "killed")]
    kills = [killed_once(command, environment_of(0.05), seconds, tmp_path / "killed") for seconds in (0.07, 0.2)]
    assert kills == [True, True]
    (folder,) = (tmp_path / "killed").glob("trial-*")
    assert 0 < len((folder / ANSWERS).read_bytes().splitlines()) < 14
    (prediction,) = predict_planted(read_file(benchmark), tmp_path / "killed", {"batch_size": 1})
    (whole,) = predict_planted(read_file(benchmark), tmp_path / "whole", {"batch_size": 1})
    assert without_seconds(prediction.folder / ANSWERS) == without_seconds(whole.folder / ANSWERS)


def ends_the_same(commands: Sequence[Sequence[str]], folder: Path, num_kills: int, seconds: float) -> set[int]:
    """Kills commands of one prediction at random moments, then lets the first end; how many lines were there each time.

    Half of the moments are of the time from the start on, half of that in which answers are written.
    """
    environment = environment_of(0.02)
    draw, sizes = random.Random(0), set()
    assert not killed_once([*commands[0], str(folder / "whole")], environment, 900, None)
    while num_kills:
        while_answering = draw.random() < 0.5
        command = [*(commands[0] if while_answering else draw.choice(commands)), str(folder / "killed")]
        moment = draw.uniform(0, 0.3 if while_answering else seconds)
        if killed_once(command, environment, moment, folder / "killed" if while_answering else None):
            num_kills -= 1
        else:  # it came to its end: the next kills are of a new one
            shutil.rmtree(folder / "killed")
        sizes |= {len(path.read_bytes().splitlines()) for path in (folder / "killed").rglob(ANSWERS)}
    assert not killed_once([*commands[0], str(folder / "killed")], environment, 900, None)
    (killed,), (whole,) = (list((folder / name).rglob(ANSWERS)) for name in ("killed", "whole"))
    assert without_seconds(killed) == without_seconds(whole)
    return sizes


@pytest.mark.slow
def test_killed_at_twenty_random_moments(tmp_path: Path) -> None:
    script, benchmark = tmp_path / "script.py", make_benchmark(tmp_path / "data", languages=("en", "de", "fr", "es"))
    script.write_text(SCRIPT)
    commands = [[sys.executable, str(script), workers, str(benchmark)] for workers in ("1", "2")]
    sizes = ends_the_same(commands, tmp_path, 20, 4.0)
    assert len(sizes) > 4, "some were killed between their lines"


@pytest.mark.slow
def test_a_model_is_killed_on_the_command_line(tmp_path: Path, tiny_model: Path) -> None:
    benchmark = make_benchmark(tmp_path / "data", languages=("en", "de", "fr", "es", "ru", "zh"))
    command = [
        sys.executable,
        "-m",
        "babelcap",
        "eval",
        "predict",
        str(tiny_model),
        str(benchmark),
        "--batch-size",
        "1",
    ]
    command += ["--num-beams", "2", "--max-new-tokens", "12"]
    ends_the_same([[*command, "-o"], [*command, "--workers", "2", "-o"]], tmp_path, 4, 12.0)


@pytest.mark.slow
def test_ray_makes_the_same_lines(benchmark: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="Ray is not installed (pip install 'babelcap[cluster]')")
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-W", "ignore", str(script), "ray", str(benchmark), str(tmp_path / "ray")]
    assert not killed_once(command, environment_of(0) | {"RAY_USAGE_STATS_ENABLED": "0"}, 900, None)
    (alone,) = predict_planted(read_file(benchmark), tmp_path / "alone", {"batch_size": 1})
    assert without_seconds(tmp_path / "ray" / alone.folder.name / ANSWERS) == without_seconds(alone.folder / ANSWERS)
