import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

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


@pytest.mark.parametrize("write", [atomic_file, atomic_folder])
def test_a_full_disk_is_one_whoever_says_so(tmp_path: Path, write: Callable[[Path], Any]) -> None:
    """As safetensors and tokenizers do, whose exceptions are no OSError: a traceback once."""
    with pytest.raises(OSError, match="No space left") as caught, write(tmp_path / "a"):
        raise Exception("Error while serializing: I/O error: No space left on device (os error 28)")
    assert caught.value.errno == errno.ENOSPC
    assert os.listdir(tmp_path) == []
    with pytest.raises(RuntimeError, match="other"), write(tmp_path / "a"):
        raise RuntimeError("other")


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


def test_a_folder_goes_where_a_link_leads(tmp_path: Path) -> None:
    """To an empty folder on another disk, or to one that is not there yet; a traceback at the very end once."""
    (tmp_path / "large-disk").mkdir()
    for name, target in (("empty", "large-disk"), ("dangling", "later")):
        (tmp_path / name).symlink_to(tmp_path / target)
        with atomic_folder(tmp_path / name) as partial:
            (partial / "a").write_text("one")
        assert (tmp_path / name).is_symlink()
        assert (tmp_path / target / "a").read_text() == "one"
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(UserError, match="its links lead in a circle"), atomic_folder(tmp_path / "circle"):
        pass


@pytest.mark.parametrize("place", ["/proc/x.html", "/proc/x/y.html", f"{'x' * 300}.html"])
def test_where_nothing_can_be_made_is_one_line(place: str, tmp_path: Path) -> None:
    """`eval show -o /proc/x.html` was a traceback."""
    with pytest.raises(UserError, match="nothing can be written there") as raised:
        write_text(tmp_path / place, "text")
    assert "\n" not in str(raised.value)
    with pytest.raises(UserError, match="nothing can be written there"), atomic_folder(tmp_path / place):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_nobody_wrote_is_missed(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_file(tmp_path / "a"):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_device_or_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    """`-o /dev/null` as root put a file in its place."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/dev/null")
    for name in ("pipe", "link"):
        with pytest.raises(UserError, match="is a device or a pipe; name a file"):
            write_text(tmp_path / name, "x")
    assert (tmp_path / "pipe").is_fifo()
    assert (tmp_path / "link").is_char_device()


@pytest.mark.parametrize("target", ["mine", "nowhere"])
def test_a_link_in_the_place_of_what_is_made_again_is_replaced(tmp_path: Path, target: str) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes").write_text("mine")
    (tmp_path / "model").symlink_to(tmp_path / target)
    with atomic_folder(tmp_path / "model", overwrite=True) as partial:
        (partial / "a").write_text("one")
    assert not (tmp_path / "model").is_symlink()
    assert (tmp_path / "mine" / "notes").read_text() == "mine"
    assert sorted(os.listdir(tmp_path)) == ["mine", "model"]
