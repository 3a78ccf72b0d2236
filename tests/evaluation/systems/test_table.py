"""Opening systems by name: what is missing, damaged or of another kind is one clear line."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from babelcap.errors import UserError
from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.benchmarks.xm3600 import LANGUAGES
from babelcap.evaluation.systems import SYSTEMS, SystemOptions, open_system
from babelcap.evaluation.systems.settings import fill, language_of

OPTIONS = SystemOptions(device="cpu")
SINGLE = [name for name in SYSTEMS if name != "cascade"]


@pytest.mark.parametrize("name", SINGLE)
def test_a_model_that_is_not_there(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder") as caught:
        open_system(f"{name}:{tmp_path / 'nothing'}", OPTIONS)
    assert "\n" not in str(caught.value)
    with pytest.raises(UserError, match=f"{name}: no model given; write {name}:MODEL"):
        open_system(f"{name}:", OPTIONS)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"config.json: no such file; this is not a model's folder"):
        open_system(f"{name}:{tmp_path / 'empty'}", OPTIONS)


@pytest.mark.parametrize("name", ["ours", "florence2", "nllb"])
def test_weights_that_are_missing_or_pickled(name: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = tmp_path / name
    shutil.copytree(request.getfixturevalue("gemma3" if name == "chat" else name), folder)
    (folder / "model.safetensors").unlink()
    (folder / "manifest.json").unlink(missing_ok=True)
    torch.save({}, folder / "pytorch_model.bin")
    with pytest.raises(UserError, match="safetensors") as caught:
        open_system(f"{name}:{folder}", OPTIONS)
    assert "\n" not in str(caught.value)


def test_a_model_of_another_kind(florence2: Path, paligemma: Path, nllb: Path, blip2: Path) -> None:
    for name, folder, message in (
        ("florence2", paligemma, "florence2: '.*' is a model of type 'paligemma', not florence2"),
        ("paligemma", blip2, "paligemma: '.*' is a model of type 'blip-2', not paligemma"),
        ("nllb", florence2, "nllb: '.*' is a model of type 'florence2', not m2m_100 or t5 or marian"),
        ("chat", paligemma, "chat: '.*' has no chat template; it is not a chat model"),
        ("chat", nllb, "chat: '.*' cannot be loaded"),
        ("ours", nllb, "encoder_tokenizer: no such tokenizer; name the one this model was trained with"),
    ):
        with pytest.raises(UserError, match=message):
            open_system(f"{name}:{folder}", OPTIONS)


def test_a_package_that_is_missing(florence2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from babelcap.evaluation.systems import loading

    def broken(*_: object) -> None:
        raise ImportError("Florence2Processor requires the Tokenizers library\nbut it was not found")

    monkeypatch.setattr(loading, "load_processor", broken)
    with pytest.raises(UserError, match=r"florence2: '.*' needs a package that is not installed \(Florence2Processor"):
        open_system(f"florence2:{florence2}", OPTIONS)


def test_unknown_names_and_options(florence2: Path) -> None:
    with pytest.raises(UserError, match="unknown system 'florence'; did you mean 'florence2'"):
        open_system(f"florence:{florence2}", OPTIONS)
    for change in ({"prefix": "none"}, {"shortlist": True}, {"image_size_px": 768}):
        (name,) = change
        with pytest.raises(UserError, match=f"florence2 has no {name}; that is an option of ours:MODEL"):
            open_system(f"florence2:{florence2}", replace(OPTIONS, **change))
    with pytest.raises(UserError, match="florence2: dtype: String should match pattern"):
        open_system(f"florence2:{florence2}", replace(OPTIONS, dtype="int8"))
    with pytest.raises(UserError, match="device 'moon' cannot be used here"):
        open_system(f"florence2:{florence2}", replace(OPTIONS, device="moon"))


def test_a_picture_that_cannot_be_read(florence2: Path, tmp_path: Path) -> None:
    (tmp_path / "bad.png").write_bytes(b"no picture")
    with pytest.raises(UserError, match=r"florence2: .*bad.png cannot be used \(not an image"):
        open_system(f"florence2:{florence2}", OPTIONS).caption([Item("x", tmp_path / "bad.png", "en", "caption")])


def test_every_language_of_the_benchmarks_has_a_name() -> None:
    found = [language_of(code) for code in LANGUAGES]
    assert len({language.nllb for language in found}) == len({language.name for language in found}) == 36
    with pytest.raises(UserError, match="unknown language 'xx'"):
        language_of("xx")


def test_places_of_a_prompt() -> None:
    item = Item("x", Path("x.png"), "ja", "translation", source="a {code} b")
    assert fill("To {name} ({code}): {source}", item) == "To Japanese (ja): a {code} b"
    assert fill("{other} {", item) == "{other} {"
    assert fill("{source} ### ({caption})", item, "a {source}") == "a {code} b ### (a {source})"


def test_identity_follows_the_files(florence2: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(florence2, copy)
    first: dict[str, Any] = dict(open_system(f"florence2:{florence2}", OPTIONS).identity)
    assert dict(open_system(f"florence2:{copy}", OPTIONS).identity) == first
    config = json.loads((copy / "generation_config.json").read_text())
    (copy / "generation_config.json").write_text(json.dumps(config | {"no_repeat_ngram_size": 3}))
    assert dict(open_system(f"florence2:{copy}", OPTIONS).identity) != first
