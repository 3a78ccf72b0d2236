"""Files that may be bad: bounded in size, depth and time, whatever stands in their place, and one line about each."""

import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from babelcap.errors import UserError, one_line
from babelcap.storage import (
    read_bytes,
    read_gzip_text,
    read_json,
    read_json_lines,
    read_json_object,
    read_lines,
    read_text,
    read_toml,
)

READERS: list[Callable[[Path], object]] = [
    read_bytes, read_text, read_gzip_text, read_json, read_toml, lambda path: list(read_json_lines(path)),
]  # fmt: skip


@pytest.mark.parametrize("read", READERS)
def test_what_is_no_file_is_one_line(read: Callable[[Path], object], tmp_path: Path) -> None:
    """A pipe that nobody writes to would be waited on without end."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "file").write_text("")
    cases = {
        "pipe": "not a regular file", ".": "a folder", "loop": "in a circle", "x" * 300: "too long",
        "gone": "no such file", "file/x": "a part of its path is a file", "a\0b": "no file can be called that",
    }  # fmt: skip
    for name, said in cases.items():
        with pytest.raises(UserError, match=said):
            read(tmp_path / name)


@pytest.mark.parametrize(
    "text", ["a" + ".a" * 50_000 + " = 1", "[a" + ".a" * 50_000 + "]", "x = {a" + ".a" * 9000 + " = 1}"]
)
def test_a_toml_key_of_many_parts_costs_nothing(text: str, tmp_path: Path) -> None:
    """50,000 parts took 48 s and 9.5 GB: such a line does not reach the parser."""
    (tmp_path / "t.toml").write_text(text)
    with pytest.raises(UserError, match="more than 250 dots"):
        read_toml(tmp_path / "t.toml")


def test_sizes_are_bounded_as_unpacked(tmp_path: Path) -> None:
    (tmp_path / "t.gz").write_bytes(gzip.compress(bytes(5000)))
    with pytest.raises(UserError, match="holds more than"):
        read_gzip_text(tmp_path / "t.gz", max_bytes=4000)
    (tmp_path / "t.json").write_text(json.dumps(["x"] * 1000))
    with pytest.raises(UserError, match="is larger than"):
        read_json(tmp_path / "t.json", max_bytes=4000)


@pytest.mark.parametrize("packed", [True, False])
def test_lines_of_any_length_are_cut(packed: bool, tmp_path: Path) -> None:
    path = tmp_path / "t.gz"
    content = b"one\n" + b"2" * 1000 + b"\nthree\xff\r\n\nlast"
    path.write_bytes(gzip.compress(content) if packed else content)
    with path.open("rb") as file:
        unpacked = gzip.GzipFile(fileobj=file) if packed else file
        assert list(read_lines(unpacked, path, 10)) == ["one", "2" * 10, "three\ufffd\r", "", "last"]


def test_a_cut_gzip_file_is_one_line(tmp_path: Path) -> None:
    path = tmp_path / "t.gz"
    path.write_bytes(gzip.compress(b"one\n" * 5000)[:40])
    with path.open("rb") as file, pytest.raises(UserError, match="cannot be unpacked"):
        list(read_lines(gzip.GzipFile(fileobj=file), path, 100))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not valid JSON"),
        (b'{"a": 1, "a": 2}', "'a' stands in one object twice"),
        (b"null", "expected an object"),
        ("{}".encode("utf-16"), "not UTF-8"),
        (b"[" * 10**5, "deep"),
    ],
)
def test_what_is_no_object(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(content)
    with pytest.raises(UserError, match=said):
        read_json_object(tmp_path / "t.json")


def test_messages_are_one_line_whatever_names_stand_in_them() -> None:
    assert str(UserError("a\nb\x1b[31m\u202e\ud800é中")) == "a\\nb\\x1b[31m\\u202e\\ud800é中"
    assert len(one_line("x" * 10**6)) < 2000
