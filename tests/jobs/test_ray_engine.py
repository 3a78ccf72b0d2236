"""The same stages on Ray, in a process of its own: Ray takes seconds to start, and warns of its own code."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from babelcap.jobs.engines import LocalEngine
from babelcap.jobs.stages import Shard, run_stage

from .test_stages import STAGE, stage_of

pytest.importorskip("ray", reason="Ray is not installed (pip install 'babelcap[cluster]')")

PARENT = """
import json, sys
from dataclasses import replace
from pathlib import Path
from babelcap.jobs.engines import RayEngine
from babelcap.jobs.stages import Shard, Stage, run_stage
if __name__ == "__main__":
    folder = Path(sys.argv[1])
    stage = Stage("halve", "halving:halve", {"by": 2})
    shards = [Shard(name, {"numbers": folder / f"{name}.txt"}) for name in "abcde"]
    found = {}
    for holds_model in (False, True):
        if holds_model:
            (folder / "deadly").unlink()
        chosen = replace(stage, holds_model=holds_model)
        result = run_stage(chosen, shards, folder / "work", RayEngine(2))
        found[str(holds_model)] = [sorted(result.receipts), result.set_aside, result.num_made]
    (folder / "found.json").write_text(json.dumps(found))
"""


def test_ray_makes_the_same_bytes_and_survives_deaths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "halving.py").write_text(STAGE)
    (tmp_path / "parent.py").write_text(PARENT)
    for name, numbers in {"a": "2 4 5", "b": "6 13", "c": "8 14", "d": "15 16", "e": "18"}.items():
        (tmp_path / f"{name}.txt").write_text(numbers)
    (tmp_path / "deadly").touch()
    paths = os.pathsep.join([str(tmp_path), *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(tmp_path / "parent.py"), str(tmp_path)],
        env=os.environ | {"PYTHONPATH": paths, "RAY_USAGE_STATS_ENABLED": "0"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    deadly, mended = json.loads((tmp_path / "found.json").read_text()).values()
    assert deadly[0] == ["a", "e"]
    assert deadly[1]["c"] == "ValueError: fourteen"
    assert deadly[1]["d"] == "fifteen is not allowed; remove it"
    assert "died" in deadly[1]["b"]
    assert (tmp_path / "calls.log").read_text().split().count("b.txt") == 3 + 1 + 1  # once more, and when mended
    assert mended == [["a", "b", "c", "d", "e"], {}, 3]
    monkeypatch.syspath_prepend(str(tmp_path))
    shards = [Shard(name, {"numbers": tmp_path / f"{name}.txt"}) for name in "abcde"]
    with LocalEngine(1, tmp_path / "logs") as engine:
        run_stage(stage_of(), shards, tmp_path / "local", engine)
    for path in (tmp_path / "local" / stage_of().folder).iterdir():
        assert path.read_bytes() == (tmp_path / "work" / stage_of().folder / path.name).read_bytes()
