"""METEOR 1.5 through its own jar, never re-implemented: `java -jar meteor-1.5.jar - - -stdio -l xx -norm`.

The jar turns references and a hypothesis into counts, and sums of counts into a score; so the bootstrap asks it too.
Its path is given, or in the variable BABELCAP_METEOR_JAR.
"""

import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

import numpy as np

from babelcap.errors import UserError
from babelcap.evaluation.metrics.inputs import check_items, count_empty
from babelcap.evaluation.metrics.score import Array, Items, Score, signature

VARIABLE = "BABELCAP_METEOR_JAR"
LANGUAGES = ("en", "de", "es", "fr")  # those with stems, paraphrases and weights of their own
MARK = " ||| "
ENDED = "METEOR: the jar ended early; run its command by hand to see why"


def meteor(
    references: Mapping[str, Sequence[str]],
    hypotheses: Mapping[str, str],
    language: str,
    jar: str | Path | None = None,
    java: str = "java",
) -> Score:
    """0 to 1, as the jar gives it. An empty hypothesis scores 0."""
    ids = check_items(references, hypotheses)
    if language not in LANGUAGES:
        raise UserError(f"METEOR: no parameters for '{language}'; it has {', '.join(LANGUAGES)}")
    command = meteor_command(language, jar, java)
    with MeteorProcess(command) as process:
        rows = np.array([process.statistics(hypotheses[key], references[key]) for key in ids])
        values = process.scores(rows)
    empty = np.array([not hypotheses[key].strip() for key in ids])
    text = signature("METEOR", {"version": "1.5", "lang": language, "norm": "yes", "scale": 1})
    combine = partial(_combine, command)
    return Score(
        "METEOR", text, Items(ids, np.where(empty, 0, values), count_empty(hypotheses.values()), rows, combine)
    )


def meteor_command(language: str, jar: str | Path | None = None, java: str = "java") -> tuple[str, ...]:
    """What is run, or one line that says what is missing."""
    path = jar or os.environ.get(VARIABLE)
    if not path:
        raise UserError(f"METEOR: no jar; give the path of meteor-1.5.jar, or set {VARIABLE} to it")
    if not Path(path).is_file():
        raise UserError(f"METEOR: {path}: no such file; it is in http://www.cs.cmu.edu/~alavie/METEOR/")
    if shutil.which(java) is None:
        raise UserError(f"METEOR: '{java}' is not installed; it runs the jar")
    return (java, "-Xmx2G", "-jar", str(path), "-", "-", "-stdio", "-l", language, "-norm")


def _combine(command: Sequence[str], sums: Array) -> Array:
    with MeteorProcess(command) as process:
        return process.scores(sums)


class MeteorProcess:
    """The jar's dialogue over its standard input and output, a line at a time."""

    def __init__(self, command: Sequence[str]) -> None:
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", env=environment, bufsize=1
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.process.kill()
        self.process.communicate()

    def statistics(self, hypothesis: str, references: Sequence[str]) -> list[float]:
        """The counts of one item. The jar would take a reference for an empty hypothesis: it gets a word of no text."""
        self._say(["SCORE", *map(_one_line, references), _one_line(hypothesis) or "∅"])
        return self._hear()

    def scores(self, rows: Array) -> Array:
        """The score of each row of counts; the jar answers with that of each part and then of the whole."""
        found = []
        for row in rows:
            self._say(["EVAL", " ".join(f"{value:.15g}" for value in row)])
            self._hear()
            found.append(self._hear()[0])
        return np.array(found)

    def _say(self, parts: Sequence[str]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(MARK.join(parts) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            self._hear()  # what it said before it ended tells more
            raise UserError(ENDED) from None

    def _hear(self) -> list[float]:
        assert self.process.stdout is not None
        answer = self.process.stdout.readline()
        if not answer.strip():
            raise UserError(ENDED)
        try:
            return [float(value) for value in answer.split()]
        except ValueError:
            raise UserError(f"METEOR: expected numbers from the jar, found '{answer.strip()[:80]}'") from None


def _one_line(text: str) -> str:
    return " ".join(text.replace("|||", " ").split())
