"""Fuzzing of readers that is led by the code which each input reaches: atheris, on libFuzzer.

Run by `torture.fuzz` in a process of its own, whose imports are instrumented once; it forks for each group of readers,
because libFuzzer ends its process when it is done, and at the first exception that is not the user's. The first byte of
an input chooses the reader, the second one of its files; the rest is the file.
"""

import contextlib
import io
import json
import logging
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import atheris

with contextlib.redirect_stderr(io.StringIO()), atheris.instrument_imports(include=["babelcap"]):
    from babelcap.errors import BadSample, UserError
    from torture.readers import MORE_READERS, READERS
    from torture.readers.target import Target

EVERY = {make.__name__: make for makers in (READERS | MORE_READERS).values() for make in makers}
SAVE_EVERY = 50  # cases; libFuzzer ends its process without a word to us


def write_seeds(targets: list[Target], folder: Path) -> None:
    """The sound files, from which libFuzzer starts."""
    folder.mkdir()
    for number, target in enumerate(targets):
        for place, path in enumerate(target.files[:256]):
            content = path.read_bytes()
            if len(content) < 2**16:
                (folder / f"{number}-{place}").write_bytes(bytes([number, place]) + content)


def fuzz(values: dict[str, Any], names: list[str], root: Path) -> None:
    """Of one group; does not come back."""
    root.mkdir()
    targets = []
    for name in names:
        (root / name).mkdir()
        targets.append(EVERY[name](root / name))
    write_seeds(targets, root / "corpus")
    (root / "crash").mkdir()
    whole = {path: path.read_bytes() for target in targets for path in target.files}
    counts = {name: [0, 0] for name in names}
    calls = 0
    is_slow = set(names) <= set(values["slow"])
    number, save_every = (values["number"] // values["slower"], 1) if is_slow else (values["number"], SAVE_EVERY)

    def one(data: bytes) -> None:
        nonlocal calls
        calls += 1
        if len(data) < 2:
            return
        number = data[0] % len(targets)
        target, name = targets[number], names[number]
        path = target.files[data[1] % len(target.files)]
        path.write_bytes(data[2:])
        try:
            target.read(root / "out")
            counts[name][0] += 1
        except (UserError, BadSample) as error:
            if "\n" in str(error):
                raise RuntimeError(f"{name}: more than one line: {str(error)[:300]}") from None
            counts[name][1] += 1
        path.write_bytes(whole[path])
        shutil.rmtree(root / "out", ignore_errors=True)
        if calls % save_every == 0:
            (root / "found.partial").write_text(json.dumps(counts))
            os.replace(root / "found.partial", root / "found.json")

    options = [f"-runs={number}", f"-seed={values['seed'] + 1}", f"-max_total_time={values['seconds']}"]
    options += [
        "-timeout=60",
        "-rss_limit_mb=6000",
        "-max_len=65536",
        "-verbosity=0",
        f"-artifact_prefix={root}/crash/",
    ]
    atheris.Setup([sys.argv[0], *options, str(root / "corpus")], one)
    logging.disable(logging.CRITICAL)
    sys.stdout = io.StringIO()
    atheris.Fuzz()


def main(values: dict[str, Any]) -> None:
    """For each group a line of JSON: its name, its counts, and how its process ended, with what it said."""
    for group, names in values["groups"].items():
        root = Path(values["folder"]) / str(len(list(Path(values["folder"]).iterdir())))
        said = root.with_suffix(".log")
        pid = os.fork()
        if pid == 0:
            descriptor = os.open(said, os.O_WRONLY | os.O_CREAT, 0o600)
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            try:
                fuzz(values, names, root)
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
            os._exit(3)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        counts = json.loads((root / "found.json").read_text()) if (root / "found.json").exists() else {}
        told = said.read_text(errors="replace")[-1500:] if code else ""
        print(json.dumps({"group": group, "counts": counts, "code": code, "said": told}), flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
