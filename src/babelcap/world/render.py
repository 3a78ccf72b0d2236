"""Draws a scene with Pillow: backgrounds, jitter, partial overlap; drawn four times as large and then reduced.

render(scene, rng, size_px) -> RGB image; the same scene and generator give the same pixels.
"""

import io
import random

from PIL import Image, ImageDraw

from babelcap.world.scenes import COLOURS, GROUNDS, NOUNS, SIZES, Scene, Thing, generator
from babelcap.world.shapes import SHAPES, Part

Colour = tuple[int, int, int]

SUPERSAMPLING = 4
FILL: dict[str, Colour] = {
    "red": (222, 30, 38),
    "blue": (35, 85, 225),
    "green": (20, 150, 50),
    "yellow": (252, 222, 30),
    "orange": (255, 138, 10),
    "purple": (130, 45, 175),
    "pink": (255, 150, 195),
    "brown": (122, 72, 32),
    "black": (28, 28, 30),
    "white": (252, 252, 252),
}
INK: Colour = (45, 45, 50)
INK_AT_NIGHT: Colour = (225, 228, 240)  # a dark outline would be lost before a dark sky
# Side of a thing's box as a share of the picture's side. Several are drawn a little smaller, so that they overlap less;
# with the jitter of 3 % the ranges of the three sizes still do not meet.
EXTENT = {"small": 0.33, "medium": 0.42, "big": 0.51}
CENTRES = {"left": (0.25, 0.5), "right": (0.75, 0.5), "top": (0.5, 0.25), "bottom": (0.5, 0.75), "centre": (0.5, 0.5)}
# Backgrounds are pale, or dark and dull, so that no thing's colour is met in them. (upper part, lower part)
BACKGROUND: dict[str, tuple[Colour, Colour]] = {
    "grass": ((222, 238, 250), (190, 226, 168)),
    "sand": ((222, 238, 250), (240, 224, 184)),
    "snow": ((196, 214, 228), (238, 243, 250)),
    "water": ((226, 240, 248), (160, 210, 232)),
    "night": ((26, 30, 66), (38, 44, 88)),
    "wall": ((186, 186, 190), (178, 178, 182)),
}
SHRINK_SEVERAL = 0.92
SIZE_JITTER = 0.03
HORIZON = 0.3


def render(scene: Scene, rng: random.Random, size_px: int = 64) -> Image.Image:
    side = size_px * SUPERSAMPLING
    image = Image.new("RGB", (side, side))
    _draw_background(image, scene.ground, rng)
    for thing, place in zip(scene.things, scene.places, strict=True):
        extent = EXTENT[thing.size] * (SHRINK_SEVERAL if thing.count > 1 else 1)
        # Lines within a white thing have to differ from it too.
        ink = INK_AT_NIGHT if scene.ground == "night" and thing.colour != "white" else INK
        for x, y in _spots(place, thing.count, extent, alone=len(scene.things) == 1, rng=rng):
            size = extent * rng.uniform(1 - SIZE_JITTER, 1 + SIZE_JITTER)
            # Kept inside the picture, with a hair's margin for the outline.
            x, y = (min(max(value, size / 2 + 0.01), 0.99 - size / 2) for value in (x, y))
            sprite = _sprite(thing.noun, thing.colour, round(size * side), ink)
            sprite = sprite.rotate(rng.uniform(-7, 7), Image.Resampling.BILINEAR)
            corner = (round(x * side - sprite.width / 2), round(y * side - sprite.height / 2))
            image.paste(sprite, corner, sprite)
    return image.reduce(SUPERSAMPLING)


def encode(image: Image.Image, extension: str = "png", quality: int = 92) -> bytes:
    """The same bytes for the same pixels and the same Pillow."""
    stream = io.BytesIO()
    if extension == "png":
        image.save(stream, "PNG")
    else:
        image.save(stream, "JPEG", quality=quality, subsampling=0)  # thin coloured lines would bleed at 4:2:0
    return stream.getvalue()


def sheet(size_px: int = 64, seed: int = 0) -> Image.Image:
    """Every noun (rows) in every colour (columns), with sizes and grounds going round: to see that all is clear."""
    gap = 2
    cell = size_px + gap
    image = Image.new("RGB", (cell * len(COLOURS), cell * len(NOUNS)), "white")
    for row, noun in enumerate(NOUNS):
        for column, colour in enumerate(COLOURS):
            thing = Thing(noun=noun, colour=colour, size=SIZES[(row + column) % len(SIZES)])
            scene = Scene(things=(thing,), position="centre", ground=GROUNDS[(row + 2 * column) % len(GROUNDS)])
            rng = generator(seed, f"sheet/{noun}", column)
            image.paste(render(scene, rng, size_px), (column * cell, row * cell))
    return image


def _spots(place: str, count: int, extent: float, *, alone: bool, rng: random.Random) -> list[tuple[float, float]]:
    """Centres of alike objects: along the half of the picture that is theirs, close enough to overlap when big."""
    x, y = CENTRES[place]
    slack = 0.04 if extent > 0.4 else 0.07
    x, y = x + rng.uniform(-slack, slack), y + rng.uniform(-slack, slack)
    step = min(0.9 * extent, 0.29)
    horizontal = place in ("top", "bottom", "centre")
    spots = []
    for index in range(count):
        along = (index - (count - 1) / 2) * step + rng.uniform(-0.02, 0.02)
        across = rng.uniform(-0.03, 0.03) * (2 if alone else 1)
        spots.append((x + along, y + across) if horizontal else (x + across, y + along))
    return spots


