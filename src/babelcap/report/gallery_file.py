"""gallery.json as the report reads it: pictures with captions in every language, right and wrong ones.

A caption's `marks` are the words of it that are wrong: start and end in the whole text, and what is wrong about them.
Galleries of earlier studies have none, and only the part of the caption that follows the prefix.
"""

import base64
import binascii

from pydantic import BaseModel, field_validator


class ShownCaption(BaseModel):
    run: str
    language: str
    variant: str
    text: str
    right: bool | None = None  # all of it: language, grammar and everything it says; None: not judged
    marks: list[tuple[int, int, str]] | None = None
    language_right: bool


class ShownPicture(BaseModel):
    key: str
    png_base64: bytes  # decoded when read
    truth: str
    captions: list[ShownCaption]

    @field_validator("png_base64", mode="after")
    @classmethod
    def _decoded(cls, text: bytes) -> bytes:
        try:
            return base64.b64decode(text, validate=True)
        except binascii.Error:
            raise ValueError("not base64") from None


class GalleryFile(BaseModel):
    pictures: list[ShownPicture] = []
