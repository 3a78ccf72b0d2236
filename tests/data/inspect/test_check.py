"""`babelcap data` from the command line: check, stats, show, export, on sound and on damaged corpora."""

import errno
import io
import json
import os
import re
import shutil
import struct
import tarfile
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner, Result

from babelcap.cli import app
from babelcap.coverage import CAPTION, TRANSLATION, Coverage, Style
from babelcap.data.importers import assemble
from babelcap.data.inspect.check import check_corpus
from babelcap.data.store.format import SCHEMA
from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.manifest import record_files
from babelcap.data.store.store import Corpus, CorpusWriter
from babelcap.errors import UserError
from babelcap.records import Annotation
from babelcap.storage import text_sha256

TEXTS = {
    "de": "Ein Hund läuft.",
    "fr": "Un chien court.",
    "es": "Un perro corre.",
    "ru": "Собака бежит.",
    "zh": "狗在跑。",
}


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def jpeg(seed: int) -> bytes:
    stream = io.BytesIO()
    Image.linear_gradient("L").rotate(seed * 13).resize((48, 36)).save(stream, "JPEG")
    return stream.getvalue()


def bomb() -> bytes:
    """A PNG of few bytes that says it is 60,000 pixels wide and high."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(b"\0" * 100)) + chunk(b"IEND", b"")


def texts(with_hole: bool = False) -> list[Annotation]:
    annotations = [
        Annotation(task=CAPTION, language="en", style=Style.SHORT, target="A dog <runs> & barks."),
        Annotation(task=CAPTION, language="de", style=Style.SHORT, target="Ein Hund läuft."),
    ]
    annotations += [
        Annotation(task=TRANSLATION, language=code, source="A dog runs.", target=text, origin="web", score=0.5)
        for code, text in TEXTS.items()
    ]
    if with_hole:
        annotations.append(Annotation(task=CAPTION, language="zh", style=Style.SHORT, target="狗在跑。"))
    return annotations


def write_corpus(folder: Path, images: dict[str, bytes], coverage: Coverage | None = None) -> Corpus:
    with CorpusWriter(folder, provenance={"source": "test"}, coverage=coverage, images_per_tar=4) as writer:
        for key, image in images.items():
            split = "eval" if key.startswith("e") else "train"
            writer.add(key, image, "jpg", split, texts(with_hole=split == "eval"))
    return Corpus.open(folder)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return write_corpus(tmp_path / "corpus", {**{f"t{n}": jpeg(n) for n in range(6)}, "e0": jpeg(10), "e1": jpeg(11)})


def test_a_sound_corpus_passes(corpus: Corpus) -> None:
    done = run("check", corpus.folder, "--full", "--workers", 1)
    assert done.exit_code == 0, done.output
    assert "8 images, 58 annotations: all well" in done.output
    assert "not checked" not in done.output
    values = json.loads(run("check", corpus.folder, "--json", "--workers", 1).output)
    assert values == {
        "ok": True,
        "num_images": 8,
        "num_annotations": 58,
        "problems": {},
        "places": {},
        "notes": {},
        "not_checked": ["changed bits inside images: the checksums of 2 tars; --full compares them"],
        "num_recorded": 0,
    }


def flip(path: Path, place: int, bit: int = 0) -> None:
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(content)


def test_checksums_of_tars_can_be_recorded_later(corpus: Corpus, tmp_path: Path) -> None:
    """A corpus of linked tars has none until they are asked for, and `check` says so."""
    tars, texts = tmp_path / "tars", tmp_path / "texts.jsonl"
    shutil.copytree(corpus.folder / "images", tars)
    lines = [
        {"key": row.key, "split": row.split, "annotations": [dict(text) for text in row.annotations]}
        for row in corpus.rows()
    ]
    texts.write_text("".join(json.dumps(line) + "\n" for line in lines))
    linked = tmp_path / "linked"
    assert run("index", tars, "--annotations", texts, "-o", linked, "--workers", 1).exit_code == 0
    for options in ((), ("--full",)):
        done = run("check", linked, *options, "--workers", 1)
        assert (done.exit_code, "2 tars have no checksum of their data; --record adds it" in done.output) == (0, True)
    before = Corpus.open(linked)
    done = run("check", linked, "--record", "--workers", 1)
    assert "recorded: the checksums of 2 tars" in done.output
    assert "not checked" not in done.output
    after = Corpus.open(linked)
    assert after.content_hash == before.content_hash
    assert [shard.tar_sha256 for shard in after.manifest.shards] == [
        shard.tar_sha256 for shard in corpus.manifest.shards
    ]
    first = next(corpus.rows())
    flip(tars / "00000.tar", first.offset + first.length)  # behind an image: no decoder reads it
    assert run("check", linked, "--workers", 1).exit_code == 0
    done = run("check", linked, "--full", "--workers", 1)
    assert (done.exit_code, "checksum of the tar's data differs" in done.output) == (1, True)
    done = run("check", linked, "--record", "--workers", 1)
    assert (done.exit_code, "nothing was recorded" in done.output) == (1, True)


def test_a_manifest_without_its_checksum_is_read_with_a_note(corpus: Corpus) -> None:
    path = corpus.folder / "corpus.json"
    values = json.loads(path.read_text())
    del values["sha256"], values["files"]
    path.write_text(json.dumps(values))
    done = run("check", corpus.folder, "--workers", 1)
    assert (done.exit_code, "has no checksum of its manifest" in done.stderr) == (0, True)
    assert run("check", corpus.folder, "--record", "--workers", 1).exit_code == 0
    assert "sha256" in json.loads(path.read_text())
    path.write_text(path.read_text().replace(corpus.coverage.languages[1].prefix, "Ein anderes "))
    done = run("check", corpus.folder)
    assert (done.exit_code, "its contents are not those of its checksum" in done.stderr) == (2, True)


@pytest.mark.parametrize("name", ["../../other.parquet", "/other.parquet", "a/b.parquet", ".."])
@pytest.mark.parametrize("field", ["annotations", "tar"])
def test_paths_of_a_manifest_stay_inside(corpus: Corpus, name: str, field: str) -> None:
    path = corpus.folder / "corpus.json"
    values = json.loads(path.read_text())
    values["shards"][0][field] = name
    del values["sha256"]
    path.write_text(json.dumps({**values, "sha256": text_sha256(values)}))
    with pytest.raises(UserError, match="is not the plain name of a file below the corpus"):
        Corpus.open(corpus.folder)


def test_files_beside_and_the_index_are_checked(corpus: Corpus) -> None:
    (corpus.folder / "truth.parquet").write_bytes(b"truth")
    record_files(corpus.folder)
    index = CorpusIndex.open(corpus.folder)
    assert check_corpus(Corpus.open(corpus.folder)).problems.counts == {}
    flip(index.folder / "text", 7)
    flip(corpus.folder / "truth.parquet", 2)
    counts = check_corpus(Corpus.open(corpus.folder)).problems.counts
    assert counts["checksum of a file differs"] == 1
    assert counts["index is damaged; it is built again when it is next opened"] == 1
    with pytest.raises(UserError, match=r"truth\.parquet is damaged"):
        Corpus.open(corpus.folder).file("truth.parquet")
    assert CorpusIndex.open(corpus.folder).annotation(0).target == "A dog <runs> & barks."
    (corpus.folder / "truth.parquet").unlink()
    assert check_corpus(Corpus.open(corpus.folder)).problems.counts == {"file is missing": 1}


def test_bad_images_are_counted_by_reason(tmp_path: Path) -> None:
    images = {"a": jpeg(0), "b": jpeg(1)[:300], "c": bomb(), "d": b"text", "t": jpeg(0), "e": jpeg(0)}
    corpus = write_corpus(tmp_path / "c", images)
    done = run("check", corpus.folder, "--json", "--workers", 1)
    assert done.exit_code == 1
    values = json.loads(done.output)
    assert values["problems"] == {
        "corrupt image": 1,
        "decompression bomb": 1,
        "not an image": 1,
        "image in two splits": 1,
    }
    assert values["notes"] == {"duplicate image": 1}
    assert values["places"]["decompression bomb"] == ["00000.tar: c"]
    assert re.search(r"decompression bomb +│ +1 ", run("check", corpus.folder, "--workers", 1).output)


def test_changed_and_lost_tars_are_found(corpus: Corpus) -> None:
    tar = corpus.tar_path("00000.tar")
    second = list(corpus.rows())[1]
    os.truncate(tar, second.offset + 100)
    assert check_corpus(corpus).problems.counts == {
        "tar differs from the manifest": 1,
        "truncated tar": 3,
        "offset is not that of the image in the tar": 3,
    }
    with tarfile.open(tar, "w") as other:
        info = tarfile.TarInfo("other.jpg")
        info.size = 700
        other.addfile(info, io.BytesIO(b"x" * 700))
    counts = check_corpus(corpus).problems.counts
    assert counts["tar differs from the manifest"] == 1
    assert counts["offset is not that of the image in the tar"] == 4
    tar.unlink()
    counts = check_corpus(corpus).problems.counts
    assert (counts["tar cannot be read"], counts["missing tar"]) == (1, 4)


def test_a_corpus_without_texts_is_not_well(tmp_path: Path) -> None:
    with CorpusWriter(tmp_path / "c", provenance={}) as writer:
        writer.add("a", jpeg(0), "jpg", "train", [])
    done = run("check", tmp_path / "c", "--workers", 1)
    assert (done.exit_code, "no annotations at all" in done.output) == (1, True)


def test_the_hole_and_missing_pairs_are_found(tmp_path: Path) -> None:
    with CorpusWriter(tmp_path / "c", provenance={}) as writer:
        writer.add("a", jpeg(0), "jpg", "train", texts(with_hole=True)[1:])
    problems = check_corpus(Corpus.open(tmp_path / "c")).problems
    assert problems.counts == {"seen pair is missing": 1, "unseen pair in training": 1}
    assert problems.places["seen pair is missing"] == ["train: caption-en"]
    assert problems.places["unseen pair in training"] == ["train: caption-zh"]
    write_corpus(tmp_path / "full", {"a": jpeg(0)}, Coverage().full())
    assert check_corpus(Corpus.open(tmp_path / "full")).problems.counts == {"seen pair is missing": 4}


def rewrite(corpus: Corpus, table: pa.Table) -> None:
    pq.write_table(table, corpus.folder / "annotations" / "00000.parquet")


def test_damaged_texts_are_found(corpus: Corpus) -> None:
    table = pq.read_table(corpus.folder / "annotations" / "00000.parquet")
    rows = table.to_pylist()
    rows[0]["annotations"][0]["target"] = "  "
    rows[1]["annotations"][2]["source"] = None
    rows[2]["annotations"][0]["task"] = "sing"
    rows[3]["key"] = rows[0]["key"]
    rewrite(corpus, pa.Table.from_pylist(rows, schema=SCHEMA))
    counts = check_corpus(corpus).problems.counts
    assert counts["empty text"] == 1
    assert counts["translation without source text"] == 1
    assert counts["unknown task"] == 1
    assert counts["duplicate key"] == 1
    assert counts["checksum of the annotations differs"] == 1
    assert counts["counts differ from the manifest"] == 1
    keys = pa.array([b"\xff\xfe", b"t1", b"t2", b"t3"]).view(pa.string())
    rewrite(corpus, table.set_column(0, "key", keys).cast(SCHEMA))
    assert check_corpus(corpus).problems.counts["text is not UTF-8"] == 1
    rewrite(corpus, table.drop_columns(["split"]))
    problems = check_corpus(corpus).problems
    assert "column 'split' is missing" in problems.places["annotations cannot be read"][0]


def test_the_command_names_what_cannot_be_done(tmp_path: Path, corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    done = run("check", tmp_path / "none")
    assert (done.exit_code, done.stderr) == (2, f"babelcap: {tmp_path / 'none'}: no such corpus folder\n")
    done = run("export", corpus.folder, "-o", tmp_path / "e", "--format", "lmdb")
    assert (done.exit_code, "the only format is 'webdataset'" in done.stderr) == (2, True)

    for number, words in ((errno.EROFS, "read-only"), (errno.ENOSPC, "the disk is full")):

        def refuse(*arguments: object, number: int = number) -> None:
            raise OSError(number, "refused", str(tmp_path / "out"))

        monkeypatch.setattr(assemble, "map_shards", refuse)
        done = run("index", corpus.tar_path("00000.tar"), "-o", tmp_path / "out")
        assert done.exit_code == 2
        assert words in done.stderr
        assert not (tmp_path / "out" / "corpus.json").exists()


def test_index_and_stats_from_the_command_line(corpus: Corpus, tmp_path: Path) -> None:
    images = corpus.folder / "images"
    done = run("index", images, "-o", tmp_path / "plain", "--workers", 1)
    assert (done.exit_code, "8 images and not one text for them" in done.stderr) == (2, True)
    assert not (tmp_path / "plain" / "corpus.json").exists()
    done = run("index", images, "-o", tmp_path / "plain", "--captions", "json:target", "--workers", 1)
    assert (done.exit_code, "not one text" in done.stderr) == (2, True)
    done = run("index", images, "-o", tmp_path / "plain", "--images-only", "--workers", 1)
    assert (done.exit_code, "8 images, 0 annotations" in done.output) == (0, True), done.output
    assert check_corpus(Corpus.open(tmp_path / "plain")).notes.counts == {"no annotations at all": 1}
    values = json.loads(run("stats", corpus.folder, "--json").output)
    assert values["splits"]["train"]["num_images"] == 6
    assert values["splits"]["train"]["annotations_per_image"] == {"mean": 7.0, "min": 7, "max": 7}
    assert values["splits"]["eval"]["languages"] == ["de", "en", "es", "fr", "ru", "zh"]
    chinese = values["splits"]["train"]["pairs"]["translation-zh"]
    assert chinese["num_annotations"] == 6
    assert chinese["target_characters"] == {"mean": 4.0, "min": 4, "max": 4}
    assert chinese["source_characters"] == {"mean": 11.0, "min": 11, "max": 11}
    assert values["splits"]["eval"]["pairs"]["caption-zh"]["styles"] == {"short": 2}
    assert "translation-zh" in run("stats", corpus.folder).output
