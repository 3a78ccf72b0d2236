"""How each noun is drawn: a list of primitives in a unit square, y pointing down.

(kind, coordinates, role): role `fill` is the thing's colour, `dark` and `light` are shades of it, `ink` the outline's
colour, `empty` cuts a hole. Kinds: polygon, ellipse (box), line (with a width), arc (box, start, end, width).
Adding a noun takes one entry here and one row in each language.
"""

from math import cos, pi, sin
from typing import NamedTuple


class Part(NamedTuple):
    kind: str
    points: tuple[float, ...]
    role: str = "fill"
    width: float = 0.0  # of a line or an arc
    span: tuple[float, float] = (0.0, 360.0)  # of an arc, in degrees, clockwise from three o'clock


def polygon(*points: float, role: str = "fill") -> Part:
    return Part("polygon", points, role)


def ellipse(*box: float, role: str = "fill") -> Part:
    return Part("ellipse", box, role)


def line(*points: float, width: float, role: str = "ink") -> Part:
    return Part("line", points, role, width)


def arc(*box: float, span: tuple[float, float], width: float, role: str = "ink") -> Part:
    return Part("arc", box, role, width, span)


def box(left: float, top: float, right: float, bottom: float, role: str = "fill") -> Part:
    return polygon(left, top, right, top, right, bottom, left, bottom, role=role)


def _star(num_points: int, outer: float, inner: float) -> tuple[float, ...]:
    points: list[float] = []
    for index in range(2 * num_points):
        radius, angle = (outer, inner)[index % 2], pi * index / num_points - pi / 2
        points += [0.5 + radius * cos(angle), 0.53 + radius * sin(angle)]
    return tuple(points)


def _heart() -> tuple[float, ...]:
    points: list[float] = []
    for index in range(40):
        angle = 2 * pi * index / 40
        across = 16 * sin(angle) ** 3
        up = 13 * cos(angle) - 5 * cos(2 * angle) - 2 * cos(3 * angle) - cos(4 * angle)
        points += [0.5 + across / 34, 0.46 - up / 34]
    return tuple(points)


def _petals() -> list[Part]:
    petals = []
    for index in range(5):
        angle = 2 * pi * index / 5 - pi / 2
        x, y = 0.5 + 0.21 * cos(angle), 0.36 + 0.21 * sin(angle)
        petals.append(ellipse(x - 0.16, y - 0.16, x + 0.16, y + 0.16))
    return petals


