"""Inputs damaged by chance: JSON values of other types, bytes flipped, cut, doubled or exchanged, single bits."""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

WRONG: tuple[Any, ...] = (
    None, True, 0, 3, -1, 2.5, 2**63, -(2**70), 10**30, 10**400, 1e308, float("nan"), float("inf"), "", "x", "../../x",
    "a\nb", "a\0b", "\ud800", "<script>", "9" * 5000, [], [[]], [None], {}, {"a": []}, {"": 1}, [1] * 50, [[[[[]]]]],
)  # fmt: skip
WRONG_BYTES = (
    b"",
    b"\0",
    b"\n",
    b'"',
    b"{",
    b",",
    b"\t",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    b"[" * 3000,
    b"9" * 5000,
    b"nan",
)


def wrong_value(value: Any, draw: random.Random) -> Any:
    """The same JSON value with one thing in it exchanged, left out or doubled."""
    if isinstance(value, dict) and value and draw.random() < 0.87:
        name = draw.choice(list(value))
        if draw.random() < 0.1:
            return {other: item for other, item in value.items() if other != name}
        return {**value, name: wrong_value(value[name], draw)}
    if isinstance(value, list) and value and draw.random() < 0.87:
        place = draw.randrange(len(value))
        if draw.random() < 0.1:
            return value + value[place : place + 1]
        return [*value[:place], wrong_value(value[place], draw), *value[place + 1 :]]
    return draw.choice(WRONG)


def damage(content: bytes, name: str, draw: random.Random) -> bytes:
    """Another value in JSON; elsewhere a piece flipped, cut, doubled, exchanged, or the end gone."""
    if name.endswith((".json", ".jsonl", ".jsonlines")) and draw.random() < 0.5:
        lines = [content.decode()] if name.endswith(".json") else content.decode().splitlines()
        place = draw.randrange(len(lines))
        lines[place] = json.dumps(wrong_value(json.loads(lines[place]), draw))
        return "\n".join(lines).encode()
    start = draw.randrange(len(content))
    end = min(len(content), start + draw.choice((1, 4, 16, 200)))
    piece = content[start:end]
    pieces = (
        bytes([piece[0] ^ 1 << draw.randrange(8)]) + piece[1:],
        piece * 2,
        bytes(len(piece)),
        b"\xff" * len(piece),
        draw.randbytes(len(piece)),
        draw.choice(WRONG_BYTES),
    )
    return content[:start] if draw.random() < 0.1 else content[:start] + draw.choice(pieces) + content[end:]


def damage_in_turn(files: list[Path], number: int, draw: random.Random) -> Iterator[Path]:
    """Each damage to one of the files in turn, in its place while the caller reads."""
    whole = {path: path.read_bytes() for path in files}
    for _ in range(number):
        path = draw.choice(files)
        path.write_bytes(damage(whole[path], path.name, draw))
        yield path
        path.write_bytes(whole[path])


def flip_bit(content: bytes, draw: random.Random) -> bytes:
    place = draw.randrange(len(content) * 8)
    flipped = bytearray(content)
    flipped[place // 8] ^= 1 << (place % 8)
    return bytes(flipped)


@contextmanager
def flipped(path: Path, draw: random.Random) -> Iterator[None]:
    """One bit of a file turned around while the block runs; turned back where the file is still there."""
    whole = path.read_bytes()
    path.write_bytes(flip_bit(whole, draw))
    yield
    if path.parent.is_dir():
        path.write_bytes(whole)
