"""A captioner of this package as the captioner of a build; here, where a tiny one is at hand."""

import io
import tarfile
from pathlib import Path

from PIL import Image

import babelcap
from babelcap.coverage import Style
from babelcap.generate.backends.captioners import Question
from babelcap.generate.caption import CaptionConfig, caption_shard, load_captioner


def test_a_captioner_captions_the_images_of_a_tar(model_folder: Path, tmp_path: Path) -> None:
    images = {name: Image.new("RGB", (40, 30), name) for name in ("red", "green", "blue")}
    with tarfile.open(tmp_path / "00000.tar", "w") as tar:
        for name, image in images.items():
            stream = io.BytesIO()
            image.save(stream, "PNG")
            info = tarfile.TarInfo(f"{name}.png")
            info.size = len(stream.getvalue())
            tar.addfile(info, io.BytesIO(stream.getvalue()))
    config = CaptionConfig(
        backend="babelcap", model=str(model_folder), batch_size=2, max_new_tokens=6, num_beams=2, check_language=False
    )
    settings = config.model_dump(mode="json") | {"output": str(tmp_path / "00000.parquet")}
    output = caption_shard({"tar": tmp_path / "00000.tar"}, settings)
    assert output.num_in == 3 == output.num_out + sum(output.drops.values())
    pipeline = babelcap.load(model_folder, device="cpu")
    expected = pipeline.caption(images["red"], "en", style=Style.DETAILED, max_new_tokens=6, num_beams=2)[0].text
    captioner = load_captioner(config)
    assert captioner.answer([Question("red", images["red"], "a prompt")])[0].text == expected
