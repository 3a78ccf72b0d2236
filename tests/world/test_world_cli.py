"""The command group `babelcap world`."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.data.store.store import Corpus

SMALL = ["--images", "4", "--eval-images", "2", "--holdout-images", "1", "--text-lines", "40"]


def run(*arguments: str, exit_code: int = 0) -> str:
    result = CliRunner().invoke(app, ["world", *arguments])
    assert result.exit_code == exit_code, result.output
    return result.output


def test_make_and_tokenizers(tmp_path: Path) -> None:
    run("make", "-o", str(tmp_path / "w"), *SMALL, "--seed", "3", "--coverage", "full", "--format", "jpg", "size_px=32")
    corpus = Corpus.open(tmp_path / "w")
    assert corpus.num_images("train") == 4
    assert len(corpus.counts("train")) == 11
    assert corpus.manifest.provenance["config"]["size_px"] == 32
    run("tokenizers", str(tmp_path / "w"), "-o", str(tmp_path / "t"), "--decoder-tokens", "1000")
    assert (tmp_path / "t" / "decoder" / "tokenizer.json").is_file()


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    assert "--size-px" in run("make", "-o", str(tmp_path / "w"), "--size-px", "3", exit_code=2)
    assert "size_px" in run("make", "-o", str(tmp_path / "w"), "size_px=3", exit_code=2)
    assert "num_images" in run("make", "-o", str(tmp_path / "w"), "num_image=3", exit_code=2)
    assert "no grammar for 'it'" in run("sample", "--language", "it", exit_code=2)
    assert "--language" in run("parse", "qwfp zxcv", exit_code=2)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["captions", "web"])
def test_sample_prints_texts(kind: str) -> None:
    lines = run("sample", "--language", "ru", "--num", "5", "--kind", kind).splitlines()
    assert len(lines) == 5
    assert lines == run("sample", "--language", "ru", "--num", "5", "--kind", kind).splitlines()


def test_show_prints_six_languages_and_draws(tmp_path: Path) -> None:
    output = run("show", "--num", "2", "-o", str(tmp_path / "sheet.png"), "--size-px", "16")
    assert len(output.splitlines()) == 2 * 7
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")


def test_parse_prints_what_is_claimed() -> None:
    value = json.loads(run("parse", "Das Bild zeigt einen roten Ball links von zwei blauen Häusern."))
    assert value["language"] == "de"
    assert value["well_formed"] is True
    assert value["relations"] == [["left_of", "ball", "house"]]
    assert {thing["noun"]: thing["count"] for thing in value["things"]} == {"ball": 1, "house": 2}
