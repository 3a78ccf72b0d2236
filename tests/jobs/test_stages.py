"""Stages: receipts add up, restarts make nothing twice, deaths and failures are told apart from drops."""

import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelcap.errors import UserError
from babelcap.jobs.engines import LocalEngine
from babelcap.jobs.receipts import MadeBy, ShardOutput, read_receipt, write_shard
from babelcap.jobs.stages import Shard, Stage, run_stage
from babelcap.version import VERSION

# Drops odd numbers. While a file `deadly` lies beside, 13 kills the process, 14 raises, 15 is a mistake, 17 stops all.
STAGE = """
import os, signal, time
from pathlib import Path
import pyarrow as pa
from babelcap.errors import UserError
from babelcap.jobs.receipts import ShardOutput
from babelcap.jobs.stages import Unavailable

def halve(inputs, settings):
    path = inputs["numbers"]
    numbers = [int(line) for line in path.read_text().split()]
    with open(path.parent / "calls.log", "a") as log:
        log.write(path.name + "\\n")
    time.sleep(settings.get("sleep", 0))
    if 13 in numbers and (path.parent / "deadly").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    if 14 in numbers and (path.parent / "deadly").exists():
        raise ValueError("fourteen")
    if 15 in numbers and (path.parent / "deadly").exists():
        raise UserError("fifteen is not allowed; remove it")
    if 17 in numbers and (path.parent / "deadly").exists():
        raise Unavailable("no server at all")
    kept = [number // settings["by"] for number in numbers if number % 2 == 0]
    table = pa.table({"number": pa.array(kept, pa.int64())})
    return ShardOutput(table, len(numbers), len(kept), {"odd": len(numbers) - len(kept)})
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "halving.py").write_text(STAGE)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, numbers in {"a": "2 4 5", "b": "6 13", "c": "8 14", "d": "15 16", "e": "18"}.items():
        (tmp_path / f"{name}.txt").write_text(numbers)
    return tmp_path


def stage_of(by: int = 2, **resources: float) -> Stage:
    return Stage("halve", "halving:halve", {"by": by}, resources=resources)


def shards_of(folder: Path, names: str = "abcde") -> list[Shard]:
    return [Shard(name, {"numbers": folder / f"{name}.txt"}) for name in names]


def calls(folder: Path) -> list[str]:
    return sorted((folder / "calls.log").read_text().split()) if (folder / "calls.log").exists() else []


def run(folder: Path, stage: Stage, names: str = "abcde"):
    with LocalEngine(2, folder / "logs") as engine:
        return run_stage(stage, shards_of(folder, names), folder / "work", engine)


def test_rows_add_up_and_nothing_is_made_twice(folder: Path) -> None:
    result = run(folder, stage_of(), "ae")
    assert {name: (r.num_in, r.num_out, r.drops) for name, r in result.receipts.items()} == {
        "a": (3, 2, {"odd": 1}),
        "e": (1, 1, {}),
    }
    path = folder / "work" / stage_of().folder / "a.parquet"
    assert pq.read_table(path)["number"].to_pylist() == [1, 2]
    os.utime(folder / "a.txt", (1, 1))  # a touched file is the same file
    assert run(folder, stage_of(), "ae").num_made == 0
    assert calls(folder) == ["a.txt", "e.txt"]
    (folder / "a.txt").write_text("2 4 6")
    assert run(folder, stage_of(), "ae").num_made == 1
    assert calls(folder) == ["a.txt", "a.txt", "e.txt"]
    assert run(folder, stage_of(by=1), "ae").num_made == 2  # another setting, another folder
    assert run(folder, stage_of(), "ae").num_made == 0


def test_what_always_fails_is_set_aside_and_made_when_mended(folder: Path) -> None:
    (folder / "deadly").touch()
    result = run(folder, stage_of())
    assert sorted(result.receipts) == ["a", "e"]
    assert "SIGKILL" in result.set_aside["b"]
    assert result.set_aside["c"] == "ValueError: fourteen"
    assert result.set_aside["d"] == "fifteen is not allowed; remove it"
    assert calls(folder).count("b.txt") == 4  # three times, and once more at the end
    assert calls(folder).count("d.txt") == 1
    (folder / "deadly").unlink()
    mended = run(folder, stage_of())
    assert not mended.set_aside
    assert mended.num_made == 3
    reference = folder / "reference"
    with LocalEngine(1, folder / "logs") as engine:
        run_stage(stage_of(), shards_of(folder), reference, engine)
    for path in sorted((reference / stage_of().folder).iterdir()):
        assert path.read_bytes() == (folder / "work" / stage_of().folder / path.name).read_bytes()


def test_what_all_shards_lack_stops_the_stage_and_fails_none(folder: Path) -> None:
    (folder / "c.txt").write_text("17")
    (folder / "deadly").touch()
    with pytest.raises(UserError, match="halve: no server at all; what is done stays done, run it again"):
        run(folder, stage_of(), "ac")
    assert not list((folder / "work" / "attempts").rglob("c"))
    assert calls(folder).count("c.txt") == 1
    (folder / "deadly").unlink()
    assert sorted(run(folder, stage_of(), "ac").receipts) == ["a", "c"]


def test_the_receipt_tells_models_and_versions(folder: Path) -> None:
    stage = replace(stage_of(), models={"captioner": "m@1"}, libraries=("pyarrow", "not-installed"))
    receipt = run(folder, stage, "a").receipts["a"]
    assert receipt.models == {"captioner": "m@1"}
    assert receipt.versions == {"python": platform.python_version(), "babelcap": VERSION, "pyarrow": pa.__version__}
    assert receipt.device == "cpu"


def test_files_are_known_in_their_order(folder: Path) -> None:
    first, second = ([folder / f"{name}.txt" for name in names] for names in ("ab", "ba"))
    assert Shard("x", {"text": first}).contents() != Shard("x", {"text": second}).contents()


def test_where_nothing_works_it_stops(folder: Path) -> None:
    for name in "abc":
        (folder / f"{name}.txt").write_text("15")
    (folder / "deadly").touch()
    with pytest.raises(UserError, match=r"halve: fifteen is not allowed.*first 3 shards, and none worked"):
        run(folder, stage_of(), "abcde"[:3])


def test_a_damaged_or_foreign_output_is_made_again(folder: Path) -> None:
    run(folder, stage_of(), "a")
    path = folder / "work" / stage_of().folder / "a.parquet"
    good = path.read_bytes()
    for bad in (good[: len(good) // 2], b"", b"PAR1" + b"\0" * 50 + b"PAR1"):
        path.write_bytes(bad)
        assert run(folder, stage_of(), "a").num_made == 1
        assert path.read_bytes() == good
    pq.write_table(pa.table({"number": [1]}), path)
    assert run(folder, stage_of(), "a").num_made == 1


def test_counts_that_do_not_add_up_are_not_written(tmp_path: Path) -> None:
    output = ShardOutput(pa.table({"a": [1]}), num_in=3, num_out=1, drops={"odd": 1})
    with pytest.raises(RuntimeError, match="do not add up"):
        write_shard(tmp_path / "a.parquet", output, MadeBy("s", "h", {}))
    assert read_receipt(tmp_path / "a.parquet") is None


PARENT = """
import sys
from pathlib import Path
from babelcap.jobs.engines import LocalEngine
from babelcap.jobs.stages import Shard, Stage, run_stage
if __name__ == "__main__":
    folder = Path(sys.argv[1])
    stage = Stage("halve", "halving:halve", {"by": 2}, resources={"sleep": 0.2})
    shards = [Shard(name, {"numbers": folder / f"{name}.txt"}) for name in "abcde"]
    with LocalEngine(2, folder / "logs") as engine:
        run_stage(stage, shards, folder / "work", engine)
