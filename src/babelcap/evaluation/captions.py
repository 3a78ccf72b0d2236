"""Captions in every language, judged by the world that knows its truth: right language, objects, colours, relations."""

from typing import Literal

Variant = Literal["plain", "prefix", "shortlist", "prefix+shortlist"]
VARIANTS: tuple[Variant, ...] = ("plain", "prefix", "shortlist", "prefix+shortlist")
