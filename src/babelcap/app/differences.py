"""Where two texts differ, word by word: what a picture changes in a translation."""

import difflib
import re
from dataclasses import dataclass

PIECES = re.compile(r"[\u3400-\u9fff]|[^\W\u3400-\u9fff]+|\s+|[^\w\s]")  # a Chinese character is a piece of its own


@dataclass(frozen=True)
class Piece:
    text: str
    is_different: bool


def marked_differences(first: str, second: str) -> tuple[list[Piece], list[Piece]]:
    """Both texts in pieces, those that the other does not have marked."""
    pieces = [PIECES.findall(text) for text in (first, second)]
    marked: tuple[list[Piece], list[Piece]] = ([], [])
    for kind, a, b, c, d in difflib.SequenceMatcher(None, pieces[0], pieces[1], autojunk=False).get_opcodes():
        for side, (start, end) in enumerate(((a, b), (c, d))):
            if end > start:
                marked[side].append(Piece("".join(pieces[side][start:end]), kind != "equal"))
    return marked
