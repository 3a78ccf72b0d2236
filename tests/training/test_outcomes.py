"""What a user of `babelcap train` meets: evaluation that says what it does, Ctrl-C, refusals that name the reason."""

import json
import multiprocessing
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel
from typer.testing import CliRunner

from babelcap import cli
from babelcap.cli import app
from babelcap.config import build_config, load_config, write_config
from babelcap.coverage import Coverage
from babelcap.data.store.manifest import read_corpus_manifest, write_corpus_manifest
from babelcap.data.store.store import CorpusWriter
from babelcap.errors import UserError
from babelcap.evaluation.loss import LossEvaluation, loss_evaluation
from babelcap.measures import LOSS
from babelcap.records import Annotation
from babelcap.storage import read_json, write_json
from babelcap.training.config import TrainConfig
from babelcap.training.cost import named_size, run_cost
from babelcap.training.record import folder_hash
from babelcap.training.run import train, with_coverage

MakeConfig = Callable[..., TrainConfig]
CONFIGS = Path(__file__).parents[2] / "configs"
SOURCE = Path(__file__).parents[2] / "src" / "babelcap"
FORK = multiprocessing.get_context("fork")


def run_command(config: TrainConfig, *arguments: str) -> Any:
    """`babelcap train` in this process."""
    path = config.output.with_suffix(".json")
    write_config(path, config)
    return CliRunner().invoke(app, ["train", str(path), *arguments])


def rename_split(corpus: Path, new: Path, name: str) -> None:
    """A copy of the tiny corpus whose eval split is called otherwise, and lacks captions in Spanish."""
    from babelcap.data.store.store import Corpus

    opened = Corpus.open(corpus)
    with CorpusWriter(new, provenance={}, images_per_tar=20) as writer:
        for row in opened.rows():
            content = opened.tar_path(row.tar).read_bytes()[row.offset : row.offset + row.length]
            kept: list[Annotation] = [text for text in row.annotations if str(text.pair) != "caption-es"]
            writer.add(row.key, content, "png", name if row.split == "eval" else row.split, kept)


# Evaluation


@pytest.mark.parametrize("name", ["val", "test"])
def test_evaluation_takes_the_split_that_is_there_and_says_so(
    make_config: MakeConfig, tiny_corpus: Path, tmp_path: Path, name: str
) -> None:
    rename_split(tiny_corpus, tmp_path / "renamed", name)
    config = make_config(budgets=[1], data__corpus=str(tmp_path / "renamed"), export=False)
    found = run_command(config)
    assert found.exit_code == 0, found.output
    assert f"evaluating on split '{name}': caption-zh, " in found.stderr
    assert "not there: caption-es" in found.stderr
    record = read_json(config.output / "budget-000001" / "record.json")
    assert {result["split"] for result in record["results"]} == {name}
    assert "caption-es" not in record["results"][0]["per_pair"]


def test_a_corpus_without_such_a_split_is_told(make_config: MakeConfig, tiny_corpus: Path, tmp_path: Path) -> None:
    rename_split(tiny_corpus, tmp_path / "renamed", "other")
    found = run_command(make_config(budgets=[1], data__corpus=str(tmp_path / "renamed"), export=False))
    assert found.exit_code == 0, found.output
    assert "no evaluation, because it has none of the splits eval, val, test (it has: other, train)" in found.stderr


def test_a_run_without_evaluation_is_evaluated_later(
    make_config: MakeConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config(budgets=[2])
    evaluation = loss_evaluation(config.data.corpus, config.coverage, LossEvaluation(config.data))
    (plain,) = train(config)
    assert (plain.results, plain.initial, plain.T) == ([], [], {})
    metrics = config.output / "budget-000002" / "metrics.jsonl"
    before = metrics.stat().st_mtime_ns
    (later,) = train(config, evaluation)
    assert metrics.stat().st_mtime_ns == before, "nothing is trained again"
    at_once = build_config(TrainConfig, config.model_dump(mode="json") | {"output": str(tmp_path / "at-once")})
    (expected,) = train(at_once, evaluation)
    assert later.results == expected.results
    assert later.initial == expected.initial
    assert later.T == expected.T == next(r.per_split for r in later.initial if r.measure == LOSS)
    assert train(config, evaluation) == [later]


def test_a_model_that_was_not_exported_cannot_be_evaluated_later(
    make_config: MakeConfig, capsys: pytest.CaptureFixture[str]
) -> None:
    config = make_config(budgets=[1], export=False)
    train(config)
    (record,) = train(config, loss_evaluation(config.data.corpus, config.coverage, LossEvaluation(config.data)))
    assert record.results == []
    assert "cannot be evaluated: its model was not exported" in capsys.readouterr().err


# Stopping


def _start(config: TrainConfig, errors: Path) -> Any:
    def work() -> None:
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT, 0o644), 2)
        sys.stderr = os.fdopen(2, "w", buffering=1, closefd=False)
        path = config.output.with_suffix(".json")
        write_config(path, config)
        app(["train", str(path), "--no-evaluate"])

    process = FORK.Process(target=work)
    process.start()
    return process


