"""Fuzzing of every reader: each input is read or refused in one line, within bounds; never a traceback or a hang.

Three ways: damage drawn by chance (`torture.damage`), documents of the right structure with wrong parts (hypothesis),
and bytes led by the code that they reach (atheris, `torture.guided`, in processes of its own).
"""

import contextlib
import importlib.util
import io
import json
import logging
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from torture import ROOT
from torture.damage import damage_in_turn
from torture.readers import MORE_READERS, READERS
from torture.readers.configs import models, read_mutated
from torture.readers.target import Target
from torture.watch import Watch

EVERY = {make.__name__: make for makers in (READERS | MORE_READERS).values() for make in makers}
SLOW = {"uploads", "model_folder", "tokenizers", "vouched_checkpoint", "corpus_index", "points_runs"}
SLOWER = 20  # times fewer cases of those
GUIDED_GROUPS = {
    group + suffix: names
    for suffix, is_slow in (("", False), (", slow ones", True))
    for group, makers in (READERS | MORE_READERS).items()
    if (names := [make.__name__ for make in makers if (make.__name__ in SLOW) is is_slow])
}
HAS_ATHERIS = importlib.util.find_spec("atheris") is not None
GUIDED = "guided by coverage (atheris)"
JSON_NAMES = (".json", ".jsonl", ".jsonlines")
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@dataclass
class Tried:
    """What one reader was given, in one of the ways."""

    reader: str
    way: str
    num_read: int = 0
    num_refused: int = 0
    slowest_seconds: float = 0.0
    peak_mib: float = 0.0
    lost: str = ""

    @property
    def number(self) -> int:
        return self.num_read + self.num_refused


def scratch() -> "tempfile.TemporaryDirectory[str]":
    """In memory where there is such a place: files are written for every case."""
    place = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    return tempfile.TemporaryDirectory(prefix="babelcap-torture-", dir=place)


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """What readers tell besides would hide the progress."""
    logging.disable(logging.CRITICAL)
    try:
        with contextlib.redirect_stderr(io.StringIO()), contextlib.redirect_stdout(io.StringIO()):
            yield
    finally:
        logging.disable(logging.NOTSET)


@contextlib.contextmanager
def made(name: str) -> Iterator[tuple[Target, Path]]:
    with scratch() as root:
        folder = Path(root)
        (folder / "in").mkdir()
        target = EVERY[name](folder / "in")
        target.read(folder / "sound")
        yield target, folder / "out"


def tried(reader: str, way: str, work: Callable[[Watch], None]) -> Tried:
    watch, lost = Watch(reader), ""
    with quiet():
        try:
            work(watch)
        except Exception as error:  # an AssertionError of the watch, or a traceback of the reader
            lost = f"{type(error).__name__}: {str(error)[:500]}"
    return Tried(reader, way, watch.num_read, watch.num_refused, watch.slowest_seconds, watch.peak_mib, lost)


def fuzz_damaged(name: str, number: int, first_seed: int) -> Tried:
    def work(watch: Watch) -> None:
        with made(name) as (target, out):
            draw = random.Random(f"{name}/{first_seed}")
            for place, path in enumerate(damage_in_turn(target.files, number, draw)):
                watch(lambda: target.read(out), (place, path.name))
                shutil.rmtree(out, ignore_errors=True)

    return tried(name, "damaged by chance", work)


@st.composite
def with_wrong_part(draw: st.DrawFn, document: Any) -> Any:
    """A document of which one part, at any depth, is another value, gone, or under another name."""
    if isinstance(document, dict) and document and draw(st.integers(0, 7)):
        name = draw(st.sampled_from(sorted(document)))
        way = draw(st.sampled_from(("inside", "inside", "inside", "gone", "renamed")))
        others = {key: value for key, value in document.items() if key != name}
        if way == "gone":
            return others
        if way == "renamed":
            return others | {draw(st.text(max_size=6)): document[name]}
        return document | {name: draw(with_wrong_part(document[name]))}
    if isinstance(document, list) and document and draw(st.integers(0, 7)):
        place = draw(st.integers(0, len(document) - 1))
        return [*document[:place], draw(with_wrong_part(document[place])), *document[place + 1 :]]
    return draw(JSON)


def fuzz_structured(name: str, number: int, first_seed: int) -> Tried | None:
    """None where no file of the reader is JSON."""
    with quiet(), made(name) as (target, _):
        if not any(path.suffix in JSON_NAMES for path in target.files):
            return None
    exact = settings(
        max_examples=number, database=None, deadline=None, phases=(Phase.generate,),
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip

    def work(watch: Watch) -> None:
        with made(name) as (target, out):
            files = [path for path in target.files if path.suffix in JSON_NAMES]
            whole = {path: path.read_text(encoding="utf-8") for path in files}

            @seed(first_seed)
            @exact
            @given(st.data())
            def case(data: st.DataObject) -> None:
                path = data.draw(st.sampled_from(files))
                lines = [whole[path]] if path.suffix == ".json" else whole[path].splitlines()
                place = data.draw(st.integers(0, len(lines) - 1))
                lines[place] = json.dumps(data.draw(with_wrong_part(json.loads(lines[place]))))
                path.write_text("\n".join(lines), encoding="utf-8")
                try:
                    watch(lambda: target.read(out), path.name)
                finally:
                    path.write_text(whole[path], encoding="utf-8")
                    shutil.rmtree(out, ignore_errors=True)

            case()

    return tried(name, "structured (hypothesis)", work)


def fuzz_configs(number: int, first_seed: int) -> Iterator[Tried]:
    """Every kind of configuration, TOML and JSON, with overrides."""
    for model in models():

        def work(watch: Watch, model: Any = model) -> None:
            with scratch() as root:
                for case in range(number):
                    given_seed = (first_seed << 20) + case
                    watch(lambda given_seed=given_seed: read_mutated(model, given_seed, Path(root)), case)  # type: ignore[misc]

        yield tried(f"configuration {model.__name__}", "damaged by chance", work)


def fuzz_guided(groups: dict[str, list[str]], number: int, seconds: int, first_seed: int) -> Iterator[Tried]:
    """At most so many cases and seconds a group, in a process of its own; an exception there, or a crash, is a loss."""
    paths = os.pathsep.join([str(ROOT), str(ROOT / "tests"), *filter(None, sys.path)])
    command = [sys.executable, "-W", "ignore", "-m", "torture.guided"]
    with scratch() as root:
        values = {"groups": groups, "number": number, "seconds": seconds, "seed": first_seed, "folder": root}
        values |= {"slow": sorted(SLOW), "slower": SLOWER}
        process = subprocess.Popen(
            [*command, json.dumps(values)],
            env=os.environ | {"PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None
        num_groups = 0
        for line in process.stdout:
            found, num_groups = json.loads(line), num_groups + 1
            yield from (Tried(name, GUIDED, *numbers) for name, numbers in found["counts"].items())
            if found["code"] != 0 or not found["counts"]:
                yield Tried(found["group"], GUIDED, lost=f"exit code {found['code']}: {found['said'][-700:]}")
        _, said = process.communicate()
    if num_groups < len(groups):
        yield Tried("the fuzzer itself", GUIDED, lost=said[-700:])