SHAPES: dict[str, tuple[Part, ...]] = {
    "ball": (
        ellipse(0.04, 0.04, 0.96, 0.96),
        arc(-0.5, 0.04, 0.4, 0.96, span=(-62, 62), width=0.07),
        arc(0.6, 0.04, 1.5, 0.96, span=(118, 242), width=0.07),
        line(0.5, 0.06, 0.5, 0.94, width=0.07),
    ),
    "cube": (
        polygon(0.5, 0.02, 0.94, 0.25, 0.5, 0.48, 0.06, 0.25, role="light"),
        polygon(0.06, 0.25, 0.5, 0.48, 0.5, 0.98, 0.06, 0.75),
        polygon(0.94, 0.25, 0.5, 0.48, 0.5, 0.98, 0.94, 0.75, role="dark"),
    ),
    "star": (polygon(*_star(5, 0.52, 0.22)),),
    "tree": (
        box(0.42, 0.7, 0.58, 1.0, role="dark"),
        polygon(0.5, 0.36, 0.92, 0.82, 0.08, 0.82),
        polygon(0.5, 0.18, 0.84, 0.58, 0.16, 0.58),
        polygon(0.5, 0.0, 0.74, 0.34, 0.26, 0.34),
    ),
    "house": (
        box(0.12, 0.46, 0.88, 0.98),
        polygon(0.5, 0.02, 1.0, 0.48, 0.0, 0.48, role="dark"),
        box(0.42, 0.66, 0.6, 0.98, role="ink"),
        box(0.2, 0.58, 0.34, 0.74, role="light"),
        box(0.68, 0.58, 0.82, 0.74, role="light"),
    ),
    "car": (
        polygon(0.26, 0.26, 0.68, 0.26, 0.84, 0.5, 0.14, 0.5),
        box(0.0, 0.48, 1.0, 0.74),
        polygon(0.31, 0.31, 0.46, 0.31, 0.46, 0.48, 0.23, 0.48, role="glass"),
        polygon(0.51, 0.31, 0.65, 0.31, 0.75, 0.48, 0.51, 0.48, role="glass"),
        ellipse(0.12, 0.6, 0.38, 0.86, role="ink"),
        ellipse(0.62, 0.6, 0.88, 0.86, role="ink"),
        ellipse(0.2, 0.68, 0.3, 0.78, role="glass"),
        ellipse(0.7, 0.68, 0.8, 0.78, role="glass"),
    ),
    "fish": (
        polygon(0.7, 0.5, 1.0, 0.2, 1.0, 0.8),
        ellipse(0.0, 0.22, 0.8, 0.78),
        polygon(0.36, 0.5, 0.56, 0.4, 0.56, 0.62, role="dark"),
        ellipse(0.13, 0.38, 0.25, 0.5, role="eye"),
        line(0.02, 0.58, 0.14, 0.6, width=0.05),
    ),
    "bird": (
        line(0.42, 0.75, 0.42, 0.98, width=0.06),
        line(0.58, 0.75, 0.58, 0.98, width=0.06),
        polygon(0.7, 0.55, 1.0, 0.38, 0.96, 0.62, 0.72, 0.74),
        ellipse(0.2, 0.32, 0.84, 0.84),
        ellipse(0.08, 0.06, 0.5, 0.48),
        polygon(0.12, 0.2, 0.12, 0.36, -0.06, 0.3, role="ink"),
        polygon(0.4, 0.5, 0.74, 0.46, 0.68, 0.72, 0.5, 0.72, role="dark"),
        ellipse(0.2, 0.16, 0.32, 0.28, role="eye"),
    ),
    "cat": (
        polygon(0.06, 0.02, 0.46, 0.26, 0.08, 0.56),
        polygon(0.94, 0.02, 0.54, 0.26, 0.92, 0.56),
        ellipse(0.05, 0.18, 0.95, 0.98),
        ellipse(0.24, 0.42, 0.4, 0.6, role="eye"),
        ellipse(0.6, 0.42, 0.76, 0.6, role="eye"),
        polygon(0.43, 0.66, 0.57, 0.66, 0.5, 0.76, role="ink"),
        line(0.0, 0.62, 0.28, 0.7, width=0.04),
        line(0.0, 0.82, 0.28, 0.78, width=0.04),
        line(1.0, 0.62, 0.72, 0.7, width=0.04),
        line(1.0, 0.82, 0.72, 0.78, width=0.04),
    ),
    "boat": (
        line(0.48, 0.02, 0.48, 0.7, width=0.06),
        polygon(0.54, 0.04, 0.94, 0.58, 0.54, 0.58, role="light"),
        polygon(0.42, 0.14, 0.42, 0.58, 0.12, 0.58, role="light"),
        polygon(0.0, 0.68, 1.0, 0.68, 0.8, 0.98, 0.2, 0.98),
    ),
    "flower": (
        line(0.5, 0.45, 0.5, 1.0, width=0.08, role="stem"),
        polygon(0.5, 0.92, 0.74, 0.72, 0.78, 0.86, role="stem"),
        *_petals(),
        ellipse(0.38, 0.24, 0.62, 0.48, role="dark"),
    ),
    "cup": (
        arc(0.56, 0.28, 1.0, 0.72, span=(-100, 100), width=0.13, role="rim"),
        polygon(0.04, 0.16, 0.76, 0.16, 0.66, 0.92, 0.14, 0.92),
        ellipse(0.04, 0.06, 0.76, 0.26, role="dark"),
    ),
    "key": (
        ellipse(0.0, 0.26, 0.46, 0.74),
        ellipse(0.13, 0.39, 0.33, 0.61, role="empty"),
        polygon(
            0.44, 0.43, 1.0, 0.43, 1.0, 0.76, 0.88, 0.76, 0.88, 0.57, 0.8, 0.57, 0.8, 0.7, 0.68, 0.7, 0.68, 0.57,
            0.44, 0.57,
        ),
    ),
    "hat": (
        polygon(0.24, 0.74, 0.28, 0.2, 0.72, 0.2, 0.76, 0.74),
        polygon(0.25, 0.62, 0.75, 0.62, 0.76, 0.76, 0.24, 0.76, role="ink"),
        ellipse(0.0, 0.68, 1.0, 0.9),
    ),
    "heart": (polygon(*_heart()),),
    "leaf": (
        polygon(
            0.06, 0.96, 0.04, 0.6, 0.16, 0.3, 0.42, 0.1, 0.96, 0.04, 0.9, 0.56, 0.7, 0.82, 0.4, 0.94, 0.06, 0.96,
        ),
        line(0.0, 1.0, 0.78, 0.22, width=0.06),
        line(0.34, 0.64, 0.32, 0.38, width=0.04),
        line(0.34, 0.66, 0.62, 0.68, width=0.04),
        line(0.54, 0.46, 0.54, 0.24, width=0.04),
        line(0.54, 0.46, 0.78, 0.46, width=0.04),
    ),
    "book": (
        polygon(0.1, 0.78, 0.9, 0.78, 0.9, 0.96, 0.1, 0.96, role="paper"),
        box(0.1, 0.02, 0.9, 0.8),
        box(0.1, 0.02, 0.26, 0.98, role="dark"),
        box(0.38, 0.18, 0.78, 0.34, role="light"),
        line(0.26, 0.87, 0.88, 0.87, width=0.03),
    ),
    "chair": (
        box(0.14, 0.0, 0.3, 1.0),
        box(0.14, 0.46, 0.88, 0.62),
        box(0.74, 0.58, 0.88, 1.0),
        box(0.3, 0.06, 0.4, 0.46, role="dark"),
    ),
    "bell": (
        ellipse(0.4, 0.78, 0.6, 0.98, role="ink"),
        ellipse(0.42, 0.0, 0.58, 0.16, role="dark"),
        polygon(
            0.5, 0.08, 0.66, 0.12, 0.76, 0.26, 0.8, 0.58, 0.96, 0.82, 0.04, 0.82, 0.2, 0.58, 0.24, 0.26, 0.34, 0.12,
        ),
        line(0.12, 0.72, 0.88, 0.72, width=0.05),
    ),
    "apple": (
        ellipse(0.04, 0.24, 0.62, 0.94),
        ellipse(0.38, 0.24, 0.96, 0.94),
        Part("blank", (0.2, 0.34, 0.8, 0.88), "fill"),
        line(0.5, 0.34, 0.56, 0.04, width=0.08),
        polygon(0.56, 0.2, 0.7, 0.02, 0.9, 0.06, 0.78, 0.2, role="stem"),
    ),
    "mushroom": (
        polygon(0.36, 0.5, 0.64, 0.5, 0.7, 0.98, 0.3, 0.98, role="paper"),
        polygon(
            0.0, 0.56, 0.04, 0.36, 0.16, 0.18, 0.34, 0.06, 0.5, 0.03, 0.66, 0.06, 0.84, 0.18, 0.96, 0.36, 1.0, 0.56,
        ),
        ellipse(0.2, 0.24, 0.36, 0.4, role="light"),
        ellipse(0.46, 0.12, 0.62, 0.28, role="light"),
        ellipse(0.66, 0.3, 0.82, 0.46, role="light"),
    ),
    "umbrella": (
        line(0.5, 0.04, 0.5, 0.86, width=0.06),
        arc(0.5, 0.74, 0.74, 0.98, span=(0, 180), width=0.06),
        polygon(
            0.0, 0.54, 0.04, 0.36, 0.16, 0.2, 0.34, 0.1, 0.5, 0.07, 0.66, 0.1, 0.84, 0.2, 0.96, 0.36, 1.0, 0.54,
            0.83, 0.46, 0.67, 0.54, 0.5, 0.46, 0.33, 0.54, 0.17, 0.46,
        ),
        line(0.5, 0.08, 0.33, 0.52, width=0.04),
        line(0.5, 0.08, 0.67, 0.52, width=0.04),
    ),
    "bottle": (
        box(0.4, 0.0, 0.6, 0.12, role="ink"),
        polygon(0.42, 0.1, 0.58, 0.1, 0.58, 0.32, 0.74, 0.48, 0.74, 1.0, 0.26, 1.0, 0.26, 0.48, 0.42, 0.32),
        box(0.26, 0.6, 0.74, 0.82, role="paper"),
    ),
    "lamp": (
        line(0.5, 0.4, 0.5, 0.92, width=0.08),
        ellipse(0.24, 0.84, 0.76, 1.0, role="ink"),
        polygon(0.32, 0.02, 0.68, 0.02, 0.94, 0.54, 0.06, 0.54),
        line(0.72, 0.54, 0.72, 0.7, width=0.04),
    ),
    "table": (
        box(0.1, 0.4, 0.24, 0.9, role="dark"),
        box(0.76, 0.4, 0.9, 0.9, role="dark"),
        polygon(0.14, 0.24, 0.86, 0.24, 1.0, 0.46, 0.0, 0.46),
    ),
    "butterfly": (
        ellipse(0.0, 0.06, 0.48, 0.56),
        ellipse(0.52, 0.06, 1.0, 0.56),
        ellipse(0.1, 0.5, 0.46, 0.92, role="dark"),
        ellipse(0.54, 0.5, 0.9, 0.92, role="dark"),
        ellipse(0.44, 0.18, 0.56, 0.88, role="ink"),
        line(0.5, 0.2, 0.36, 0.0, width=0.04),
        line(0.5, 0.2, 0.64, 0.0, width=0.04),
    ),
    "crown": (
        polygon(0.04, 0.9, 0.0, 0.2, 0.28, 0.5, 0.5, 0.08, 0.72, 0.5, 1.0, 0.2, 0.96, 0.9),
        ellipse(0.42, 0.6, 0.58, 0.76, role="light"),
        ellipse(0.16, 0.62, 0.28, 0.74, role="light"),
        ellipse(0.72, 0.62, 0.84, 0.74, role="light"),
    ),
}  # fmt: skip