def _wait_for_lines(path: Path, number: int) -> None:
    deadline = time.monotonic() + 120
    while not (path.exists() and path.read_bytes().count(b"\n") >= number) and time.monotonic() < deadline:
        time.sleep(0.002)


def test_control_c_saves_and_says_how_to_go_on(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config(budgets=[500], checkpoint__every_steps=1000, data__num_workers=1)
    process = _start(config, tmp_path / "stderr")
    metrics = config.output / "budget-000500" / "metrics.jsonl"
    _wait_for_lines(metrics, 3)
    os.kill(process.pid, signal.SIGINT)
    process.join(60)
    said = (tmp_path / "stderr").read_text()
    assert process.exitcode == 130, said
    steps = metrics.read_bytes().count(b"\n")
    assert "Ctrl-C: saving after this step; press it again to leave at once" in said
    assert f"asked to stop by SIGINT; saved step {steps}; the same command goes on" in said
    assert "Traceback" not in said
    assert (config.output / "budget-000500" / "checkpoints" / f"step-{steps:08d}" / "manifest.json").is_file()


def test_a_second_control_c_leaves_at_once(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config(budgets=[500])
    code = """
import os, signal, sys, time
from babelcap.jobs.signals import stop_requests
with stop_requests() as stop:
    with stop.waiting():
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.name == "SIGINT"
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
        except KeyboardInterrupt:
            sys.exit(7)
"""
    assert subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL, check=False).returncode == 7
    # Outside of steps, where there is nothing to save, the first one leaves.
    outside = code.replace("    with stop.waiting():\n        os.kill(os.getpid(), signal.SIGINT)\n", "    if True:\n")
    outside = outside.replace('        assert stop.name == "SIGINT"\n', "")
    assert subprocess.run([sys.executable, "-c", outside], stderr=subprocess.DEVNULL, check=False).returncode == 7
    assert not config.output.exists()


# What is said


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"optimiser__learning_rate": 2e-3}, r"config: optimiser\.learning_rate is 0\.001 there and 0\.002 here;"),
        ({"budgets": [3]}, r"another config: budgets is \[2\] there and \[3\] here;"),
        ({"seed": 4, "dropout": 0.5}, r"dropout is None there and 0\.5 here \(and 1 more: seed\);"),
        ({"data__mixture": {"weights": {"caption-en": 1.0}}}, r"data\.mixture\.weights is 'uniform' there and"),
    ],
)
def test_another_config_names_the_key(make_config: MakeConfig, changed: dict[str, Any], message: str) -> None:
    config = make_config(budgets=[2])
    (config.output).mkdir(parents=True)
    write_config(config.output / "config.json", with_coverage(config))
    write_json(config.output / "run.json", {"config_hash": "0" * 16})
    with pytest.raises(UserError, match=message):
        train(make_config(**{"budgets": [2]} | changed))


