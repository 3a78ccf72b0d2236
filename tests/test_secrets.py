"""Secrets of the environment and of configurations: in no file of a run, in no log, in no message."""

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.config import build_config
from babelcap.errors import UserError
from babelcap.generate.backends.captioners import Question
from babelcap.generate.backends.server import ChatServer
from babelcap.generate.config import BuildConfig
from babelcap.jobs.pool import Pool
from babelcap.storage import write_json
from babelcap.training.config import TrainConfig
from tiny_training import make_corpus, save_model, train_values

# Put together here, so that no scanner takes them for real ones.
SECRETS = {
    "HF_TOKEN": "hf_" + "Ab3" * 12,
    "WANDB_API_KEY": "wandb_v1_" + "0f" * 20,
    "OPENAI_API_KEY": "sk-" + "xyz0" * 8,
}
FAILING = "def run(job):\n    raise ValueError('not like this')\n"


@pytest.fixture
def secrets(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    return list(SECRETS.values())


def files_with(folder: Path, secrets: list[str]) -> list[str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    return [path.name for path in files if any(secret.encode() in path.read_bytes() for secret in secrets)]


def test_a_training_writes_no_secret_of_its_environment(tmp_path: Path, secrets: list[str]) -> None:
    model, corpus = save_model("bart", tmp_path / "model"), make_corpus(tmp_path / "corpus")
    settings: dict[str, Any] = {"budgets": [2], "batch_size": 4, "parallel__micro_batch_size": 4}
    settings |= {"log__trackers": ["tensorboard"]}
    write_json(tmp_path / "train.json", train_values(model, corpus, tmp_path / "run", **settings))
    done = CliRunner().invoke(app, ["train", str(tmp_path / "train.json")])
    assert done.exit_code == 0, done.output
    assert not any(secret in done.output for secret in secrets)
    assert list((tmp_path / "run").rglob("events.*"))
    assert files_with(tmp_path, secrets) == []


def test_the_log_of_a_worker_that_fails_has_none(
    tmp_path: Path, secrets: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "failing_jobs.py").write_text(FAILING)
    monkeypatch.syspath_prepend(str(tmp_path))
    with Pool(1, "failing_jobs:run", tmp_path / "logs") as pool:
        pool.start({})
        outcomes = []
        while not outcomes:
            outcomes = pool.wait(1.0)
    assert "not like this" in (tmp_path / "logs" / "worker-0.log").read_text()
    assert not any(secret in outcomes[0].trace for secret in secrets)
    assert files_with(tmp_path / "logs", secrets) == []


def test_a_server_gets_the_key_and_nobody_else(tmp_path: Path, secrets: list[str]) -> None:
    """The journal and the refusal of a server that answers 401 do not repeat it."""
    asked: list[bytes] = []

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(head := await reader.readuntil(b"\r\n\r\n"))
        (length,) = re.findall(rb"content-length: (\d+)", head.lower())
        await reader.readexactly(int(length))
        writer.write(b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    async def ask() -> None:
        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        chat = ChatServer("m", [url], patience_seconds=5, journal=str(tmp_path / "journal.jsonl"))
        async with server:
            await chat._answer_all([Question("1", Image.new("RGB", (8, 8)), "What is this?")])

    with pytest.raises(UserError, match="its key is refused") as refused:
        asyncio.run(ask())
    assert SECRETS["OPENAI_API_KEY"].encode() in asked[0]
    assert not any(secret in str(refused.value) for secret in secrets)
    assert not list(tmp_path.iterdir()) or files_with(tmp_path, secrets) == []


@pytest.mark.parametrize("secret", [*SECRETS.values(), "https://me:pass" + "word@host.example/v1"])
def test_a_configuration_with_a_secret_is_refused_without_repeating_it(secret: str) -> None:
    for model, values in (
        (TrainConfig, {"model": secret, "data": {"corpus": "c"}}),
        (BuildConfig, {"output": "o", "caption": {"urls": ["http://localhost/v1", secret]}}),
        (TrainConfig, {"model": "m", "data": {"corpus": "c"}, secret: 1}),
    ):
        with pytest.raises(UserError, match=r"configuration: a value has a .* in it") as refused:
            build_config(model, values)
        assert secret not in str(refused.value)


def test_what_only_looks_like_one_is_taken() -> None:
    for name in ("hf_home", "org/sk-model", "0f" * 20, "https://host.example:8000/v1@main", "runs/hf_cache/model"):
        assert build_config(TrainConfig, {"model": name, "data": {"corpus": "c"}}).model == name
