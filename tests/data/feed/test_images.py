import io
import struct
import sys
import zlib
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageFile

from babelcap.data.feed.images import FORMATS, IMAGENET_MEAN, IMAGENET_STD, decode_image, square_bytes, square_pixels
from babelcap.errors import BadSample


def png(width: int, height: int) -> bytes:
    """A PNG that announces a size, and whose one data chunk holds nothing of it."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"")) + chunk(b"IEND", b"")


def saved(image: Image.Image, kind: str, **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, kind, **options)
    return stream.getvalue()


def colours(image: Image.Image, size_px: int) -> np.ndarray:
    square = square_bytes(image, size_px)
    assert square.dtype == np.uint8
    return square.astype(int)


@pytest.mark.parametrize(
    ("width", "height"), [(500, 375), (1000, 700), (448, 448), (449, 2000), (3000, 225), (100, 90)]
)
def test_draft_mode_never_goes_below_the_size(make_image: Callable[..., bytes], width: int, height: int) -> None:
    reduced = decode_image(make_image(1, width, height), 224)
    assert reduced.mode == "RGB"
    assert min(reduced.size) >= min(224, width, height)
    assert reduced.width <= width
    assert (reduced.width < width) == (min(width, height) >= 448)


def test_draft_mode_is_close_to_the_whole_decode(make_image: Callable[..., bytes]) -> None:
    encoded = make_image(2, 1000, 800)
    reduced, whole = (colours(decode_image(encoded, size), 224) for size in (224, None))
    assert np.abs(reduced - whole).mean() < 2


@pytest.mark.parametrize("size_px", [224, 375, 2200])  # the last is larger than what Pillow keeps in one piece
def test_pixels_are_those_of_pillow_itself(make_image: Callable[..., bytes], size_px: int) -> None:
    for image in (decode_image(make_image(5, 500, 375)), decode_image(make_image(5, 375, 375))):
        expected = np.asarray(image.resize((size_px, size_px), Image.Resampling.BICUBIC)).astype(int)
        assert (colours(image, size_px) == expected).all()


def test_pixels_are_normalised_by_channel() -> None:
    colour = (255, 0, 128)
    pixels = square_pixels(Image.new("RGB", (30, 20), colour), 8)
    assert pixels.shape == (3, 8, 8)
    assert pixels.dtype == np.float32
    expected = [(c / 255 - mean) / std for c, mean, std in zip(colour, IMAGENET_MEAN, IMAGENET_STD, strict=True)]
    assert pixels[:, 3, 3] == pytest.approx(expected, abs=1e-5)


def test_the_square_ignores_the_aspect_ratio() -> None:
    image = Image.new("RGB", (400, 100), "black")
    image.paste("white", (200, 0, 400, 100))
    square = colours(image, 10)
    assert square.shape == (10, 10, 3)
    assert square[:, :4].max() < 30
    assert square[:, 6:].min() > 225


@pytest.mark.parametrize(
    ("kind", "mode"),
    [
        *(("JPEG", mode) for mode in ("L", "CMYK")),
        *(("PNG", mode) for mode in ("P", "RGBA", "LA", "1")),
        *(("WEBP", mode) for mode in ("RGB", "RGBA")),
        *((kind, "RGB") for kind in ("GIF", "BMP", "TIFF")),
    ],
)
def test_every_mode_becomes_rgb(kind: str, mode: str) -> None:
    white = Image.new("RGB", (32, 24), (255, 255, 255)).convert(mode)
    decoded = decode_image(saved(white, kind), 16)
    assert decoded.mode == "RGB"
    assert np.asarray(decoded).min() > 245


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (Image.new("RGBA", (8, 8), (200, 10, 30, 0)), (255, 255, 255)),
        (Image.new("RGBA", (8, 8), (200, 10, 30, 255)), (200, 10, 30)),
        (Image.new("RGBA", (8, 8), (0, 0, 0, 51)), (204, 204, 204)),  # a fifth of black on white
        (Image.new("LA", (8, 8), (0, 0)), (255, 255, 255)),
    ],
)
def test_what_is_transparent_is_put_on_white(image: Image.Image, expected: tuple[int, int, int]) -> None:
    assert decode_image(saved(image, "PNG")).getpixel((4, 4)) == expected
    assert decode_image(image).getpixel((4, 4)) == expected


def test_a_transparent_colour_of_a_palette_is_put_on_white() -> None:
    image = Image.new("P", (8, 8), 3)
    image.putpalette([value for colour in range(256) for value in (colour, 0, 0)])
    assert decode_image(saved(image, "PNG", transparency=3)).getpixel((4, 4)) == (255, 255, 255)
    assert decode_image(saved(image, "GIF", transparency=4)).getpixel((4, 4)) == (3, 0, 0)


def test_sixteen_bits_are_scaled_and_not_clipped() -> None:
    ramp = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)
    decoded = np.asarray(decode_image(saved(Image.fromarray(ramp), "PNG")))[:, :, 0]
    assert np.abs(decoded.astype(int) - (ramp >> 8)).max() <= 1
    for source in (Image.open(io.BytesIO(saved(Image.fromarray(ramp), "PNG"))), Image.fromarray(ramp), ramp):
        assert (np.asarray(decode_image(source))[:, :, 0] == decoded).all()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "TIFF"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_an_image_is_turned_as_its_metadata_say(kind: str, orientation: int) -> None:
    image = Image.new("RGB", (64, 32), "white")
    image.paste("red", (0, 0, 32, 16))  # the corner that is at the upper left as it is stored
    exif = Image.Exif()
    exif[0x0112] = orientation
    turned = decode_image(saved(image, kind, exif=exif.tobytes()))
    assert turned.size == ((64, 32) if orientation < 5 else (32, 64))
    corners = [(4, 4), (turned.width - 4, 4), (turned.width - 4, turned.height - 4), (4, turned.height - 4)]
    red = [number for number, place in enumerate(corners) if turned.getpixel(place)[1] < 100]  # type: ignore[index]
    assert red == [{1: 0, 2: 1, 3: 2, 4: 3, 5: 0, 6: 1, 7: 2, 8: 3}[orientation]]


def test_damaged_metadata_say_nothing() -> None:
    for exif in (b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM\0*\0\0\0\x08\0\xff", b"Exif\0\0no"):
        assert decode_image(saved(Image.new("RGB", (64, 32)), "JPEG", exif=exif)).size == (64, 32)


def test_arrays_are_images() -> None:
    picture = np.zeros((20, 30, 3), dtype=np.uint8)
    picture[:, 15:] = (10, 200, 30)
    for source in (
        picture,
        picture.transpose(2, 0, 1),
        (picture / 255).astype(np.float32),
        picture.astype(np.uint16) << 8,
    ):
        assert (np.asarray(decode_image(source)) == picture).all()
    assert decode_image(picture[:, :, 0]).getpixel((20, 5)) == (10, 10, 10)
    assert decode_image(picture[:, :, :1] > 0).getpixel((20, 5)) == (255, 255, 255)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (np.zeros((5, 5, 2), np.uint8), r"shape \[5, 5, 2\]"),
        (np.zeros((0, 5, 3), np.uint8), r"shape \[0, 5, 3\]"),
        (np.zeros(7, np.uint8), r"shape \[7\]"),
        (np.full((5, 5), 2.0), "array of float64; give bytes"),
        (np.full((5, 5), np.nan), "array of float64; give bytes"),
        (np.zeros((5, 5), np.int64), "array of int64"),
        (np.array([["a", "b"]]), "array of <U1"),
        (io.StringIO("text"), "open for text"),
        (7, "a int; give a path"),
        (None, "a NoneType; give a path"),
    ],
)
def test_what_is_no_image_says_so(given: object, message: str) -> None:
    with pytest.raises(BadSample, match=f"not an image: .*{message}"):
        decode_image(given)  # type: ignore[arg-type]


@pytest.mark.skipif("AVIF" not in FORMATS, reason="this Pillow has no AVIF")
def test_avif() -> None:
    image = decode_image(saved(Image.new("RGB", (32, 32), (200, 10, 30)), "AVIF"), 16)
    assert np.abs(np.asarray(image)[8, 8].astype(int) - (200, 10, 30)).max() < 8


HEIC = b"\0\0\0\x18ftypheic" + bytes(40)


def test_heic_names_the_package_that_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(BadSample, match=r"^unreadable image: HEIC needs another package: pip install pillow-heif$"):
        decode_image(HEIC)


def test_heic_is_decoded_where_the_package_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in registers with Pillow as the package does; nobody has to call it."""

    class Plugin(ImageFile.ImageFile):
        format = "HEIF"

        def _open(self) -> None:
            self._size, self._mode, self.tile = (8, 4), "RGB", []
            self.im = Image.new("RGB", (8, 4), "red").im

        def load(self) -> None:
            pass

    def register() -> None:
        Image.register_open("HEIF", Plugin, lambda start: start[4:12] == b"ftypheic")

    for table in (Image.OPEN, Image.ID):
        monkeypatch.setattr(Image, "OPEN" if table is Image.OPEN else "ID", type(table)(table))
    monkeypatch.setitem(sys.modules, "pillow_heif", SimpleNamespace(register_heif_opener=register))
    image = decode_image(HEIC)
    assert (image.size, image.getpixel((0, 0))) == ((8, 4), (255, 0, 0))