def test_coverage_comes_from_the_corpus(make_config: MakeConfig, tiny_corpus: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "narrow"
    shutil.copytree(tiny_corpus, corpus)
    seen = ["caption-en", "translation-de"]
    write_corpus_manifest(
        corpus, read_corpus_manifest(corpus).model_copy(update={"coverage": Coverage(seen=tuple(seen))})
    )
    config = make_config(budgets=[1], data__corpus=str(corpus), export=False)
    (record,) = train(config)
    assert set(record.extra["samples_by_pair"]) <= set(seen)
    assert read_json(config.output / "config.json")["coverage"]["seen"] == seen
    given = make_config(budgets=[1], data__corpus=str(corpus), coverage={"seen": ["caption-de"]})
    assert with_coverage(given).coverage.seen == ("caption-de",)


def test_dry_run_of_a_model_that_is_not_there_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(app, ["train", str(CONFIGS / "micro" / "pretrain.toml"), "--dry-run"])
    assert found.exit_code == 0, found.output
    assert found.stderr.startswith("models/micro-gemma-l: no such folder; planned by size micro-gemma-l; `babelcap mod")
    assert "575 of 32 samples" in found.stdout
    config = load_config(TrainConfig, CONFIGS / "pretrain" / "0.4B.toml", ["model=models/mine"])
    with pytest.raises(UserError, match=r"model: models/mine: no such folder; `babelcap model prepare SIZE .*--size"):
        run_cost(config, 1)


def test_the_size_that_a_path_names() -> None:
    assert named_size("models/0.4B") == "0.4B"
    assert named_size("runs/pretrain-11.2B/budget-010000/model") == "11.2B"
    assert named_size("models/micro-gemma-l") == "micro-gemma-l"
    assert named_size("models/10.4B") is None
    assert named_size("models/mine") is None


def test_a_missing_model_says_what_makes_it(make_config: MakeConfig) -> None:
    with pytest.raises(UserError, match=r"no such folder.*the training whose output is a/b/c makes it"):
        train(make_config(model="a/b/c/budget-000010/model"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("seed", -1), ("batch_size", 0), ("budgets", [0]), ("dropout", 1.0), ("name", "x\ntouch y #"), ("name", "../x"),
        ("optimiser.learning_rate", float("inf")), ("optimiser.betas", [0.9, 1.0]), ("optimiser.betas", [-0.1, 0.9]),
        ("optimiser.max_gradient_norm", 0), ("optimiser.weight_decay", -1), ("schedule.decay_share", 0),
        ("schedule.warmup_steps", -1), ("parallel.replicas", 0), ("parallel.num_threads", 0), ("log.peak_tflops", 0),
        ("parallel.micro_batch_size", 0), ("checkpoint.keep", 0), ("log.every_steps", 0), ("data.num_workers", 100_000),
        ("data.image_size_px", 0),
    ],
)  # fmt: skip
def test_numbers_have_bounds(field: str, value: Any) -> None:
    values: dict[str, Any] = {"model": "m", "data": {"corpus": "c"}}
    *blocks, key = field.split(".")
    table = values
    for block in blocks:
        table = table.setdefault(block, {})
    table[key] = value
    with pytest.raises(UserError, match=re.escape(field)):
        build_config(TrainConfig, values)


def _fields(model: type[BaseModel], prefix: str = "") -> list[str]:
    names = []
    for name, field in model.model_fields.items():
        inner = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel) and inner is not Coverage:
            names += _fields(inner, f"{prefix}{name}.")
        else:
            names.append(f"{prefix}{name}")
    return names


@pytest.mark.parametrize("field", _fields(TrainConfig))
def test_every_setting_is_used(field: str) -> None:
    """No setting is accepted and ignored: something outside of its declaration asks for it."""
    name = field.rpartition(".")[2]
    used = [path for path in SOURCE.rglob("*.py") if re.search(rf"[\w\])]\.{name}\b(?!\()", path.read_text("utf-8"))]
    assert used, f"{field} is in the configuration, and nothing reads it"


def test_the_model_hash_covers_the_tokenizers(tiny_models: dict[str, Path], tmp_path: Path) -> None:
    copy = tmp_path / "model"
    shutil.copytree(tiny_models["bart"], copy)
    before = folder_hash(copy)
    assert before == folder_hash(tiny_models["bart"])
    for name in ("surgery.json", "done.json", "manifest.json", "README.md"):  # what is told about a model is not it
        (copy / name).write_text("{}")
    assert folder_hash(copy) == before
    path = next(path for path in sorted(copy.rglob("tokenizer.json")))
    path.write_text(json.dumps(json.loads(path.read_text()) | {"truncation": None}, indent=1))
    assert folder_hash(copy) != before


@pytest.mark.parametrize(("name", "value"), [("RANK", "one"), ("WORLD_SIZE", "0"), ("LOCAL_RANK", "-1")])
def test_a_bad_environment_is_one_line(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=f"{name} is '{value}'"):
        train(make_config())


@pytest.mark.slow
def test_logs_have_no_progress_bars(make_config: MakeConfig) -> None:
    config = make_config(budgets=[1])
    path = config.output.with_suffix(".json")
    write_config(path, config)
    environment = os.environ | {"PYTHONPATH": str(SOURCE.parent)}
    command = [sys.executable, "-m", "babelcap", "train", str(path), "--no-evaluate"]
    found = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert found.returncode == 0, found.stderr
    assert (config.output / "budget-000001" / "model" / "manifest.json").is_file()
    assert "\r" not in found.stderr
    assert "it/s]" not in found.stderr


def test_bars_of_other_libraries_are_for_terminals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_HUB_DISABLE_PROGRESS_BARS", raising=False)
    monkeypatch.setattr(cli, "app", lambda: None)
    cli.main()  # pytest's standard error is no terminal
    assert os.environ.pop("HF_HUB_DISABLE_PROGRESS_BARS") == "1"
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    cli.main()
    assert "HF_HUB_DISABLE_PROGRESS_BARS" not in os.environ
