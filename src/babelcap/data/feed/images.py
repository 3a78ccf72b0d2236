"""From encoded bytes to a model's pixels: the only place where images are decoded and resized, by Pillow.

A bad image raises BadSample with its reason. The pixel limit is checked from the header, before anything is decoded.
As in the published pipeline, the first frame is converted to RGB: transparency is dropped and EXIF orientation ignored.
"""

import io
import warnings
from pathlib import Path

import numpy as np
import pyarrow as pa
from PIL import Image, UnidentifiedImageError

from babelcap.errors import BadSample

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
MAX_PIXELS = 178_956_970  # Pillow's own threshold of a decompression bomb (a gigabyte of pixels as RGB with overhead)
# What the web has and Pillow decodes by itself; others (EPS) would start other programs on data from strangers.
FORMATS = ("JPEG", "PNG", "WEBP", "GIF", "BMP", "TIFF")


def decode_image(source: bytes | str | Path, size_px: int | None = None, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """An RGB image; with `size_px` it may come reduced (JPEG draft mode), never below that size."""
    try:
        encoded = source if isinstance(source, bytes) else Path(source).read_bytes()
    except FileNotFoundError:
        raise BadSample("missing image", f"{source!s}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about metadata, and about bombs, for which our limit is an error
            with Image.open(io.BytesIO(encoded), formats=FORMATS) as opened:
                image: Image.Image = opened
                if image.width * image.height > max_pixels:
                    raise BadSample("decompression bomb", f"{image.width}x{image.height} px")
                if image.width < 1 or image.height < 1:
                    raise BadSample("corrupt image", "no pixels")
                if size_px is not None:
                    image.draft("RGB", (size_px, size_px))
                image = _eight_bits(image)
                if image.mode != "RGB":
                    return image.convert("RGB")
                image.load()  # converting it to what it is already would copy it
                return image
    except UnidentifiedImageError:
        raise BadSample("not an image", f"none of {', '.join(FORMATS)}") from None
    except Image.DecompressionBombError as error:
        raise BadSample("decompression bomb", str(error)) from None
    except (BadSample, MemoryError):
        raise
    except Exception as error:  # Pillow's decoders raise nearly anything on damaged data
        raise BadSample("corrupt image", f"{type(error).__name__}: {error}") from None


def _eight_bits(image: Image.Image) -> Image.Image:
    """Pillow would clip 16 bits a pixel to 8, which turns most such images white."""
    if not image.mode.startswith("I"):
        return image
    return Image.fromarray((np.asarray(image).clip(0, 65535) >> 8).astype(np.uint8))


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
