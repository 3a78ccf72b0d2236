"""`babelcap model ...` from the command line: what is printed, and one line with exit code 2 for a mistake."""

import io
import json
import shutil
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from babelcap.cli import app
from babelcap.coverage import TRANSLATION
from babelcap.data.store.store import CorpusWriter
from babelcap.models.generation.shortlist import read_shortlist
from babelcap.records import Annotation


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["model", *arguments])


def test_info_as_a_table_and_as_data() -> None:
    table = run("info", "micro-gemma-s", "--policy", "cross-attention")
    assert table.exit_code == 0, table.output
    assert "decoder cross-attention" in table.stdout
    data = json.loads(run("info", "micro-gemma-s", "--json").stdout)
    assert data["decoder"] == "gemma2"
    assert data["macs"]["total"] > 0


def test_policies_are_listed() -> None:
    known = {"pretraining", "finetuning", "text", "all", "cross-attention"}
    assert set(json.loads(run("freezing", "--json").stdout)) == known


def test_import_of_a_published_checkpoint(golden_fixtures: Path, tmp_path: Path) -> None:
    source = tmp_path / "published"
    source.mkdir()
    for name, place in (
        ("reference_config.json", "config.json"),
        ("reference_weights.safetensors", "model.safetensors"),
    ):
        (source / place).write_bytes((golden_fixtures / "florence2" / name).read_bytes())
    done = run("import", str(source), "-o", str(tmp_path / "ours"))
    assert done.exit_code == 0, done.output
    data = json.loads(run("info", str(tmp_path / "ours"), "--image-size", "64", "--json").stdout)
    assert data["decoder"] == "bart"


def test_shortlists_are_written_beside_the_model(model_folder: Path, tmp_path: Path) -> None:
    model = shutil.copytree(model_folder, tmp_path / "model")
    picture = io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "PNG")
    annotations = [Annotation(task=TRANSLATION, language=code, source="a", target="w1 w2") for code in ("es", "fr")]
    with CorpusWriter(tmp_path / "corpus", provenance={}) as writer:
        writer.add("000000001", picture.getvalue(), "png", "train", annotations)
    done = run("shortlist", str(tmp_path / "corpus"), "-l", "es", "-l", "fr", "--model", str(model), "--json")
    assert done.exit_code == 0, done.output
    counts = json.loads(done.stdout)["num_tokens"]
    for code in ("es", "fr"):
        assert len(read_shortlist(model, code, 90)) == counts[code] == 8  # pad, eos, bos, three words of prefix, w1, w2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "0.4"], "did you mean '0.4B'"),
        (["info", "0.4B", "--policy", "some"], "unknown freezing policy 'some'"),
        (["prepare", "0.4B", "--florence", "./nowhere", "--gemma", "./nowhere", "-o", "out"], "no such folder"),
        (["import", "./nowhere", "-o", "out"], "no such folder"),
        (["shortlist", "./nowhere", "--language", "zh", "--model", "./nowhere"], "nowhere"),
    ],
)
def test_a_mistake_is_one_line(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    done = run(*arguments)
    assert done.exit_code == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not list(tmp_path.iterdir())
