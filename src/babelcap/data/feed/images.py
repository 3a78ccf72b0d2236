"""From whatever holds an image to a model's pixels: the only place where images are decoded and resized, by Pillow.

A bad image raises BadSample with its reason. Sizes are checked from the header, before anything is decoded. The first
frame counts, turned as its EXIF orientation says, and what is transparent is put on white.
"""

import importlib
import io
import os
import stat
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
from PIL import Image, UnidentifiedImageError, features

from babelcap.errors import BadSample

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
MAX_PIXELS = 178_956_970  # as a header may announce: Pillow's own threshold of a decompression bomb
MAX_DECODED_PIXELS = 100_000_000  # as they come into memory, 400 MB; large JPEGs are decoded at a reduced size
MAX_SIDE_PX = 65_535  # what a JPEG can have; Pillow's decoders take memory for each row and column
MAX_FILE_BYTES, PIECE_BYTES = 2**29, 2**20
ORIENTATION = 0x0112  # the EXIF tag
TURNS = {
    2: Image.Transpose.FLIP_LEFT_RIGHT,
    3: Image.Transpose.ROTATE_180,
    4: Image.Transpose.FLIP_TOP_BOTTOM,
    5: Image.Transpose.TRANSPOSE,
    6: Image.Transpose.ROTATE_270,
    7: Image.Transpose.TRANSVERSE,
    8: Image.Transpose.ROTATE_90,
}
# What the web has and Pillow decodes by itself; others (EPS) would start other programs on data from strangers.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF") + (("AVIF",) if features.check("avif") else ())
HEIF, HEIF_PACKAGE = "HEIF", "pillow-heif"  # what phones write, which Pillow decodes with another package
HEIF_BRANDS = (b"heic", b"heix", b"heim", b"heis", b"hevc", b"hevx", b"mif1", b"msf1")
ImageInput = str | Path | bytes | BinaryIO | Image.Image | np.ndarray


def decode_image(source: ImageInput, size_px: int | None = None, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """An RGB image; with `size_px` it may come reduced (JPEG draft mode), never below that size."""
    if isinstance(source, np.ndarray):
        return _image_of_array(source)
    if isinstance(source, Image.Image):
        with _pillow_errors():
            _check_size(source, max_pixels)
            return _upright_rgb(source)
    encoded = read_encoded(source)
    is_heif = encoded[4:8] == b"ftyp" and encoded[8:12] in HEIF_BRANDS
    formats = _with_heif() if is_heif else FORMATS
    with _pillow_errors(), Image.open(io.BytesIO(encoded), formats=formats) as image:
        _check_size(image, max_pixels)
        if size_px is not None:
            image.draft("RGB", (size_px, size_px))
        if image.width * image.height > MAX_DECODED_PIXELS:
            raise BadSample("decompression bomb", f"{image.width}x{image.height} px")
        return _upright_rgb(image)


def read_encoded(source: Any) -> bytes:
    """All bytes of a file, of an open one too, up to a bound."""
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source)
    if isinstance(source, str | Path):
        try:
            if not stat.S_ISREG(kind := os.stat(source).st_mode) and not stat.S_ISDIR(kind):
                raise BadSample("not an image", "a pipe or a device, on which one may wait without end")
            with Path(source).open("rb") as file:
                return read_encoded(file)
        except FileNotFoundError:
            raise BadSample("missing image", "no such file") from None
        except IsADirectoryError:
            raise BadSample("not an image", "this is a folder; name the image files in it") from None
        except (ValueError, OSError) as error:  # ValueError: a zero byte in the name
            raise BadSample("unreadable image", str(error)) from None
    if not callable(getattr(source, "read", None)):
        raise BadSample("not an image", f"a {type(source).__name__}; give a path, bytes, an open file or an image")
    pieces: list[bytes] = []
    while piece := source.read(PIECE_BYTES):  # not all at once, which would take as much memory as is allowed
        if not isinstance(piece, bytes):
            raise BadSample("not an image", "the file is open for text; open it with mode 'rb'")
        pieces.append(piece)
        if sum(map(len, pieces)) > MAX_FILE_BYTES:
            raise BadSample("file too large", f"more than {MAX_FILE_BYTES >> 20} MiB")
    return b"".join(pieces)


def _with_heif() -> tuple[str, ...]:
    if HEIF not in Image.OPEN:
        try:
            importlib.import_module(HEIF_PACKAGE.replace("-", "_")).register_heif_opener()
        except ImportError:
            advice = f"HEIC needs another package: pip install {HEIF_PACKAGE}"
            raise BadSample("unreadable image", advice) from None
    return (*FORMATS, HEIF)


