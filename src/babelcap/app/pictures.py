"""Pictures from strangers, made harmless: bounded in bytes and pixels, decoded few at a time, kept small.

The model's square is all that is kept of a picture while its request waits, so that memory stays bounded; the core
makes the same square of it again, which changes nothing.
"""

import base64
import binascii
import threading
from pathlib import Path

from PIL import Image

from babelcap.app.limits import MIB, Limits, TooLarge
from babelcap.data.feed.images import FORMATS, decode_image
from babelcap.errors import BadSample, UserError

_DECODING = threading.BoundedSemaphore(2)  # pictures that are whole in memory at once
MAX_SHOWN_PX = 1024
BASE64 = ";base64"


def read_upload(path: str | Path, limits: Limits) -> bytes:
    """The bytes of an uploaded file, not one more than allowed."""
    with Path(path).open("rb") as file:
        content = file.read(limits.max_upload_bytes + 1)
    return check_bytes(content, limits)


def check_bytes(content: bytes, limits: Limits) -> bytes:
    if not content:
        raise UserError("image: the file is empty; choose another")
    if len(content) > limits.max_upload_bytes:
        raise TooLarge(
            f"image: more than {limits.max_upload_bytes / MIB:g} MiB, which is the limit; give a smaller file"
        )
    return content


def shown_picture(content: bytes, limits: Limits) -> Image.Image:
    """The picture upright, RGB and small enough for a page; one line where there is none."""
    with _DECODING:
        image = _decoded(content, limits, MAX_SHOWN_PX)
        image.thumbnail((MAX_SHOWN_PX, MAX_SHOWN_PX), Image.Resampling.LANCZOS, reducing_gap=3.0)
        return image


def model_square(content: bytes, limits: Limits, size_px: int) -> Image.Image:
    """The picture as the model sees it: all that a waiting request keeps."""
    with _DECODING:
        image = _decoded(content, limits, size_px)
        return image.resize((size_px, size_px), Image.Resampling.BICUBIC)


def _decoded(content: bytes, limits: Limits, size_px: int) -> Image.Image:
    check_bytes(content, limits)
    try:
        return decode_image(content, size_px, limits.max_pixels)
    except BadSample as error:
        raise _refusal(error, limits) from None
    except MemoryError:
        raise TooLarge("image: takes more memory than there is; give a smaller one") from None


def _refusal(error: BadSample, limits: Limits) -> UserError:
    if error.reason == "decompression bomb":
        return TooLarge(
            f"image: {error.detail} is more than {limits.max_pixels / 1e6:g} megapixels, which is the limit; "
            "give a smaller one"
        )
    if error.reason == "not an image":
        return UserError(f"image: not a picture that can be read; give one of {', '.join(FORMATS)}")
    return UserError(f"image: {error}")


def from_base64(text: str) -> bytes:
    """Of a data address, or of base64 alone."""
    if text.startswith("data:"):
        head, comma, text = text.partition(",")
        if not comma or not head.endswith(BASE64):
            raise UserError("image: a data address has to be base64, as data:image/png;base64,...")
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise UserError("image: not base64; give the encoded bytes of a picture, or a data address") from None