def _shades(colour: str, ink: Colour) -> dict[str, Colour]:
    red, green, blue = FILL[colour]
    dark = (75, 75, 80) if colour == "black" else (int(red * 0.78), int(green * 0.78), int(blue * 0.78))
    light = tuple(int(value + (255 - value) * 0.45) for value in (red, green, blue))
    return {
        "fill": FILL[colour],
        "dark": dark,
        "light": (light[0], light[1], light[2]),
        "ink": (110, 110, 115) if colour == "black" and ink == INK else ink,
        "glass": (214, 232, 240),
        "paper": (250, 246, 236),
        "stem": (96, 150, 84),
        "eye": (250, 250, 250),
    }


def _sprite(noun: str, colour: str, side: int, ink: Colour) -> Image.Image:
    """One object on a transparent square with a margin, so that turning it cuts nothing off."""
    margin = side // 8 + 2
    sprite = Image.new("RGBA", (side + 2 * margin, side + 2 * margin), (0, 0, 0, 0))
    draw = ImageDraw.Draw(sprite)
    shades = _shades(colour, ink)
    outline = max(3, round(side * 0.035))
    for part in SHAPES[noun]:
        _draw_part(draw, part, [round(margin + value * side) for value in part.points], shades, ink, outline, side)
    return sprite


def _draw_part(
    draw: ImageDraw.ImageDraw,
    part: Part,
    points: list[int],
    shades: dict[str, Colour],
    ink: Colour,
    outline: int,
    side: int,
) -> None:
    width = max(outline, round(part.width * side))
    if part.role == "empty":
        draw.ellipse(points, fill=(0, 0, 0, 0), outline=ink, width=outline)
        return
    if part.role == "rim":
        # A thick coloured arc with an outline on both sides.
        draw.arc(points, *part.span, fill=ink, width=width + outline)
        inner = [points[0] + outline, points[1] + outline, points[2] - outline, points[3] - outline]
        draw.arc(inner, *part.span, fill=shades["fill"], width=width - outline)
        return
    colour = shades[part.role]
    if part.kind == "polygon":
        corners = list(zip(points[::2], points[1::2], strict=True))
        draw.polygon(corners, fill=colour)
        draw.line([*corners, corners[0]], fill=ink, width=outline, joint="curve")
    elif part.kind == "ellipse":
        if part.role == "eye":
            draw.ellipse(points, fill=colour, outline=(20, 20, 20), width=outline)
            quarter = (points[2] - points[0]) // 4
            inner = [points[0] + quarter, points[1] + quarter, points[2] - quarter, points[3] - quarter]
            draw.ellipse(inner, fill=(20, 20, 20))
        else:
            draw.ellipse(points, fill=colour, outline=ink, width=outline)
    elif part.kind == "blank":
        draw.ellipse(points, fill=colour)
    elif part.kind == "line":
        draw.line(points, fill=colour, width=width)
    else:
        draw.arc(points, *part.span, fill=colour, width=width)


def _draw_background(image: Image.Image, ground: str, rng: random.Random) -> None:
    draw = ImageDraw.Draw(image)
    side = image.width
    upper, lower = (_jittered(colour, rng) for colour in BACKGROUND[ground])
    horizon = round(side * (HORIZON + rng.uniform(-0.06, 0.06)))
    draw.rectangle((0, 0, side, horizon), fill=upper)
    draw.rectangle((0, horizon, side, side), fill=lower)
    unit = side / 64
    darker = tuple(int(value * 0.9) for value in lower)
    for _ in range(26):
        x, y = rng.uniform(0, side), rng.uniform(horizon, side)
        if ground == "grass":
            draw.line((x, y, x + unit, y - 4 * unit), fill=darker, width=round(unit))
            draw.line((x, y, x - 2 * unit, y - 3 * unit), fill=darker, width=round(unit))
        elif ground == "sand":
            draw.ellipse((x, y, x + 1.4 * unit, y + 1.4 * unit), fill=darker)
        elif ground == "snow":
            draw.ellipse((x, y - horizon, x + 2 * unit, y - horizon + 2 * unit), fill=(255, 255, 255))
        elif ground == "water":
            draw.arc((x, y, x + 8 * unit, y + 4 * unit), 20, 160, fill=darker, width=round(1.5 * unit))
        elif ground == "night":
            y = rng.uniform(0, side)
            draw.ellipse((x, y, x + 1.2 * unit, y + 1.2 * unit), fill=(235, 235, 200))
    if ground == "wall":
        _draw_bricks(draw, side, darker)


def _draw_bricks(draw: ImageDraw.ImageDraw, side: int, colour: tuple[int, ...]) -> None:
    height = side // 8
    for row in range(8):
        y = row * height
        draw.line((0, y, side, y), fill=colour, width=max(1, side // 64))
        for x in range((row % 2) * height, side, 2 * height):
            draw.line((x, y, x, y + height), fill=colour, width=max(1, side // 64))


def _jittered(colour: Colour, rng: random.Random) -> Colour:
    shift = rng.randint(-6, 6)
    red, green, blue = (min(255, max(0, value + shift)) for value in colour)
    return red, green, blue