"""


def test_killed_and_restarted_ends_the_same(folder: Path) -> None:
    (folder / "parent.py").write_text(PARENT)
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(folder), *sys.path])}
    command = [sys.executable, str(folder / "parent.py"), str(folder)]
    for seconds in (0.3, 1.2):
        process = subprocess.Popen(command, env=environment)
        time.sleep(seconds)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run(command, env=environment, check=True)
    done = folder / "work" / stage_of().folder
    shutil.move(done, folder / "killed")
    subprocess.run(command, env=environment, check=True)
    assert sorted(path.stem for path in done.glob("*.parquet")) == list("abcde")
    for path in done.iterdir():
        assert path.read_bytes() == (folder / "killed" / path.name).read_bytes()


def test_a_full_disk_stops_the_stage_in_one_line(folder: Path) -> None:
    """No other shard could be written either."""
    source = (folder / "halving.py").read_text()
    full = "    Path('/dev/full').write_text('x')\n"
    (folder / "halving.py").write_text(source.replace("    kept =", full + "    kept ="))
    with pytest.raises(UserError, match=r"halve: .*the disk is full; nothing was replaced.*what is done stays done"):
        run(folder, stage_of(), "a")
    assert calls(folder) == ["a.txt"]


def test_attempts_that_cannot_be_counted_have_an_end(folder: Path) -> None:
    source = (folder / "halving.py").read_text()
    forget = "    Path(settings['output'].replace('work/', 'work/attempts/')[:-8]).unlink()\n"
    (folder / "halving.py").write_text(source.replace("    time.sleep", forget + "    time.sleep"))
    (folder / "deadly").touch()
    assert "SIGKILL" in run(folder, stage_of(), "b").set_aside["b"]
    assert calls(folder).count("b.txt") == 4
