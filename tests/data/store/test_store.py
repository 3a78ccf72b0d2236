"""Writing and reading a corpus, and what happens when either goes wrong."""

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelcap.coverage import Coverage, Pair, Style
from babelcap.data.store.format import SCHEMA
from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.manifest import make_manifest
from babelcap.data.store.store import Corpus, CorpusWriter
from babelcap.data.store.tar import TarFileWriter, scan_tar
from babelcap.errors import UserError
from babelcap.records import Annotation

CAPTION = Annotation(task="caption", language="de", style=Style.DETAILED, target="Ein Bild. Noch eins.", score=0.25)
TRANSLATION = Annotation(task="translation", language="zh", source="An image.", target="一张图片。", origin="web")


def write_corpus(folder: Path, num_images: int = 5) -> Corpus:
    with CorpusWriter(folder, provenance={"source": "test", "seed": 3}, images_per_tar=2) as writer:
        for number in range(num_images):
            split = "train" if number else "eval"
            writer.add(f"{number:09d}", bytes([number]) * (number + 1), "jpg", split, [CAPTION, TRANSLATION])
    return Corpus.open(folder)


def test_what_was_written_is_read(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c")
    assert corpus.splits == ("eval", "train")
    assert corpus.counts("train") == {Pair("caption", "de"): 4, Pair("translation", "zh"): 4}
    assert (corpus.num_images(), corpus.num_images("eval")) == (5, 1)
    assert corpus.manifest.provenance["seed"] == 3
    assert "babelcap" in corpus.manifest.provenance["versions"]
    rows = list(corpus.rows())
    assert [row.key for row in rows] == [f"{number:09d}" for number in range(5)]
    assert [row.tar for row in rows] == ["00000.tar", "00000.tar", "00001.tar", "00001.tar", "00002.tar"]
    assert rows[3].annotations == (CAPTION, TRANSLATION)
    content = corpus.tar_path(rows[3].tar).read_bytes()
    assert content[rows[3].offset : rows[3].offset + rows[3].length] == bytes([3]) * 4
    assert [row.key for row in corpus.rows("eval")] == ["000000000"]
    assert Coverage() == corpus.coverage


def test_the_same_input_gives_the_same_bytes(tmp_path: Path) -> None:
    one, two = write_corpus(tmp_path / "one"), write_corpus(tmp_path / "two")
    files = sorted(path.relative_to(one.folder) for path in one.folder.rglob("*") if path.is_file())
    assert len(files) == 7
    assert all((one.folder / file).read_bytes() == (two.folder / file).read_bytes() for file in files)


def test_an_error_while_writing_leaves_nothing(tmp_path: Path) -> None:
    def write_and_fail() -> None:
        with CorpusWriter(tmp_path / "c", provenance={}) as writer:
            writer.add("a", b"x", "jpg", "train", [CAPTION])
            raise RuntimeError("the maker failed")

    with pytest.raises(RuntimeError, match="the maker failed"):
        write_and_fail()
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written = 0

    def write(self: TarFileWriter, content: bytes) -> None:
        nonlocal written
        written += len(content)
        if written > 3000:
            raise OSError(28, "No space left on device")
        self._file.write(content)
        self.num_bytes += len(content)

    monkeypatch.setattr(TarFileWriter, "_write", write)
    with pytest.raises(OSError, match="No space left"):
        write_corpus(tmp_path / "c")
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_is_kept(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UserError, match="exists already"):
        write_corpus(tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_no_image_is_no_corpus(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no image was added"), CorpusWriter(tmp_path / "c", provenance={}):
        pass
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize(
    ("key", "image", "extension", "annotation", "message"),
    [
        ("../a", b"x", "jpg", CAPTION, "cannot be used"),
        ("a.b", b"x", "jpg", CAPTION, "cannot be used"),
        ("a", b"", "jpg", CAPTION, "the image is empty"),
        ("a", b"x", "exe", CAPTION, "not an image extension"),
        ("a", b"x", "jpg", CAPTION.model_copy(update={"target": " "}), "empty target"),
        ("a", b"x", "jpg", CAPTION.model_copy(update={"language": "xx"}), "unknown language 'xx'"),
        ("a", b"x", "jpg", TRANSLATION.model_copy(update={"source": None}), "no source text"),
        ("first", b"x", "jpg", CAPTION, "added twice"),
    ],
)
def test_a_mistake_in_a_sample_is_an_error_at_once(
    tmp_path: Path, key: str, image: bytes, extension: str, annotation: Annotation, message: str
) -> None:
    def write() -> None:
        with CorpusWriter(tmp_path / "c", provenance={}) as writer:
            writer.add("first", b"x", "jpg", "train", [CAPTION])
            writer.add(key, image, extension, "train", [annotation])

    with pytest.raises(UserError, match=message):
        write()
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_a_corpus_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such corpus folder"):
        Corpus.open(tmp_path / "none")
    with pytest.raises(UserError, match=r"not a corpus \(no corpus.json\)"):
        Corpus.open(tmp_path)
    (tmp_path / "annotations").mkdir()
    with pytest.raises(UserError, match="unfinished corpus"):
        Corpus.open(tmp_path)
    (tmp_path / "corpus.json").write_text('{"format": "other"}')
    with pytest.raises(UserError, match="not the manifest"):
        Corpus.open(tmp_path)
    (tmp_path / "corpus.json").write_text('{"format": "babelcap-corpus", "version": 99}')
    with pytest.raises(UserError, match="format version 99"):
        Corpus.open(tmp_path)
    (tmp_path / "corpus.json").write_text("{")
    with pytest.raises(UserError, match="not valid JSON"):
        Corpus.open(tmp_path)
    with pytest.raises(UserError, match="no split 'test'"):
        write_corpus(tmp_path / "c").counts("test")


def test_a_damaged_manifest_names_the_field(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c")
    values = json.loads((corpus.folder / "corpus.json").read_text())
    del values["shards"][0]["tar"]
    (corpus.folder / "corpus.json").write_text(json.dumps(values))
    with pytest.raises(UserError, match=r"shards\.0\.tar"):
        Corpus.open(corpus.folder)


def without_checksums(corpus: Corpus) -> Corpus:
    """As others may write a corpus: what is wrong with its annotations is then found by reading them."""
    manifest = corpus.manifest
    shards = [shard.model_copy(update={"annotations_sha256": ""}) for shard in manifest.shards]
    return Corpus(corpus.folder, make_manifest(shards, manifest.coverage, manifest.provenance))


@pytest.mark.parametrize("reader", [lambda corpus: list(corpus.rows()), CorpusIndex.open])
def test_damaged_annotations_are_named(tmp_path: Path, reader: object) -> None:
    corpus = write_corpus(tmp_path / "c")
    path = corpus.folder / "annotations" / "00001.parquet"
    table = pq.read_table(path)
    wrong_type = table.set_column(2, "offset", pa.array(["1", "2"]))
    for damaged, message in [
        (table.drop_columns(["offset"]), "column 'offset' is missing"),
        (wrong_type, "column 'offset' is of type string, expected int64"),
    ]:
        pq.write_table(damaged, path)
        with pytest.raises(UserError, match=r"00001\.parquet is damaged: its contents are not those of corpus\.json"):
            reader(corpus)  # type: ignore[operator]
        with pytest.raises(UserError, match=message):
            reader(without_checksums(corpus))  # type: ignore[operator]
    path.write_bytes(b"not Parquet at all")
    with pytest.raises(UserError, match=r"00001\.parquet is not a readable Parquet file"):
        reader(without_checksums(corpus))  # type: ignore[operator]
    path.unlink()
    with pytest.raises(UserError, match="no such file"):
        reader(corpus)  # type: ignore[operator]


def test_an_index_refuses_annotations_that_disagree(tmp_path: Path) -> None:
    corpus = without_checksums(write_corpus(tmp_path / "c"))
    path = corpus.folder / "annotations" / "00001.parquet"
    table = pq.read_table(path)
    for damaged, message in [
        (table.slice(0, 1), "the manifest says 5"),
        (table.take([1, 0]), "not in the order of the tar"),
        (table.set_column(1, "tar", pa.array(["00000.tar"] * 2)), "rows of another tar"),
        (table.set_column(0, "key", pa.array([None, "a"])), "column 'key' has empty values"),
    ]:
        pq.write_table(damaged.cast(SCHEMA), path)
        with pytest.raises(UserError, match=message):
            CorpusIndex.open(corpus)


def test_the_manifest_tells_what_the_tars_hold(tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "c")
    for shard in corpus.manifest.shards:
        scan = scan_tar(corpus.tar_path(shard.tar))
        assert (shard.tar_bytes, shard.tar_headers_sha256) == (scan.num_bytes, scan.headers_sha256)
