"""Image tokens kept in a folder: the tower runs once an image, and what is kept is never used for anything else."""

from pathlib import Path

import pytest
import torch
from PIL import Image

from babelcap.coverage import Coverage
from babelcap.errors import UserError
from babelcap.models import Captioner, CaptionProcessor, GenerationRequest, GenerationSettings
from babelcap.models.generation.core import GenerationCore
from babelcap.models.generation.kept_features import KeptFeatures

SETTINGS = GenerationSettings(num_beams=2, max_new_tokens=5)


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for number, path in enumerate(paths):
        Image.effect_noise((40, 30), 30 * number + 20).convert("RGB").save(path)
    return paths


@pytest.fixture
def core(captioner: Captioner, processor: CaptionProcessor, tmp_path: Path) -> GenerationCore:
    found = GenerationCore(captioner, processor, Coverage())
    found.keep_features(tmp_path / "features")
    return found


def texts(core: GenerationCore, pictures: list[Path]) -> list[str]:
    requests = [GenerationRequest(code, image=path, settings=SETTINGS) for path in pictures for code in ("de", "fr")]
    return [result.text for result in core.generate(requests, batch_size=4)]


def kept_files(core: GenerationCore) -> list[Path]:
    assert core.kept_features is not None
    return sorted(core.kept_features.folder.glob("*.tokens"))


def test_the_tower_runs_once_an_image(
    core: GenerationCore, pictures: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = GenerationCore(core.model, core.processor, Coverage())
    expected = texts(plain, pictures)
    assert texts(core, pictures[:2]) == expected[:4]
    seen = []
    encode = core.encode_pixels
    monkeypatch.setattr(core, "encode_pixels", lambda pixels: seen.append(len(pixels)) or encode(pixels))
    assert texts(core, pictures) == expected
    assert sum(seen) == 1  # the third picture alone
    renamed = tmp_path / "another name.png"
    pictures[0].rename(renamed)
    assert texts(core, [renamed]) == expected[:2]
    assert sum(seen) == 1  # known by what it shows


def test_a_damaged_file_is_computed_again(core: GenerationCore, pictures: list[Path]) -> None:
    expected = texts(core, pictures[:1])
    (path,) = kept_files(core)
    whole = path.read_bytes()
    for damaged in (whole[:-1], whole[:40] + bytes([whole[40] ^ 1]) + whole[41:], b"", whole[:-4] + bytes(4)):
        path.write_bytes(damaged)
        assert texts(core, pictures[:1]) == expected
        assert path.read_bytes() == whole


def test_other_weights_or_rounding_have_a_folder_of_their_own(core: GenerationCore, tmp_path: Path) -> None:
    model, folder = core.model, tmp_path / "features"
    names = {KeptFeatures(folder, model).folder}
    weight = next(model.encoder.image_modules()[0].parameters())
    before = weight.detach().clone()
    with torch.no_grad():
        weight.add_(1)
        names.add(KeptFeatures(folder, model).folder)
        weight.copy_(before)
    model.quantise = "int8"
    names.add(KeptFeatures(folder, model).folder)
    model.quantise = None
    assert len(names) == 3


def test_a_file_in_the_folders_place_is_told(core: GenerationCore, tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(UserError, match=r"taken is a file; features are kept in a folder"):
        core.keep_features(tmp_path / "taken")