def test_the_first_frame_of_an_animation_is_taken() -> None:
    frames = [Image.new("RGB", (16, 16), colour) for colour in ("red", "blue")]
    animated = saved(frames[0], "GIF", save_all=True, append_images=frames[1:])
    assert decode_image(animated).getpixel((8, 8)) == (255, 0, 0)


@pytest.mark.parametrize(
    ("encoded", "reason"),
    [
        (b"", "not an image"),
        (b"hello", "not an image"),
        (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n%%EndComments\nshowpage\n", "not an image"),
        (png(20_000, 20_000), "decompression bomb"),
        (png(100_000, 100_000), "decompression bomb"),
        (png(178_956_970, 1), "decompression bomb"),
        (png(1, 178_956_970), "decompression bomb"),
        (png(65_535, 1), "corrupt image"),
        (png(12_000, 12_000), "decompression bomb"),
        (png(50, 50), "corrupt image"),
        (png(0, 50), "not an image"),
    ],
    ids=[
        "nothing",
        "text",
        "postscript",
        "bomb",
        "larger bomb",
        "wide bomb",
        "high bomb",
        "no data of a wide one",
        "too much to hold",
        "no data",
        "no width",
    ],
)
def test_a_bad_image_has_a_reason(encoded: bytes, reason: str) -> None:
    with pytest.raises(BadSample) as raised:
        decode_image(encoded, 16)
    assert raised.value.reason == reason


def test_a_cut_jpeg_is_corrupt(make_image: Callable[..., bytes]) -> None:
    encoded = make_image(3, 200, 150)
    with pytest.raises(BadSample, match="corrupt image"):
        decode_image(encoded[: len(encoded) // 2], 224)


def test_the_pixel_limit_is_the_callers(make_image: Callable[..., bytes]) -> None:
    with pytest.raises(BadSample, match="decompression bomb: 40x30 px"):
        decode_image(make_image(1), 16, max_pixels=1000)


def test_a_file_is_read_and_a_missing_one_counted(tmp_path: Path, make_image: Callable[..., bytes]) -> None:
    (tmp_path / "a.jpg").write_bytes(make_image(1))
    assert decode_image(tmp_path / "a.jpg").size == (40, 30)
    with pytest.raises(BadSample, match="missing image"):
        decode_image(str(tmp_path / "b.jpg"))
    with (tmp_path / "a.jpg").open("rb") as file:
        assert decode_image(file).size == (40, 30)
    with pytest.raises(BadSample, match="this is a folder"):
        decode_image(tmp_path)
    with pytest.raises(BadSample, match="unreadable image"):
        decode_image("a\0b.jpg")
    with pytest.raises(BadSample, match="unreadable image"):
        decode_image(tmp_path / "a.jpg" / "b.jpg")


@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(["JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF"]),
    cut=st.floats(0, 1),
    flips=st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=6),
)
def test_damage_is_a_bad_sample_and_nothing_else(
    make_image: Callable[..., bytes], kind: str, cut: float, flips: list[tuple[float, int]]
) -> None:
    encoded = bytearray(make_image(4, 40, 30, kind))
    for place, value in flips:
        encoded[int(place**3 * len(encoded))] = value  # headers, in front, are hit more often
    with suppress(BadSample):
        image = decode_image(bytes(encoded[: round(len(encoded) * cut)]), 16, max_pixels=10**6)
        assert colours(image, 16).shape == (16, 16, 3)
