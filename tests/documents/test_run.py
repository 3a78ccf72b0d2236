"""The documents' commands and examples, executed in a small world: those marked `run`, page by page, in their order."""

import csv
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from babelcap.world.render import render
from babelcap.world.scenes import draw_scene, generator

from ..walk import SIZE_PX, Walk, save_captioner
from .markdown import DOCUMENTS, REPOSITORY, Block, blocks_of

EXPECTED_CODES = {"babelcap data leakage mine --against test-photos": 1}  # it finds what was put there
SLOW = "run: slow"
PAGES = [path for path in DOCUMENTS if any(block.marker == "run" for block in blocks_of(path))]


def draw_pictures(folder: Path) -> None:
    (folder / "photos").mkdir(parents=True)
    (folder / "test-photos").mkdir()
    names = ["photo.jpg", "dog.jpg", "bat.jpg", "photos/cat.jpg", "photos/bus.jpg", "photos/car.jpg"]
    for number, name in enumerate(names):
        rng = generator(0, "documents", number)
        render(draw_scene(rng), rng, 256).save(folder / name, quality=95)
    (folder / "cat.jpg").write_bytes((folder / "photos" / "cat.jpg").read_bytes())
    with Image.open(folder / "cat.jpg") as image:  # another name, another size: still that picture
        image.resize((200, 200)).save(folder / "test-photos" / "renamed.jpg")


def write_tables(folder: Path) -> None:
    rows = [
        ("cat", "A cat on the grass.", "en", "caption", ""),
        ("cat", "Eine Katze auf dem Gras.", "de", "caption", ""),
        ("bus", "A bus in the snow.", "en", "caption", ""),
        ("car", "Un coche rojo.", "es", "translation", "A red car."),
    ]
    with (folder / "photos" / "captions.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["image", "text", "language", "task", "source"])
        table.writerows([f"{name}.jpg", *rest] for name, *rest in rows)
    with (folder / "table.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["params", "tokens", "loss"])
        draws = np.random.default_rng(0)
        for P in (1e6, 3e6, 1e7, 3e7):
            for S in (1e5, 3e5, 1e6, 3e6):
                table.writerow([P, S, (0.8 + 40 / P**0.3 + 90 / S**0.35) * np.exp(0.01 * draws.normal())])


def lay_out(folder: Path) -> None:
    """What the pages take for granted: pictures, tables, and records of a study."""
    for name in ("configs", "results"):
        (folder / name).symlink_to(REPOSITORY / name)
    (folder / "runs.jsonl").symlink_to(REPOSITORY / "results" / "small" / "runs.jsonl")
    draw_pictures(folder)
    write_tables(folder)


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Walk]:
    """The same, and a captioner that has learnt nothing."""
    folder = tmp_path_factory.mktemp("documents")
    lay_out(folder)
    walk = Walk(folder, tmp_path_factory.mktemp("outputs"))
    sizes = ["--images", 12, "--eval-images", 0, "--holdout-images", 0, "--size-px", SIZE_PX, "--text-lines", 20]
    walk.run("world", "make", "-o", "corpora/world", *sizes, "--workers", 1).ends(0, "12 training pictures")
    save_captioner(folder / "models" / "0.4B", folder / "corpora" / "world" / "tokenizers")
    yield walk
    walk.close()


def expanded(line: str, folder: Path) -> list[str]:
    """The words as bash sees them, patterns expanded."""
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {line}"], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.split("\0")[:-1]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.stem)
def test_what_a_page_shows_is_so(path: Path, walk: Walk, monkeypatch: pytest.MonkeyPatch) -> None:
    for block in blocks_of(path):
        if block.marker != "run":
            continue
        if block.language == "python":
            run_python(block, walk, monkeypatch)
        else:
            for line in block.lines:
                run_line(line, block, walk)


def run_line(line: str, block: Block, walk: Walk) -> None:
    program, *words = expanded(line, walk.folder)
    assert program == "babelcap", f"{block.name}: {line}: mark it `run: slow` or `needs: ...`"
    done = walk.run(*words)
    assert done.code == EXPECTED_CODES.get(line, 0), f"{block.name}: {line}\n{done.stdout}\n{done.stderr}"
    if block.language == "console":  # what is shown below the command is what it prints, wrapped as it may be
        shown = " ".join(" ".join(text.split()) for text in block.text.splitlines() if not text.startswith("$ "))
        assert shown in " ".join(done.stdout.split()), f"{block.name}: {done.stdout}"


def run_python(block: Block, walk: Walk, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the names that an example may take for granted: points of a study of one's own."""
    P, S = (values.ravel() for values in np.meshgrid([1e6, 3e6, 1e7, 3e7], [1e5, 3e5, 1e6, 3e6]))
    draws = np.random.default_rng(0)
    y = (0.8 + 40 / P**0.3 + 90 / S**0.35) * np.exp(0.01 * draws.normal(size=16))
    monkeypatch.chdir(walk.folder)
    exec(compile(block.text, block.name, "exec"), {"P": P, "S": S, "y": y})


@pytest.mark.slow
@pytest.mark.parametrize(
    "block", [block for path in DOCUMENTS for block in blocks_of(path) if block.marker == SLOW], ids=lambda b: b.name
)
def test_what_takes_longer_is_so_too(block: Block, tmp_path: Path) -> None:
    lay_out(tmp_path)
    programs = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = "set -euo pipefail\n" + block.text
    environment = {**os.environ, "PATH": programs}
    command = ["bash", "-c", script]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{block.name}: {shlex.quote(block.text)}\n{done.stdout}\n{done.stderr}"
