"""Which model made a shard: by content, so that other weights in the same place are another model."""

import os
from collections.abc import Callable
from pathlib import Path

import huggingface_hub
import pytest

from babelcap.generate.config import BuildConfig
from babelcap.generate.models import hub_version, model_mark
from babelcap.generate.pipeline import Build
from babelcap.jobs.stages import Engine
from babelcap.storage import RememberedChecksums, write_manifest


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "llava"
    (folder / "tokenizer").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(b"weights")
    (folder / "tokenizer" / "vocab.txt").write_text("a\nb\n")
    return folder


def test_a_folder_is_known_by_what_is_in_it(model: Path, tmp_path: Path) -> None:
    def mark() -> str:
        return model_mark(str(model), RememberedChecksums(tmp_path / "none.json"))

    first = mark()
    assert first.startswith("llava@")
    assert len(first) == len("llava@") + 16
    os.utime(model / "model.safetensors", (1, 1))
    (model / "README.md").write_text("a card that people edit")
    (model / ".cache").mkdir()
    (model / ".cache" / "x").write_text("what desktops leave behind")
    (model / "surgery.json").write_text('{"where": "it came from"}')
    write_manifest(model)
    assert mark() == first
    (model / "model.safetensors").write_bytes(b"Weights")
    assert mark() != first
    (model / "model.safetensors").write_bytes(b"weights")
    (model / "tokenizer" / "vocab.txt").write_text("b\na\n")
    assert mark() != first


def test_a_hub_id_stands_for_itself_and_the_receipt_tells_its_revision(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert model_mark("someone/model", RememberedChecksums(tmp_path / "none.json")) == "someone/model"
    found = tmp_path / "snapshots" / "0123456789abcdef0123" / "config.json"
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda model, file: str(found))
    assert hub_version("captioner", "someone/model") == {"captioner": "someone/model@0123456789abcdef"}
    assert hub_version("captioner", str(tmp_path)) == {}
    monkeypatch.setattr(huggingface_hub, "try_to_load_from_cache", lambda model, file: None)
    assert hub_version("captioner", "someone/model") == {}


def test_other_weights_make_their_stage_again_and_no_other(
    tmp_path: Path, model: Path, settings: Callable[..., BuildConfig], here: Engine
) -> None:
    def hashes() -> dict[str, str]:
        caption = {"backend": "transformers", "model": str(model)}
        build = Build(settings(tmp_path / "out", caption=caption), here)
        stages = {
            "caption": build._model_stage("caption", "caption:caption_shard", build.config.caption),
            "embed": build._model_stage("embed_images", "embed:embed_images", build.config.embed),
        }
        assert stages["caption"].resources["model"] == str(model)
        assert stages["caption"].models["captioner"] == stages["caption"].settings["model"]
        return {name: stage.hash for name, stage in stages.items()}

    first = hashes()
    os.utime(model / "model.safetensors", (1, 1))
    assert hashes() == first
    (model / "model.safetensors").write_bytes(b"other weights")
    second = hashes()
    assert second["caption"] != first["caption"]
    assert second["embed"] == first["embed"]


def test_a_server_needs_no_gpu_here(tmp_path: Path, settings: Callable[..., BuildConfig], here: Engine) -> None:
    def gpus(**caption: str) -> float:
        build = Build(settings(tmp_path / "out", caption=caption, gpus_per_worker=0.5), here)
        return build._model_stage("caption", "caption:caption_shard", build.config.caption).gpus_per_worker

    assert gpus(backend="server", device="cuda") == gpus(backend="transformers", device="cpu") == 0
    assert gpus(backend="transformers", device="cuda") == 0.5
