import os
from pathlib import Path

import pytest

from babelcap import storage
from babelcap.errors import UserError
from babelcap.storage import atomic_file, atomic_folder, read_json, write_json, write_text


def test_a_file_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "a.txt"
    with atomic_file(path) as partial:
        partial.write_text("one")
        assert not path.exists()
    assert path.read_text() == "one"
    assert os.listdir(path.parent) == ["a.txt"]


def test_a_failure_leaves_the_old_file_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_text(path, "old")

    def fail() -> None:
        with atomic_file(path) as partial:
            partial.write_text("half")
            raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        fail()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["a.txt"]


def test_a_folder_appears_whole(tmp_path: Path) -> None:
    path = tmp_path / "corpus"
    with atomic_folder(path) as partial:
        (partial / "a").write_text("one")
        assert not path.exists()
    assert (path / "a").read_text() == "one"
    assert os.listdir(tmp_path) == ["corpus"]


def test_a_failure_leaves_no_folder(tmp_path: Path) -> None:
    def fail() -> None:
        with atomic_folder(tmp_path / "corpus") as partial:
            (partial / "a").write_text("one")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()
    assert os.listdir(tmp_path) == []


def test_an_existing_folder_is_kept_unless_told(tmp_path: Path) -> None:
    path = tmp_path / "corpus"
    path.mkdir()
    with atomic_folder(path) as partial:  # empty: nothing to lose
        (partial / "a").write_text("one")
    with pytest.raises(UserError, match="exists already"), atomic_folder(path):
        pass
    with atomic_folder(path, overwrite=True) as partial:
        (partial / "b").write_text("two")
    assert os.listdir(path) == ["b"]
    assert os.listdir(tmp_path) == ["corpus"]


def test_overwriting_that_fails_at_the_last_moment_restores_the_old(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "corpus"
    write_text(path / "a", "old")
    replace = os.replace

    def failing(source: Path, target: Path) -> None:
        if Path(target) == path and os.listdir(source) == ["b"]:
            raise OSError(5, "Input/output error")
        replace(source, target)

    monkeypatch.setattr(storage.atomic.os, "replace", failing)
    with pytest.raises(OSError, match="Input/output"), atomic_folder(path, overwrite=True) as partial:
        (partial / "b").write_text("new")
    assert (path / "a").read_text() == "old"
    assert os.listdir(tmp_path) == ["corpus"]


def test_of_two_writers_the_first_wins(tmp_path: Path) -> None:
    path = tmp_path / "corpus"

    def write_slowly() -> None:
        with atomic_folder(path) as partial:
            (partial / "a").write_text("slow")
            write_text(path / "a", "fast")

    with pytest.raises(UserError, match="exists already"):
        write_slowly()
    assert (path / "a").read_text() == "fast"
    assert os.listdir(tmp_path) == ["corpus"]


def test_places_that_cannot_be_written_are_named(tmp_path: Path) -> None:
    write_text(tmp_path / "file", "x")
    with pytest.raises(UserError, match="a file is in the way"):
        write_text(tmp_path / "file" / "a.txt", "x")
    with pytest.raises(UserError, match="is a folder; name a file"):
        write_text(tmp_path, "x")
    for overwrite in (False, True):
        with pytest.raises(UserError, match="exists already"), atomic_folder(tmp_path / "file", overwrite=overwrite):
            pass
    assert (tmp_path / "file").read_text() == "x"


def test_json(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"prefix": "图为", "list": [1, None]})
    assert read_json(path) == {"prefix": "图为", "list": [1, None]}
    assert "图为" in path.read_text(encoding="utf-8")
    path.write_text('{"cut": ')
    with pytest.raises(UserError, match="is not valid JSON"):
        read_json(path)
    path.write_bytes(b"\xff")
    with pytest.raises(UserError, match="is not UTF-8 text"):
        read_json(path)
    with pytest.raises(UserError, match="no such file"):
        read_json(tmp_path / "b.json")
    with pytest.raises(UserError, match="is a folder"):
        read_json(tmp_path)
