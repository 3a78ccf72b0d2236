"""METEOR's dialogue with a jar, played by a stand-in that knows its protocol; the jar itself is not redistributed."""

import sys
from pathlib import Path

import pytest

from babelcap.errors import UserError
from babelcap.evaluation.metrics.meteor import VARIABLE, meteor

# Counts: words in common with the best reference, words of the hypothesis. A score: the first over the second.
STAND_IN = f"""#!{sys.executable}
import sys
assert sys.argv[1:4] == ["-Xmx2G", "-jar", sys.argv[3]] and sys.argv[4:] == ["-", "-", "-stdio", "-l", "de", "-norm"]
for line in sys.stdin:
    kind, *parts = line.rstrip("\\n").split(" ||| ")
    if kind == "SCORE":
        *references, found = [part.split() for part in parts]
        print(max(len(set(text) & set(found)) for text in references), float(len(found)), flush=True)
    else:
        rows = [[float(value) for value in part.split()] for part in parts]
        for row in [*rows, [sum(column) for column in zip(*rows)]]:
            print(row[0] / row[1], flush=True)
"""
REFERENCES = {"a": ["ein roter Hund", "ein Hund"], "b": ["zwei Katzen"], "c": ["drei"]}


@pytest.fixture
def stand_in(tmp_path: Path) -> tuple[Path, str]:
    jar, java = tmp_path / "meteor-1.5.jar", tmp_path / "java"
    jar.write_bytes(b"")
    java.write_text(STAND_IN)
    java.chmod(0o755)
    return jar, str(java)


def test_counts_are_summed_and_the_jar_scores(stand_in: tuple[Path, str]) -> None:
    jar, java = stand_in
    hypotheses = {"a": "ein Hund ||| da\nhier", "b": "zwei Hunde", "c": ""}
    score = meteor(REFERENCES, hypotheses, "de", jar, java)
    assert score.per_item == {"a": 0.5, "b": 0.5, "c": 0}
    assert score == pytest.approx((2 + 1 + 0) / (4 + 2 + 1))  # the empty one counts, as one wrong word
    assert score.num_empty == 1
    low, high = score.interval(num_replicates=50)
    assert 0 <= low < score < high <= 0.5
    assert score.signature == "METEOR|version:1.5|lang:de|norm:yes|scale:1"


def test_what_is_missing_is_one_line(
    stand_in: tuple[Path, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jar, java = stand_in
    hypotheses = dict.fromkeys(REFERENCES, "x")
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(UserError, match=f"no jar; give the path of meteor-1.5.jar, or set {VARIABLE}"):
        meteor(REFERENCES, hypotheses, "de")
    monkeypatch.setenv(VARIABLE, str(tmp_path / "none.jar"))
    with pytest.raises(UserError, match=r"none\.jar: no such file"):
        meteor(REFERENCES, hypotheses, "de")
    with pytest.raises(UserError, match="is not installed; it runs the jar"):
        meteor(REFERENCES, hypotheses, "de", jar, str(tmp_path / "no-java"))
    with pytest.raises(UserError, match="no parameters for 'zh'"):
        meteor(REFERENCES, hypotheses, "zh", jar, java)


@pytest.mark.parametrize(("program", "message"), [("exit 1", "ended early"), ("echo Error: no", "expected numbers")])
def test_a_jar_that_fails_is_one_line(stand_in: tuple[Path, str], program: str, message: str) -> None:
    jar, java = stand_in
    Path(java).write_text(f"#!/bin/sh\n{program}\n")
    with pytest.raises(UserError, match=message):
        meteor(REFERENCES, dict.fromkeys(REFERENCES, "x"), "de", jar, java)
