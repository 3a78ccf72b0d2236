"""From encoded bytes to a model's pixels, by Pillow: the only place where images are decoded.

A bad image raises BadSample with its reason. The pixel limit is checked from the header, before anything is decoded.
"""

import io
import warnings
from pathlib import Path

import numpy as np
from PIL import Image, UnidentifiedImageError

from babelcap.errors import BadSample

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
MAX_PIXELS = 178_956_970  # Pillow's own threshold of a decompression bomb (a gigabyte of pixels as RGB with overhead)


def decode_image(source: bytes | str | Path, size_px: int | None = None, max_pixels: int = MAX_PIXELS) -> Image.Image:
    """An RGB image; with `size_px` it may come reduced (JPEG draft mode), never below that size."""
    stream = io.BytesIO(source) if isinstance(source, bytes) else source
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)  # our own limit is below, and is an error
            with Image.open(stream) as image:
                if image.width * image.height > max_pixels:
                    raise BadSample("decompression bomb", f"{image.width}x{image.height} px")
                if size_px is not None:
                    image.draft("RGB", (size_px, size_px))
                return image.convert("RGB")
    except FileNotFoundError:
        raise BadSample("missing image", f"{source!s}") from None
    except UnidentifiedImageError:
        raise BadSample("not an image", "no known image format") from None
    except Image.DecompressionBombError as error:
        raise BadSample("decompression bomb", str(error)) from None
    except (OSError, SyntaxError, ValueError, EOFError) as error:
        raise BadSample("corrupt image", str(error)) from None


def square_pixels(
    image: Image.Image,
    size_px: int,
    mean: tuple[float, ...] = IMAGENET_MEAN,
    std: tuple[float, ...] = IMAGENET_STD,
) -> np.ndarray:
    """float32 [3, size_px, size_px]: resized bicubic to a square without keeping the aspect ratio, then normalised."""
    resized = image.resize((size_px, size_px), Image.Resampling.BICUBIC)
    scale = np.float32(1 / 255) / np.asarray(std, dtype=np.float32)
    shift = np.asarray(mean, dtype=np.float32) / np.asarray(std, dtype=np.float32)
    pixels = np.asarray(resized, dtype=np.float32) * scale - shift
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))