@contextmanager
def _pillow_errors() -> Iterator[None]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about metadata, and about bombs, for which our limit is an error
            yield
    except UnidentifiedImageError:
        raise BadSample("not an image", f"none of {', '.join(FORMATS)}") from None
    except Image.DecompressionBombError as error:
        raise BadSample("decompression bomb", str(error)) from None
    except (BadSample, MemoryError):
        raise
    except Exception as error:  # Pillow's decoders raise nearly anything on damaged data
        raise BadSample("corrupt image", f"{type(error).__name__}: {error}") from None


def _check_size(image: Image.Image, max_pixels: int) -> None:
    if image.width * image.height > max_pixels or max(image.size) > MAX_SIDE_PX:
        raise BadSample("decompression bomb", f"{image.width}x{image.height} px")
    if image.width < 1 or image.height < 1:
        raise BadSample("corrupt image", "no pixels")


def _upright_rgb(image: Image.Image) -> Image.Image:
    image.load()  # before its metadata is asked for: a PNG may have it at the end, TIFF turns itself
    turn = TURNS.get(_orientation(image))
    if image.mode.startswith("I"):
        # Pillow would clip 16 bits a pixel to 8, which turns most such images white.
        image = Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8))
    if image.has_transparency_data:
        layer = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", layer.size, "white"), layer)
    if image.mode != "RGB":  # converting it to what it is already would copy it
        image = image.convert("RGB")
    return image if turn is None else image.transpose(turn)


def _orientation(image: Image.Image) -> int:
    try:
        return int(image.getexif().get(ORIENTATION, 1))
    except Exception:  # damaged metadata says nothing, and the picture may be whole
        return 1


def _image_of_array(array: np.ndarray) -> Image.Image:
    """[height, width], with 1, 3 or 4 channels behind or in front; bytes, 16 bits, or numbers from 0 to 1."""
    if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[2] not in (1, 3, 4):
        array = array.transpose(1, 2, 0)
    is_picture = array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4))
    if not is_picture or not array.size:
        raise BadSample("not an image", f"an array of shape {list(array.shape)}; give [height, width, 3]")
    if array.shape[0] * array.shape[1] > MAX_DECODED_PIXELS:
        raise BadSample("decompression bomb", f"{array.shape[1]}x{array.shape[0]} px")
    if array.dtype.kind == "f" and array.min() >= 0 and array.max() <= 1:  # not so where one is not a number
        array = (array * 255).round()
    elif array.dtype == np.bool_:
        array = array * 255
    elif array.dtype == np.uint16:
        array = array >> 8
    elif array.dtype != np.uint8:
        raise BadSample("not an image", f"an array of {array.dtype}; give bytes from 0 to 255 or floats from 0 to 1")
    array = array.astype(np.uint8)
    return _upright_rgb(Image.fromarray(array[:, :, 0] if array.ndim == 3 and array.shape[2] == 1 else array))


def square_rgbx(image: Image.Image, size_px: int) -> np.ndarray:
    """uint8 [size_px, size_px, 4]: resized bicubic to a square, whatever the aspect ratio was.

    Red, green, blue, and a byte that means nothing: Pillow keeps pixels so, and this is its memory, without a copy.
    By Pillow and nothing else: a faster kernel differs by a level in some pixels, and a run must not depend on which
    processor it was begun on.
    """
    square = image.resize((size_px, size_px), Image.Resampling.BICUBIC)
    try:
        words = pa.array(square)
    except ValueError:  # so large that Pillow keeps it in several pieces
        return np.asarray(square.convert("RGBX"))
    return np.frombuffer(words.buffers()[-1], dtype=np.uint8).reshape(size_px, size_px, 4)


def square_bytes(image: Image.Image, size_px: int) -> np.ndarray:
    """uint8 [size_px, size_px, 3], a view."""
    return square_rgbx(image, size_px)[:, :, :3]


def scale_and_shift(
    mean: tuple[float, ...] = IMAGENET_MEAN, std: tuple[float, ...] = IMAGENET_STD
) -> tuple[np.ndarray, np.ndarray]:
    """Normalised pixels are bytes * scale - shift, a channel each, in float32."""
    scale = np.float32(1 / 255) / np.asarray(std, dtype=np.float32)
    return scale, np.asarray(mean, dtype=np.float32) / np.asarray(std, dtype=np.float32)


def square_pixels(
    image: Image.Image,
    size_px: int,
    mean: tuple[float, ...] = IMAGENET_MEAN,
    std: tuple[float, ...] = IMAGENET_STD,
) -> np.ndarray:
    """float32 [3, size_px, size_px]: the square, normalised."""
    scale, shift = scale_and_shift(mean, std)
    channels = square_bytes(image, size_px).transpose(2, 0, 1)
    return channels.astype(np.float32, order="C") * scale[:, None, None] - shift[:, None, None]
