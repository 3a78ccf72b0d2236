"""A corpus out of tars that exist: any webdataset, and real ones where they are at hand."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelcap.coverage import Coverage
from babelcap.data.importers.assemble import Assembly, assemble_corpus
from babelcap.data.importers.coco import import_coco
from babelcap.data.importers.files import find_files
from babelcap.data.importers.multi30k import Multi30kMaker, import_multi30k
from babelcap.data.importers.webdataset import WebdatasetMaker
from babelcap.data.inspect.check import check_corpus
from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.store import Corpus
from babelcap.errors import UserError
from babelcap.storage import locked

WriteTar = Callable[..., Path]


def make(folder: Path, tars: list[Path], **options: Any) -> Corpus:
    keep = {name: options.pop(name) for name in ("copy", "with_checksum") if name in options}
    maker = WebdatasetMaker(coverage=Coverage(), **options)
    return assemble_corpus(folder, tars, maker, Assembly({"source": "test"}, images_only=True, **keep))


@pytest.fixture
def tars(tmp_path: Path, write_tar: WriteTar) -> list[Path]:
    return [
        write_tar(
            tmp_path / f"{number}.tar",
            {
                f"{number}a.jpg": b"image a",
                f"{number}a.txt": "Ein Hund läuft.".encode(),
                f"{number}a.json": b'{"caption": "A dog runs.", "width": 3}',
                f"{number}b.png": b"image b",
                f"{number}b.txt": b"\xff not UTF-8",
                f"{number}b.json": b"not JSON",
            },
        )
        for number in range(2)
    ]


def test_tars_are_linked_and_never_written_to(tmp_path: Path, tars: list[Path]) -> None:
    before = [(tar.read_bytes(), tar.stat().st_mtime_ns) for tar in tars]
    corpus = make(tmp_path / "c", tars)
    assert [(tar.read_bytes(), tar.stat().st_mtime_ns) for tar in tars] == before
    assert [corpus.tar_path(tar.name).readlink() for tar in tars] == tars
    index = CorpusIndex.open(corpus)
    assert [index.key(n) for n in range(4)] == ["0a", "0b", "1a", "1b"]
    assert [index.read_image(n) for n in range(4)] == [b"image a", b"image b"] * 2
    assert corpus.manifest.shards[0].tar_sha256 is None


def test_tars_in_place_and_copied(tmp_path: Path, tars: list[Path]) -> None:
    inside = tmp_path / "c" / "images"
    inside.mkdir(parents=True)
    os.rename(tars[0], inside / "0.tar")
    corpus = make(tmp_path / "c", [inside / "0.tar"])
    assert not corpus.tar_path("0.tar").is_symlink()
    copied = make(tmp_path / "d", tars[1:], copy=True, with_checksum=True)
    tars[1].unlink()
    assert not copied.tar_path("1.tar").is_symlink()
    assert CorpusIndex.open(copied).read_image(1) == b"image b"
    assert "checksum of the tar's data differs" not in check_corpus(copied, full=True).problems.counts
    content = bytearray(copied.tar_path("1.tar").read_bytes())
    content[520] ^= 1  # inside the first image, which no header tells
    copied.tar_path("1.tar").write_bytes(content)
    assert check_corpus(copied, full=True).problems.counts["checksum of the tar's data differs"] == 1
    assert check_corpus(copied).problems.counts["tar differs from the manifest"] == 0


def test_captions_come_from_members(tmp_path: Path, tars: list[Path]) -> None:
    texts = make(tmp_path / "txt", tars, captions="txt", language="de")
    assert [[a.target for a in row.annotations] for row in texts.rows()] == [["Ein Hund läuft."], []] * 2
    assert texts.manifest.shards[0].skipped == {"text is not UTF-8": 1}
    fields = make(tmp_path / "json", tars, captions="json:caption")
    assert [[a.target for a in row.annotations] for row in fields.rows()] == [["A dog runs."], []] * 2
    assert fields.manifest.shards[0].skipped == {"bad JSON member": 1}


ROWS = [
    {"key": "0a", "split": "eval", "annotations": [{"task": "caption", "language": "es", "target": "Un perro."}]},
    {"key": "1b", "split": "train", "annotations": [{"task": "caption", "language": "de", "target": "Ein Hund."}]},
]
FLAT = [{"key": row["key"], "split": row["split"], **row["annotations"][0]} for row in ROWS]  # type: ignore[dict-item, index]


@pytest.mark.parametrize("rows", [ROWS, FLAT])
@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_annotations_come_from_a_file(tmp_path: Path, tars: list[Path], rows: list[Any], kind: str) -> None:
    path = tmp_path / f"texts.{kind}"
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    corpus = make(tmp_path / "c", tars, annotations=path, split="unlabelled")
    found = {row.key: (row.split, [a.target for a in row.annotations]) for row in corpus.rows()}
    assert found == {
        "0a": ("eval", ["Un perro."]),
        "0b": ("unlabelled", []),
        "1a": ("unlabelled", []),
        "1b": ("train", ["Ein Hund."]),
    }


def test_one_bad_member_does_not_stop_an_import(tmp_path: Path, write_tar: WriteTar) -> None:
    members = {
        "deep": b"[" * 100_000,
        "digits": b'{"caption": ' + b"9" * 5000 + b"}",
        "list": b"[1, 2]",
        "number": b'{"caption": 3}',
        "nested": b'{"caption": [["a"]]}',
        "half": b'{"caption": "\\ud800"}',
        "bytes": b"\xff",
        "empty": b'{"caption": " "}',
        "long": json.dumps({"caption": "x" * 200_000}).encode(),
        "good": b'{"caption": "A dog."}',
    }
    files = {f"{name}.jpg": b"image" for name in members} | {f"{name}.json": text for name, text in members.items()}
    corpus = make(tmp_path / "c", [write_tar(tmp_path / "t.tar", files)], captions="json:caption")
    assert [row.key for row in corpus.rows() if row.annotations] == ["good"]
    assert corpus.manifest.shards[0].skipped == {
        "bad JSON member": 4,
        "JSON member without a text 'caption'": 3,
        "empty text": 1,
        "text is too long": 1,
    }


def test_folders_are_searched_through_links_and_only_once(tmp_path: Path) -> None:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "real" / "deep" / "a.tar").touch()
    (tmp_path / "place").mkdir()
    (tmp_path / "place" / "b.tar").touch()
    (tmp_path / "place" / "link").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "deep" / "back").symlink_to(tmp_path / "place")
    found = find_files([tmp_path / "place"], ".tar")
    assert [path.relative_to(tmp_path).as_posix() for path in found] == ["place/link/deep/a.tar", "place/b.tar"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"key": "0a", "annotations": [{"task": "caption", "language": "xx", "target": "a"}]}', "unknown language"),
        (
            b'{"key": "0a", "annotations": [{"task": "sing", "language": "de", "target": "a"}]}',
            "key '0a': unknown task 'sing'",
        ),
        (b'{"annotations": []}', "no 'key'"),
        (b"[1]", "one JSON object"),
        (b'{"key": "0a", "annotations": 3}', "annotations is a int; expected a list"),
        (b'{"key": "0a", "split": ["x"], "annotations": []}', "a split is a name"),
        (b'{"key": "0a", "annotations": [{"task": "caption", "language": "en", "target": {}}]}', "target"),
        (b"[" * 100_000, "nested too deeply"),
        (b"{", "not valid JSON"),
        (b'{"key": "\xff"}', "'utf-8' codec can't decode"),
    ],
)
def test_bad_annotation_files_are_named(tmp_path: Path, tars: list[Path], content: bytes, message: str) -> None:
    (tmp_path / "texts.jsonl").write_bytes(content)
    with pytest.raises(UserError, match=message):
        make(tmp_path / "c", tars, annotations=tmp_path / "texts.jsonl")
    assert not (tmp_path / "c" / "corpus.json").exists()


def test_a_truncated_tar_is_counted_and_the_rest_is_kept(tmp_path: Path, tars: list[Path]) -> None:
    os.truncate(tars[0], 512 * 7 + 3)
    corpus = make(tmp_path / "c", tars)
    assert corpus.manifest.shards[0].skipped == {"truncated tar": 1}
    assert [row.key for row in corpus.rows()] == ["0a", "1a", "1b"]


def test_duplicates_in_a_tar_are_counted(tmp_path: Path, write_tar: WriteTar) -> None:
    tar = write_tar(tmp_path / "a.tar", {"x.jpg": b"1", "x.png": b"2", "../y.jpg": b"3", "z.jpg": b""})
    corpus = make(tmp_path / "c", [tar])
    assert [row.key for row in corpus.rows()] == ["x"]
    assert corpus.manifest.shards[0].skipped == {"duplicate key": 1, "empty image": 1, "unsafe member name": 1}


def test_outputs_that_hold_something_else_are_kept(tmp_path: Path, tars: list[Path]) -> None:
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match=r"holds other files \(thesis.txt\)"):
        make(tmp_path / "c", tars)
    with pytest.raises(UserError, match=r"2 tars are called 0\.tar"):
        make(tmp_path / "d", [tars[0], tmp_path / "other" / "0.tar"])
    with pytest.raises(UserError, match=r"ends in \.tar"):
        make(tmp_path / "d", [tmp_path / "0.tar.gz"])


def test_files_are_found_by_folder_and_pattern(tmp_path: Path, tars: list[Path]) -> None:
    assert find_files([tmp_path], ".tar") == find_files([str(tmp_path / "*.tar")], ".tar") == tars
    with pytest.raises(UserError, match=r"no \.tar files"):
        find_files([tmp_path / "x*.tar"], ".tar")
    with pytest.raises(UserError, match="no such file"):
        find_files([tmp_path / "x.tar"], ".tar")


def test_multi30k(shared: Path, tmp_path: Path) -> None:
    folder = shared / "data" / "multi30k"
    tar = sorted((folder / "images").glob("*.tar"))[3]
    corpus = import_multi30k(tmp_path / "c", Multi30kMaker(folder / "data"), images=str(tar))
    listed = [json.loads(line) for line in (folder / "images" / "index.jsonl").read_text("utf-8").splitlines()]
    expected = {item["image"].removesuffix(".jpg"): item for item in listed}
    rows = list(corpus.rows())
    assert len(rows) > 800
    for row in rows:
        item = expected[row.key]
        assert row.split == item["split"]
        translations = {a.language: (a.source, a.target) for a in row.annotations if a.task == "translation"}
        assert translations == {code: (item["en"].strip(), item[code].strip()) for code in ("de", "fr")}
        captions = [a for a in row.annotations if a.task == "caption"]
        assert [a.language for a in captions] == ["en"] * 5 + ["de"] * 5
    index = CorpusIndex.open(corpus)
    assert index.read_image(0).startswith(b"\xff\xd8")


def test_one_process_makes_a_corpus(tmp_path: Path, tars: list[Path]) -> None:
    """Two with other settings would mix their texts under the manifest of the last."""
    with (
        locked(tmp_path / "c" / ".parts" / ".lock"),
        pytest.raises(UserError, match=rf"another process makes this corpus.*held by process {os.getpid()} on"),
    ):
        make(tmp_path / "c", tars)
    assert make(tmp_path / "c", tars, captions="txt").num_images() == 4
    assert not (tmp_path / "c" / ".parts").exists()
    with pytest.raises(UserError, match="holds other files"):
        make(tmp_path, tars)
    assert not (tmp_path / ".parts").exists()


def test_names_with_dots_and_photos_that_are_not_there(tmp_path: Path, make_image: Callable[..., bytes]) -> None:
    names = ["val.2017/a.jpg", "b.small.jpg", "lost.jpg"]
    for name in names[:2]:
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).write_bytes(make_image(0))
    (tmp_path / "c.json").write_text(json.dumps([{"file": name, "captions": ["A dog."]} for name in names]))
    corpus = import_coco(tmp_path / "c", images=tmp_path / "photos", captions=tmp_path / "c.json")
    assert [row.key for row in corpus.rows()] == ["b_small", "val.2017/a"]
    assert corpus.manifest.shards[0].skipped == {"image is not in the folder": 1}
    assert not check_corpus(corpus).problems.counts


def test_coco(shared: Path, tmp_path: Path) -> None:
    folder = shared / "data" / "coco"
    corpus = import_coco(tmp_path / "c", images=folder / "val2017", captions=folder / "captions.json")
    assert corpus.num_images("test") == 85
    assert not check_corpus(corpus).problems.counts
    with pytest.raises(UserError, match="holds none of the 85 photos"):
        import_coco(tmp_path / "d", images=tmp_path, captions=folder / "captions.json")
