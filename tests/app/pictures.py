"""Pictures that are unusual, and what is sent as a picture and is none."""

import io

from PIL import Image, ImageDraw


def encoded(image: Image.Image, kind: str = "PNG", **options: object) -> bytes:
    stream = io.BytesIO()
    image.save(stream, format=kind, **options)
    return stream.getvalue()


def drawn_picture(size: tuple[int, int] = (120, 80)) -> Image.Image:
    image = Image.new("RGB", size, "white")
    ImageDraw.Draw(image).rectangle((0, 0, size[0] // 2, size[1] // 2), fill="red")
    return image


def rotated_jpeg() -> bytes:
    """Stored lying on its side, as phones do, with a mark that says so."""
    exif = Image.Exif()
    exif[0x0112] = 6
    return encoded(drawn_picture().transpose(Image.Transpose.ROTATE_90), "JPEG", exif=exif, quality=95)


SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>document.title = "taken over"</script></svg>'


def good_pictures() -> dict[str, bytes]:
    """Unusual, but pictures."""
    frames = [Image.new("RGB", (32, 32), colour) for colour in ("red", "blue")]
    return {
        "one-pixel.png": encoded(Image.new("RGB", (1, 1), "green")),
        "cmyk.jpg": encoded(drawn_picture().convert("CMYK"), "JPEG"),
        "animated.gif": encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]),
        "rotated.jpg": rotated_jpeg(),
        "transparent.png": encoded(Image.new("RGBA", (20, 20), (255, 0, 0, 90))),
    }


def bad_pictures() -> dict[str, tuple[bytes, str]]:
    """Name -> the bytes, and a word of the message that they get."""
    bomb = encoded(Image.new("1", (10_000, 10_000)))  # 100 megapixels in a few kilobytes
    return {
        "text.jpg": (b"this is a text", "not a picture"),
        "bomb.png": (bomb, "megapixels"),
        "script.svg": (SVG, "not a picture"),
        "empty.png": (b"", "empty"),
        "cut.png": (encoded(drawn_picture())[:60], "corrupt"),
    }
