"""Tars read by their headers alone, compared with the standard library's reader."""

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from babelcap.data.store.tar import TarFileWriter, TarMember, is_safe_name, scan_tar
from babelcap.errors import UserError

WriteTar = Callable[..., Path]


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_members_are_where_the_standard_library_finds_them(tmp_path: Path, kind: int, write_tar: WriteTar) -> None:
    files = {f"{'folder/' * (number % 14)}{number:09d}.jpg": bytes([number]) * (number * 97) for number in range(40)}
    if kind != tarfile.USTAR_FORMAT:
        files["n" * 300 + ".jpg"] = b"long name"
        files["имя.jpg"] = b"Cyrillic name"
    path = write_tar(tmp_path / "a.tar", files, kind)
    with tarfile.open(path) as tar:
        expected = [(info.name, info.offset_data, info.size) for info in tar]
    scan = scan_tar(path)
    assert [tuple(member) for member in scan.members] == expected
    assert not scan.problems
    content = path.read_bytes()
    assert all(content[m.offset : m.offset + m.length] == files[m.name] for m in scan.members)


def test_folders_and_links_are_not_samples(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        tar.addfile(folder)
        link = tarfile.TarInfo("link.jpg")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
        tar.addfile(tarfile.TarInfo("a.jpg"))
    scan = scan_tar(tmp_path / "a.tar")
    assert [member.name for member in scan.members] == ["a.jpg"]
    assert scan.problems == {"not a regular file": 1}


@pytest.mark.parametrize("name", ["../a.jpg", "/a.jpg", "a/../../b.jpg", "a\\b.jpg", "a\nb.jpg", "C:a.jpg", "~/a.jpg"])
def test_names_that_leave_the_folder_are_left_out(tmp_path: Path, name: str, write_tar: WriteTar) -> None:
    scan = scan_tar(write_tar(tmp_path / "a.tar", {name: b"x", "good.jpg": b"y"}))
    assert [member.name for member in scan.members] == ["good.jpg"]
    assert scan.problems == {"unsafe member name": 1}


def test_a_name_that_is_not_utf8_is_left_out(tmp_path: Path, write_tar: WriteTar) -> None:
    path = write_tar(tmp_path / "a.tar", {"aaaa.jpg": b"x", "good.jpg": b"y"}, tarfile.USTAR_FORMAT)
    content = bytearray(path.read_bytes())
    content[0:2] = b"\xff\xfe"
    content[148:156] = b" " * 8
    content[148:156] = b"%06o\0 " % sum(content[:512])
    path.write_bytes(content)
    scan = scan_tar(path)
    assert [member.name for member in scan.members] == ["good.jpg"]
    assert scan.problems == {"unsafe member name": 1}


def test_a_truncated_tar_keeps_what_is_whole(tmp_path: Path, write_tar: WriteTar) -> None:
    path = write_tar(tmp_path / "a.tar", {f"{number}.jpg": b"x" * 700 for number in range(3)})
    third = scan_tar(path).members[2]
    for end in (third.offset + 10, third.offset - 100):
        os.truncate(path, end)
        scan = scan_tar(path)
        assert [member.name for member in scan.members] == ["0.jpg", "1.jpg"]
        assert scan.problems == {"truncated tar": 1}


def test_a_damaged_header_ends_the_scan(tmp_path: Path, write_tar: WriteTar) -> None:
    path = write_tar(tmp_path / "a.tar", {f"{number}.jpg": b"x" * 700 for number in range(4)})
    second = scan_tar(path).members[1]
    content = bytearray(path.read_bytes())
    content[second.offset - 512] ^= 0x01
    path.write_bytes(content)
    scan = scan_tar(path)
    assert [member.name for member in scan.members] == ["0.jpg"]
    assert scan.problems == {"damaged tar header": 1}


@pytest.mark.parametrize("content", [b"\x1f\x8b" + b"z" * 2000, b"plain text" * 200])
def test_what_is_not_a_tar_is_named(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "a.tar").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.tar is not an uncompressed tar"):
        scan_tar(tmp_path / "a.tar")
    with pytest.raises(UserError, match="no such file"):
        scan_tar(tmp_path / "b.tar")
    with pytest.raises(UserError, match="is a folder"):
        scan_tar(tmp_path)


def test_an_empty_tar_has_no_members(tmp_path: Path, write_tar: WriteTar) -> None:
    assert scan_tar(write_tar(tmp_path / "a.tar", {})).members == []
    (tmp_path / "zero.tar").touch()
    assert scan_tar(tmp_path / "zero.tar").members == []


@settings(max_examples=60, deadline=None)
@given(content=st.binary(max_size=3000), flips=st.lists(st.integers(0, 4000), max_size=6))
def test_no_damage_raises_anything_but_a_message(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, flips: list[int], write_tar: WriteTar
) -> None:
    path = write_tar(tmp_path_factory.mktemp("t") / "a.tar", {"a.jpg": content, "n" * 200: content, "b.jpg": b"z"})
    damaged = bytearray(path.read_bytes())
    for place in flips:
        damaged[place % len(damaged)] ^= 0xA5
    path.write_bytes(damaged)
    try:
        scan = scan_tar(path)
    except UserError:
        return
    assert all(member.offset + member.length <= len(damaged) and is_safe_name(member.name) for member in scan.members)


def test_a_size_of_thousands_of_digits_is_no_size(tmp_path: Path) -> None:
    record = b"size=" + b"9" * 5000 + b"\n"
    record = f"{len(record) + 5} ".encode() + record
    header = tarfile.TarInfo("pax")
    header.type, header.size = tarfile.XHDTYPE, len(record)
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(header, io.BytesIO(record))
        info = tarfile.TarInfo("a.jpg")
        info.size = 3
        tar.addfile(info, io.BytesIO(b"abc"))
    assert [member.length for member in scan_tar(tmp_path / "a.tar").members] == [3]


def test_the_writer_is_read_by_everyone_and_always_the_same(tmp_path: Path) -> None:
    files = {"a.jpg": b"1" * 512, "folder/" + "b" * 150 + ".jpg": b"22", "имя.png": b""}
    for name in ("one.tar", "two.tar"):
        writer = TarFileWriter(tmp_path / name)
        offsets = [writer.add(member, content) for member, content in files.items()]
        writer.close()
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()
    with tarfile.open(tmp_path / "one.tar") as tar:
        assert {info.name: tar.extractfile(info).read() for info in tar} == files  # type: ignore[union-attr]
    assert [member.offset for member in scan_tar(tmp_path / "one.tar").members] == offsets


def test_keys_and_extensions_are_webdatasets() -> None:
    member = TarMember("folder.x/000001.seg.PNG", 0, 1)
    assert (member.key, member.extension, member.is_image) == ("folder.x/000001", "seg.png", True)
    assert not TarMember("000001.json", 0, 1).is_image
