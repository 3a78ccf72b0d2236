"""Pictures of every format and mode, mutated: used, or named as bad."""

import io
import random

import numpy as np
from PIL import Image

from babelcap.data.feed.images import FORMATS


def whole_images() -> list[bytes]:
    """Every format that is opened, in every mode it has, with metadata."""
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a picture"
    generator = np.random.default_rng(0)
    picture = Image.fromarray(generator.integers(0, 256, (24, 36, 4), dtype=np.uint8))
    found = []
    for kind in FORMATS:
        for mode in ("RGB", "RGBA", "L", "P", "1", "CMYK", "LA", "I;16"):
            encoded = io.BytesIO()
            try:
                picture.convert("L").convert(mode).save(encoded, kind, exif=exif.tobytes())
            except (OSError, ValueError, KeyError):
                continue  # the format has no such mode
            found.append(encoded.getvalue())
    return found


def mutated(encoded: bytes, draw: random.Random) -> bytes:
    """One to four of: flipped bits, other bytes, a piece cut out, twice or exchanged, an end cut off, large numbers."""
    data = bytearray(encoded)
    for _ in range(draw.randint(1, 4)):
        if not data:
            break
        start = int(draw.random() ** 2 * len(data))  # headers, in front, are hit more often
        stop = min(len(data), start + draw.randint(1, 64))
        match draw.randrange(6):
            case 0:
                data[start] ^= 1 << draw.randrange(8)
            case 1:
                data[start:stop] = draw.randbytes(stop - start)
            case 2:
                del data[start:stop]
            case 3:
                data[start:start] = data[start:stop]
            case 4:
                data[start : start + 4] = draw.choice([b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0"])
            case _:
                del data[draw.randint(start, len(data)) :]
    return bytes(data)
