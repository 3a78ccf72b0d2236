"""COMET's other process, played by a package of that name on this interpreter; the real one is not installed here."""

import json
import os
import sys
from pathlib import Path

import pytest

from babelcap.errors import UserError
from babelcap.evaluation.metrics.comet import READY, VARIABLE, comet, setup_comet

# A score: the length of the output over that of the reference.
PACKAGE = """
class Found: pass
class Model:
    def predict(self, items, batch_size, gpus, progress_bar):
        found = Found()
        found.scores = [len(item["mt"]) / len(item["ref"]) for item in items]
        print("a line of another kind")
        return found
def load_from_checkpoint(path):
    assert path.endswith("model.ckpt"), path
    return Model()
"""
SOURCES = {"a": "A dog", "b": "A cat", "c": "Two"}
REFERENCES = {"a": ["Ein Hund"], "b": ["Eine Katze"], "c": ["Zwei"]}


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "comet.py").write_text(PACKAGE)
    info = tmp_path / "unbabel_comet-2.2.9.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: unbabel-comet\nVersion: 2.2.9\n")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    ready = {"python": sys.executable, "checkpoint": str(tmp_path / "model.ckpt"), "model": "Unbabel/wmt22-comet-da"}
    (tmp_path / READY).write_text(json.dumps(ready))
    return tmp_path


def test_scores_come_from_the_other_process(environment: Path) -> None:
    hypotheses = {"a": "Ein Hün", "b": "Eine", "c": " "}
    score = comet(SOURCES, REFERENCES, hypotheses, environment)
    assert score.per_item == {"a": 7 / 8, "b": 0.4, "c": 0}
    assert score == pytest.approx((7 / 8 + 0.4) / 3)
    assert score.num_empty == 1
    assert score.signature == "COMET|model:Unbabel/wmt22-comet-da|version:2.2.9|device:cpu"


def test_an_environment_that_is_ready_is_left_alone(environment: Path) -> None:
    before = (environment / READY).read_bytes()
    assert setup_comet(environment, python="/no/such/python") == environment
    assert (environment / READY).read_bytes() == before


def test_what_is_missing_is_one_line(environment: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hypotheses = dict.fromkeys(REFERENCES, "x")
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(UserError, match="no environment; make one with"):
        comet(SOURCES, REFERENCES, hypotheses)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "elsewhere"))
    with pytest.raises(UserError, match="elsewhere is not set up"):
        comet(SOURCES, REFERENCES, hypotheses)
    with pytest.raises(UserError, match="cannot make an environment"):
        setup_comet(tmp_path / "new", python="/no/such/python")
    assert not (tmp_path / "new" / READY).exists()
    with pytest.raises(UserError, match="references of 'a': expected 1, found 2"):
        comet(SOURCES, REFERENCES | {"a": ["x", "y"]}, hypotheses, environment)
    with pytest.raises(UserError, match="found 2 sources for 3 items; 'c' has none"):
        comet({"a": "", "b": ""}, REFERENCES, hypotheses, environment)
    (environment / "comet.py").write_text("raise RuntimeError('no weights')")
    with pytest.raises(UserError, match=r"cannot score \(RuntimeError: no weights\)"):
        comet(SOURCES, REFERENCES, hypotheses, environment)
