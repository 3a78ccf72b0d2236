"""Damaged and odd images through the generation core and `caption`: each is used, or named in one line.

Seeded, so that a verdict can be repeated; `make test-slow` tries some ten thousand.
"""

import os
import random
import resource
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.data.feed.images import decode_image
from babelcap.errors import UserError
from babelcap.models import CaptionPipeline, GenerationRequest, GenerationSettings
from torture.readers.pictures import mutated, whole_images

SETTINGS = GenerationSettings(num_beams=1, max_new_tokens=2, scores=False)
Watch = Callable[[Callable[[], object], object], str]
NUM_DECODED, NUM_DECODED_SLOW, NUM_CAPTIONED = 400, 2000, 60
MAX_EXTRA_MIB = 1500  # resident, above what the tests take: the largest picture that may be decoded, and its resize


@pytest.fixture(scope="module")
def pipeline(tiny_model: Path) -> CaptionPipeline:
    from babelcap.models import load

    return load(tiny_model, device="cpu")


def png(width: int, height: int, colour: int = 2, bits: int = 8, data: bytes = b"") -> bytes:
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", width, height, bits, colour, 0, 0, 0)),
        (b"IDAT", zlib.compress(data)),
        (b"IEND", b""),
    ]
    body = b"".join(struct.pack(">I", len(d)) + n + d + struct.pack(">I", zlib.crc32(n + d)) for n, d in chunks)
    return b"\x89PNG\r\n\x1a\n" + body


ODD = {
    "empty.png": b"",
    "text.jpg": b"no image",
    "zeros.png": b"\0" * 5000,
    "wide.png": png(178_956_970, 1),
    "high.png": png(1, 178_956_970),
    "square.png": png(13_377, 13_377),
    "huge.png": png(2**31 - 1, 2**31 - 1),
    "no-data.png": png(9000, 9000),
    "deep.png": png(60, 60, colour=0, bits=16),
    "script.png": b"#!/bin/sh\ntouch pwned\n",
    "vector.png": b"<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'/>",
    "postscript.jpg": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n",
    "tar.png": b"ustar" * 200,
}


@pytest.mark.parametrize("number", [NUM_DECODED, pytest.param(NUM_DECODED_SLOW, marks=pytest.mark.slow)])
def test_mutated_images_are_used_or_bad_samples(number: int, watch: Watch) -> None:
    draw, whole = random.Random(number), whole_images()
    told = []
    for _ in range(number):
        content = mutated(draw.choice(whole), draw)
        told.append(watch(lambda content=content: decode_image(content, 32, max_pixels=4_000_000), content[:4]))  # type: ignore[misc]
    num_bad = sum(map(bool, told))
    assert min(number - num_bad, num_bad) > number // 20  # both ends of it were tried


def test_mutated_images_through_the_core(pipeline: CaptionPipeline) -> None:
    draw, whole = random.Random(3), whole_images()
    requests = [
        GenerationRequest("de", image=mutated(draw.choice(whole), draw), key=f"image {number}", settings=SETTINGS)
        for number in range(NUM_CAPTIONED)
    ]
    bad: list[str] = []

    def report(request: GenerationRequest, error: UserError) -> None:
        assert len(str(error).splitlines()) == 1
        assert str(error).startswith(f"{request.key}: ")
        bad.append(request.key)

    results = list(pipeline.generate(requests, on_bad_image=report))
    assert len(results) + len(bad) == NUM_CAPTIONED
    assert [r.request.key for r in results] == [r.key for r in requests if r.key not in set(bad)]
    assert results
    assert bad


def test_odd_files_through_the_command(tiny_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "images"
    folder.mkdir()
    for name, content in ODD.items():
        (folder / name).write_bytes(content)
    draw, whole = random.Random(4), whole_images()
    for number in range(20):
        (folder / f"mutated-{number:02d}.png").write_bytes(mutated(draw.choice(whole), draw))
    (folder / "good.png").write_bytes(whole[0])
    (folder / "folder.png").mkdir()
    (folder / "dangling.png").symlink_to(tmp_path / "nowhere")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    arguments = ["caption", str(folder), "-l", "de,es", "-m", str(tiny_model), "--num-beams", "1", "--device", "cpu"]
    done = CliRunner().invoke(app, [*arguments, "--max-new-tokens", "2", "--json"])
    assert isinstance(done.exception, SystemExit)
    assert done.exit_code == 1
    assert done.stdout.count("good.png") == 2
    named = [line for line in done.stderr.splitlines() if "left out" in line]
    assert {name for name in ODD if any(f"/{name}: " in line for line in named)} == set(ODD)
    assert len(named) + 1 == len(done.stderr.splitlines()) - sum("not in" in line for line in done.stderr.splitlines())
    assert not (tmp_path / "pwned").exists()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MAX_EXTRA_MIB * 1024


@pytest.mark.parametrize(
    "name", ["pipe.png", "a\0b.png", "x" * 5000, "/dev/null", "/proc/self/mem", "file:///etc/hostname", "http://"]
)
def test_odd_names(pipeline: CaptionPipeline, name: str, tmp_path: Path) -> None:
    if name == "pipe.png":
        name = str(tmp_path / name)
        os.mkfifo(name)
    with pytest.raises(UserError) as raised:
        pipeline.caption(name, "de")
    assert len(str(raised.value).splitlines()) == 1
