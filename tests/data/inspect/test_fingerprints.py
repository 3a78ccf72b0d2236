"""Fingerprints: values computed by hand, and what real photographs keep when they are saved again."""

import io
import tarfile
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from babelcap.data.inspect.fingerprints import distances, fingerprint
from babelcap.data.inspect.near_prints import near_pairs
from babelcap.errors import BadSample

ALL = 2**64 - 1


def encoded(image: Image.Image, kind: str = "JPEG", **options: int) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def test_the_gradient_of_a_ramp() -> None:
    ramp = np.tile(np.arange(9, dtype=np.uint8) * 20, (8, 1))
    assert int(fingerprint(Image.fromarray(ramp))[1]) == ALL  # every value is above its left neighbour's
    assert int(fingerprint(Image.fromarray(ramp[:, ::-1].copy()))[1]) == 0


def test_the_frequencies_of_a_step() -> None:
    """Bright on the left, dark on the right: of the frequencies only (0, 1), (0, 5) and (0, 9) are positive, whose
    places by diagonals are (k - 1)(k + 2) / 2 = 0, 14 and 44; (0, 3) and (0, 7) are negative, all others 0.
    """
    step = np.zeros((32, 32), np.uint8)
    step[:, :16] = 255
    assert int(fingerprint(Image.fromarray(step))[0]) == 1 << 63 | 1 << (63 - 14) | 1 << (63 - 44)


def test_a_picture_of_one_grey_has_no_bits() -> None:
    assert fingerprint(Image.new("RGB", (50, 40), (90, 90, 90))).tolist() == [0, 0]


def test_what_is_no_picture_is_a_bad_sample() -> None:
    with pytest.raises(BadSample):
        fingerprint(b"not a picture")


@pytest.fixture(scope="module")
def photographs(shared: Path) -> list[Image.Image]:
    """Sixty of Multi30K and twenty of COCO; all of them: bench/leakage.py."""
    found = []
    with tarfile.open(shared / "data/multi30k/images/flickr30k-subset-0003.tar") as tar:
        for member in tar.getmembers()[:60]:
            file = tar.extractfile(member)
            assert file is not None
            found.append(Image.open(io.BytesIO(file.read())).convert("RGB"))
    return found + [
        Image.open(path).convert("RGB") for path in sorted((shared / "data/coco/val2017").glob("*.jpg"))[:20]
    ]


def test_photographs_are_known_again_and_not_taken_for_each_other(photographs: list[Image.Image]) -> None:
    prints = np.stack([fingerprint(photograph) for photograph in photographs])
    assert len(prints) == 60 + 20
    near = near_pairs(prints, prints, 20)
    assert (near.left == near.right).all()
    assert len(near.left) == len(prints)
    for change in (
        lambda photograph: encoded(photograph, quality=50),
        lambda photograph: encoded(photograph.resize((photograph.width // 2, photograph.height // 2)), quality=75),
    ):
        again = np.stack([fingerprint(change(photograph)) for photograph in photographs])
        assert distances(prints, again).max() <= 12
