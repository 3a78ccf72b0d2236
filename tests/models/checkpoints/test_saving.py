"""What is written: a whole folder with its manifest and its card, and its way to the hub without a network."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from babelcap.errors import UserError
from babelcap.models import CaptionProcessor, load_model, load_processor, write_shortlist
from babelcap.models.checkpoints import hub
from babelcap.models.checkpoints.files import CAPTIONER_FILES
from babelcap.models.checkpoints.saving import save_captioner


@pytest.fixture
def saved(model_folder: Path, processor: CaptionProcessor, tmp_path: Path) -> Path:
    model = load_model(model_folder)
    model.config.coverage = {"languages": ["en", "de", "es"], "seen": ["caption-en", "translation-es"], "splits": {}}
    account = {"sources": {"florence": "owner/Florence-2-base", "gemma": "/home/somebody/gemma-2-2b"}}
    base = tmp_path / "base"
    base.mkdir()
    (base / "surgery.json").write_text(json.dumps(account))
    model.folder = base
    save_captioner(tmp_path / "saved", model, processor)
    return tmp_path / "saved"


class StubApi:
    """Takes the place of the hub; remembers what it was given."""

    uploads: list[dict[str, Any]]

    def __init__(self) -> None:
        StubApi.uploads = []

    def create_repo(self, name: str, *, private: bool, exist_ok: bool) -> str:
        return f"https://hub.test/{name}"

    def upload_folder(self, **options: Any) -> None:
        StubApi.uploads.append(options | {"card": (Path(options["folder_path"]) / "README.md").read_text()})


@pytest.fixture(autouse=True)
def stub(monkeypatch: pytest.MonkeyPatch) -> None:
    StubApi.uploads = []
    monkeypatch.setattr(hub, "HfApi", StubApi)


def test_every_file_is_in_the_manifest_but_the_card(saved: Path) -> None:
    write_shortlist(saved, "de", [3, 7], vocab_size=90)
    listed = set(json.loads((saved / "manifest.json").read_text())["files"])
    there = {path.relative_to(saved).as_posix() for path in saved.rglob("*") if path.is_file()}
    assert there - listed == {"README.md", "manifest.json"}
    assert {"model.safetensors", "surgery.json", "shortlists/de.json", "decoder_tokenizer/tokenizer.json"} <= listed
    load_model(saved, verify=True)
    load_processor(saved)


def test_the_card_says_what_the_model_was_taught(saved: Path) -> None:
    card = (saved / "README.md").read_text()
    assert "language: [en, de, es]" in card
    assert "Trained on: caption-en, translation-es\n" in card
    assert "Never trained on: caption-de, caption-es, translation-de\n" in card
    assert "Made of: owner/Florence-2-base, gemma-2-2b\n" in card
    assert "Florence-2: MIT; Gemma: Gemma Terms of Use" in card
    assert "/home" not in card
    num_parameters = sum(parameter.numel() for parameter in load_model(saved).parameters())
    assert f"Parameters: {num_parameters:,} " in card


def test_a_dry_run_writes_the_card_only(saved: Path) -> None:
    (saved / "README.md").unlink()
    assert hub.push_captioner(saved, "owner/model", dry_run=True) == str(saved / "README.md")
    assert 'babelcap.load("owner/model")' in (saved / "README.md").read_text()
    assert StubApi.uploads == []


def test_push_takes_the_captioners_own_files(saved: Path) -> None:
    assert hub.push_captioner(saved, "owner/model", private=True) == "https://hub.test/owner/model"
    (upload,) = StubApi.uploads
    assert upload["repo_id"] == "owner/model"
    assert set(upload["allow_patterns"]) == {*CAPTIONER_FILES, "manifest.json", "README.md"}
    assert "# owner/model" in upload["card"]


def test_an_edited_card_stays(saved: Path) -> None:
    (saved / "README.md").write_text((saved / "README.md").read_text() + "My own words.\n")
    hub.push_captioner(saved, "owner/model")
    assert StubApi.uploads[0]["card"].endswith("My own words.\n")


def test_nothing_damaged_is_pushed(saved: Path) -> None:
    (saved / "config.json").write_bytes((saved / "config.json").read_bytes().replace(b"0", b"1", 1))
    with pytest.raises(UserError, match=r"config\.json is damaged.*nothing was uploaded"):
        hub.push_captioner(saved, "owner/model")
    with pytest.raises(UserError, match="not a name on the hub"):
        hub.push_captioner(saved, "a b/c")
    assert StubApi.uploads == []


def test_a_model_pushes_itself(saved: Path, processor: CaptionProcessor) -> None:
    model = load_model(saved)
    shutil.rmtree(saved)
    assert model.push_to_hub("owner/mine", processor=processor) == "https://hub.test/owner/mine"
    assert "caption-en" in StubApi.uploads[0]["card"]
