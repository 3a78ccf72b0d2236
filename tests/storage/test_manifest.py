"""Checksums and bounded reading: what is damaged is found, what is whole passes."""

import json
import os
from pathlib import Path

import pytest

from babelcap.errors import UserError
from babelcap.storage import (
    RememberedChecksums,
    check_manifest,
    file_sha256,
    is_inside,
    locked,
    manifest,
    parse_json,
    read_json_lines,
    read_toml,
    require_manifest,
    update_manifest,
    write_manifest,
)

ABC = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"  # SHA-256 of "abc", as its standard gives it


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.bin").write_bytes(bytes(range(256)) * 40)
    (tmp_path / "sub" / "b.txt").write_text("abc")
    write_manifest(tmp_path)
    return tmp_path


def test_known_hash(folder: Path) -> None:
    assert file_sha256(folder / "sub" / "b.txt") == ABC
    assert json.loads((folder / "manifest.json").read_text())["files"]["sub/b.txt"] == {"bytes": 3, "sha256": ABC}


def test_whole_folder_passes(folder: Path) -> None:
    assert check_manifest(folder) == check_manifest(folder, full=True) == []


@pytest.mark.parametrize("place", range(0, 10_240, 1_111))
def test_a_flipped_bit_is_found(folder: Path, place: int) -> None:
    content = bytearray((folder / "a.bin").read_bytes())
    content[place] ^= 1 << (place % 8)
    (folder / "a.bin").write_bytes(content)
    with pytest.raises(UserError, match=r"a\.bin is damaged.*train it again"):
        require_manifest(folder, advice="train it again")


def test_missing_cut_and_edited_manifest(folder: Path) -> None:
    (folder / "sub" / "b.txt").write_text("ab")
    assert "has 2 bytes, its manifest says 3" in check_manifest(folder)[0]
    (folder / "sub" / "b.txt").unlink()
    assert "is missing" in check_manifest(folder)[0]
    text = (folder / "manifest.json").read_text().replace('"bytes": 3', '"bytes": 2')
    (folder / "manifest.json").write_text(text)
    assert check_manifest(folder) == [f"{folder / 'manifest.json'} is damaged"]


def test_large_files_are_sampled_by_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manifest, "BLOCK_BYTES", 64)
    monkeypatch.setattr(manifest, "CHECKED_WHOLE_BYTES", 128)
    monkeypatch.setattr(manifest, "NUM_SAMPLED_BLOCKS", 0)
    content = bytearray(os.urandom(64 * 10 + 5))
    (tmp_path / "large").write_bytes(content)
    write_manifest(tmp_path, ["large"])
    assert check_manifest(tmp_path) == []
    content[64 * 5] ^= 1  # neither the first nor the last block
    (tmp_path / "large").write_bytes(content)
    assert check_manifest(tmp_path) == []
    assert "is damaged" in check_manifest(tmp_path, full=True)[0]
    monkeypatch.setattr(manifest, "NUM_SAMPLED_BLOCKS", 11)
    assert "is damaged" in check_manifest(tmp_path)[0]


def test_paths_stay_inside() -> None:
    assert is_inside(Path("c"), "annotations/a.parquet")
    assert not any(is_inside(Path("c"), name) for name in ("../a", "/a", "a/../../b", "", "a\0b"))


def test_remembered_until_the_file_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, memory = tmp_path / "file", tmp_path / "memory.json"
    path.write_text("abc")
    first = RememberedChecksums(memory)
    assert first.sha256(path) == ABC
    first.save()
    assert not memory.exists()  # written just now, so it may change again within one tick of the clock
    os.utime(path, ns=(0, 0))
    assert first.sha256(path) == ABC
    first.save()
    monkeypatch.setattr(manifest, "file_sha256", lambda path: "computed again")
    assert RememberedChecksums(memory).sha256(path) == ABC
    path.write_text("abd")
    os.utime(path, ns=(1, 1))
    assert RememberedChecksums(memory).sha256(path) == "computed again"
    memory.write_text("[")
    assert RememberedChecksums(memory).sha256(path) == "computed again"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 100_000, "nested too deeply"),
        ("[" * 500 + "]" * 500, "nested"),
        ("1" * 5000, "not valid JSON"),
        ("{", "not valid JSON"),
        (b"\xff\xfe\x00", "not valid JSON"),
    ],
)
def test_bad_json_is_one_line(text: str | bytes, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        parse_json(text, "a.json")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["a = " + "[" * 5000, "a = " + "1" * 5000, "a = ", "\x00"])
def test_bad_toml_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.toml").write_text(text)
    with pytest.raises(UserError, match=r"a\.toml") as caught:
        read_toml(tmp_path / "a.toml")
    assert "\n" not in str(caught.value)


def test_json_lines_keep_the_good_ones(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(b'{"a": 1}\n\n{"a"\n\xff\n{"a": 2}')
    lines = list(read_json_lines(tmp_path / "a.jsonl"))
    assert [(line.number, line.value) for line in lines if line.error is None] == [(1, {"a": 1}), (5, {"a": 2})]
    assert [line.number for line in lines if line.error is not None] == [3, 4]


def test_a_second_holder_is_refused_and_named(tmp_path: Path) -> None:
    with (
        locked(tmp_path / "lock"),
        pytest.raises(UserError, match=f"busy .held by process {os.getpid()} on "),
        locked(tmp_path / "lock", refuse="busy"),
    ):
        pass
    with locked(tmp_path / "lock", refuse="busy"):
        pass


def test_writers_renew_their_own_part(folder: Path) -> None:
    (folder / ".hidden").write_text("x")
    write_manifest(folder)
    assert ".hidden" in json.loads((folder / "manifest.json").read_text())["files"]
    (folder / "sub" / "b.txt").write_text("abcd")
    (folder / "sub" / "c.txt").write_text("new")
    assert [line.split()[0] for line in check_manifest(folder, only=["sub/*"])] == [
        str(folder / "sub" / "b.txt"),
        str(folder / "sub" / "c.txt"),  # it could be read too, and nothing vouches for it
    ]
    assert check_manifest(folder, only=["a.*"]) == []
    update_manifest(folder, ["sub/*"])
    assert check_manifest(folder, full=True) == check_manifest(folder, only=["sub/*"]) == []
    (folder / "a.bin").write_bytes(b"")
    (folder / "sub" / "c.txt").unlink()
    update_manifest(folder, ["sub/*"])
    assert len(check_manifest(folder)) == 1  # what another writer wrote is not vouched for by this one
