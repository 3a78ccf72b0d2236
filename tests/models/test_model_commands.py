"""`babelcap model ...` from the command line: what is printed, and one line with exit code 2 for a mistake."""

import copy
import inspect
import io
import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from babelcap.cli import app
from babelcap.cli.model import group as model_commands
from babelcap.coverage import TRANSLATION
from babelcap.data.store.store import CorpusWriter
from babelcap.errors import UserError
from babelcap.models import CaptionProcessor, load_model
from babelcap.models.checkpoints.tokenizers import tokenizer_doubts
from babelcap.models.checkpoints.weights import Checkpoint
from babelcap.models.generation.shortlist import read_shortlist
from babelcap.models.sizing.info import model_info
from babelcap.models.sizing.sizes import size_config
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


def test_info_of_the_model_that_comes_along() -> None:
    """`micro` is its name everywhere, not only where it captions."""
    done = run("info", "micro", "--json")
    assert done.exit_code == 0, done.output
    assert 2.5e6 < json.loads(done.stdout)["P"] < 2.7e6


def test_policies_are_listed() -> None:
    known = {"pretraining", "finetuning", "text", "all", "cross-attention", "bridge"}
    assert set(json.loads(run("freezing", "--json").stdout)) == known


def test_import_of_a_published_checkpoint(golden_fixtures: Path, tmp_path: Path) -> None:
    source = tmp_path / "published"
    source.mkdir()
    for name, place in (
        ("reference_config.json", "config.json"),
        ("reference_weights.safetensors", "model.safetensors"),
    ):
        (source / place).write_bytes((golden_fixtures / "florence2" / name).read_bytes())
    done = run("import", str(source), "--without-tokenizers", "-o", str(tmp_path / "ours"))
    assert done.exit_code == 0, done.output
    data = json.loads(run("info", str(tmp_path / "ours"), "--image-size-px", "64", "--json").stdout)
    assert data["decoder"] == "bart"
    tuned = ("import", str(source), "--without-tokenizers", "--full-coverage", "-o", str(tmp_path / "tuned"))
    assert run(*tuned).exit_code == 0
    holes = [load_model(tmp_path / name).config.get_coverage().hole for name in ("ours", "tuned")]
    assert [len(hole) for hole in holes] == [4, 0]


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
        (["check", "./nowhere"], "no such folder"),
        (["push", "./nowhere", "owner/model"], "no such folder"),
        (["push", "./nowhere", "model"], "owner/model"),
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


@pytest.mark.parametrize(("size", "bound"), [("0", "equal to 1"), ("-5", "equal to 1"), ("5000", "equal to 4096")])
def test_image_sizes_have_bounds(size: str, bound: str) -> None:
    done = run("info", "micro-gemma-s", "--image-size-px", size)
    assert done.exit_code == 2
    assert bound in " ".join(done.stderr.replace("│", " ").split())
    with pytest.raises(UserError, match=f"image_size_px is {size}"):
        model_info(size_config("micro-gemma-s"), int(size))


def test_every_number_of_every_model_command_has_bounds() -> None:
    numbers = [
        (command.callback.__name__, name, parameter.default)
        for command in model_commands.registered_commands
        for name, parameter in inspect.signature(command.callback).parameters.items()
        if parameter.annotation in (int, float, int | None, float | None)
    ]
    assert len(numbers) == 9
    for command, name, option in numbers:
        assert option.min is not None, f"{command}: {name} has no lower bound"


def test_check_says_what_is_damaged(model_folder: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(model_folder, tmp_path / "model"))
    done = run("check", str(model))
    assert done.exit_code == 0, done.output
    assert "are well" in done.stdout
    for name in ("config.json", "decoder_tokenizer/tokenizer.json"):
        (model / name).write_bytes((model / name).read_bytes().replace(b"e", b"f", 1))
    done = run("check", str(model))
    assert done.exit_code == 1
    assert [line.partition(" is ")[0] for line in done.stdout.splitlines()] == [
        str(model / "config.json"),
        str(model / "decoder_tokenizer/tokenizer.json"),
    ]
    data = json.loads(run("check", str(model), "--json").stdout)
    assert len(data["problems"]) == 2


def test_check_of_a_folder_without_a_manifest(model_folder: Path, tmp_path: Path) -> None:
    model = Path(shutil.copytree(model_folder, tmp_path / "model"))
    before = (model / "manifest.json").read_bytes()
    (model / "manifest.json").unlink()
    done = run("check", str(model))
    assert done.exit_code == 0
    assert "no manifest.json" in done.stdout
    assert "--write" in done.stdout
    assert not (model / "manifest.json").exists()
    assert run("check", str(model), "--write").exit_code == 0
    assert json.loads((model / "manifest.json").read_bytes()) == json.loads(before)


def test_import_says_at_once_that_tokenizers_are_missing_or_others(
    golden_fixtures: Path, processor: CaptionProcessor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "published"
    source.mkdir()
    (source / "config.json").write_bytes((golden_fixtures / "florence2" / "reference_config.json").read_bytes())
    monkeypatch.setattr(Checkpoint, "read_all", lambda self: pytest.fail("weights were read before the tokenizers"))
    done = run("import", str(source), "-o", str(tmp_path / "ours"))
    assert done.exit_code == 2
    assert "--encoder-tokenizer and --decoder-tokenizer" in done.stderr
    processor.encoder_tokenizer.save_pretrained(tmp_path / "small")
    large = copy.deepcopy(processor.decoder_tokenizer)
    large.add_tokens([f"more{number}" for number in range(1000)])
    large.save_pretrained(tmp_path / "large")
    named = ["--encoder-tokenizer", str(tmp_path / "small"), "--decoder-tokenizer"]
    done = run("import", str(source), "-o", str(tmp_path / "ours"), *named, str(tmp_path / "large"))
    assert done.exit_code == 2
    assert "the decoder's tokenizer has 1090 tokens, its vocabulary" in done.stderr
    done = run("import", str(source), "-o", str(tmp_path / "ours"), *named, str(tmp_path / "small"))
    assert done.exit_code == 2
    assert "they do not belong together" in done.stderr  # other special tokens
    assert not (tmp_path / "ours").exists()


def test_a_tokenizer_with_far_fewer_tokens_than_rows_is_doubted(processor: CaptionProcessor) -> None:
    encoder, decoder = processor.encoder_tokenizer, processor.decoder_tokenizer
    padded = SimpleNamespace(encoder_config=SimpleNamespace(vocab_size=len(encoder)), vocab_size=len(decoder) + 127)
    assert tokenizer_doubts(padded, encoder, decoder) == []  # type: ignore[arg-type]
    padded.vocab_size += 1
    (line,) = tokenizer_doubts(padded, encoder, decoder)  # type: ignore[arg-type]
    assert line.startswith(f"the decoder's tokenizer has {len(decoder)} tokens, its vocabulary {len(decoder) + 128}; ")
