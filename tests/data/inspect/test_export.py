"""An export: plain webdataset for others, and a corpus again when it is indexed."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from babelcap.cli import app
from babelcap.coverage import CAPTION, Coverage
from babelcap.data.store.index import TarReader
from babelcap.data.store.store import Corpus, CorpusWriter
from babelcap.records import Annotation


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["data", *map(str, arguments)])


def content(folder: Path) -> dict[str, tuple[Any, ...]]:
    """All that a corpus says of its images, whichever tar they lie in."""
    corpus = Corpus.open(folder)
    readers = {shard.tar: TarReader([corpus.tar_path(shard.tar)]) for shard in corpus.manifest.shards}
    return {
        row.key: (row.split, row.annotations, readers[row.tar].read(0, row.offset, row.length)) for row in corpus.rows()
    }


def test_other_readers_find_what_they_expect(small_corpus: Path, tmp_path: Path) -> None:
    done = run("export", small_corpus, "-o", tmp_path / "plain", "--workers", 1)
    assert (done.exit_code, done.output) == (0, f"{tmp_path / 'plain'}: 72 images\n")
    tars = sorted(path.relative_to(tmp_path / "plain").as_posix() for path in (tmp_path / "plain").rglob("*.tar"))
    assert tars == ["eval/eval-00006.tar", "eval/eval-00007.tar"] + [f"train/train-0000{n}.tar" for n in range(6)]
    with tarfile.open(tmp_path / "plain" / tars[0]) as tar:
        files = {info.name: tar.extractfile(info).read() for info in tar}  # type: ignore[union-attr]
    assert list(files)[:2] == ["000000060.jpg", "000000060.json"]
    split, annotations, image = content(small_corpus)["000000060"]
    assert files["000000060.jpg"] == image
    values = json.loads(files["000000060.json"])
    assert values["split"] == split == "eval"
    assert [Annotation(**item) for item in values["annotations"]] == list(annotations)


def test_an_export_can_be_indexed_again(tmp_path: Path) -> None:
    """Several splits in one tar, as a world has them, with a coverage of its own."""
    coverage = Coverage(seen=("caption-en", "caption-fr"))
    with CorpusWriter(tmp_path / "w", provenance={}, coverage=coverage) as writer:
        for number, split in enumerate(["train", "train", "eval", "holdout"]):
            text = Annotation(task=CAPTION, language="fr", target=f"image {number} <&\u2028", origin="o", score=0.25)
            writer.add(f"k{number}", b"image %d" % number, "jpg", split, [text] * number)
    assert run("export", tmp_path / "w", "-o", tmp_path / "plain", "--workers", 1).exit_code == 0
    done = run("index", tmp_path / "plain", "-o", tmp_path / "again", "--workers", 1)
    assert (done.exit_code, "4 images, 6 annotations" in done.output) == (0, True), done.output
    before, after = Corpus.open(tmp_path / "w"), Corpus.open(tmp_path / "again")
    assert content(tmp_path / "again") == content(tmp_path / "w")
    assert after.manifest.splits == before.manifest.splits
    assert after.coverage == before.coverage
    done = run("index", tmp_path / "plain" / "eval", "-o", tmp_path / "eval", "--workers", 1)
    assert "eval: 1 images; caption-fr 2" in done.output
    assert Corpus.open(tmp_path / "eval").coverage == coverage


def test_a_stopped_export_goes_on(small_corpus: Path, tmp_path: Path) -> None:
    assert run("export", small_corpus, "-o", tmp_path / "plain", "--workers", 1).exit_code == 0
    first, second = (tmp_path / "plain" / "train" / f"train-0000{number}.tar" for number in range(2))
    whole, before = first.read_bytes(), second.stat().st_mtime_ns
    first.unlink()
    assert run("export", small_corpus, "-o", tmp_path / "plain", "--workers", 1).exit_code == 0
    assert (first.read_bytes(), second.stat().st_mtime_ns) == (whole, before)


def test_what_cannot_be_exported_is_named(small_corpus: Path, tmp_path: Path) -> None:
    assert run("export", small_corpus, "-o", tmp_path / "plain", "--split", "eval", "--workers", 1).exit_code == 0
    annotation = Annotation(task=CAPTION, language="en", target="a")
    for name, split in (("other", "train"), ("outside", "../x")):
        with CorpusWriter(tmp_path / name, provenance={}) as writer:
            writer.add("a", b"image", "jpg", split, [annotation])
    done = run("export", tmp_path / "other", "-o", tmp_path / "plain")
    assert (done.exit_code, "something else than an export of this corpus" in done.stderr) == (2, True)
    done = run("export", tmp_path / "outside", "-o", tmp_path / "o")
    assert (done.exit_code, "'../x' cannot be the name of a folder" in done.stderr) == (2, True)
    done = run("export", tmp_path / "other", "-o", tmp_path / "e", "--format", "lmdb")
    assert (done.exit_code, "the only format is 'webdataset'" in done.stderr) == (2, True)
    tar = Corpus.open(tmp_path / "other").tar_path("00000.tar")
    tar.write_bytes(tar.read_bytes()[:513])
    done = run("export", tmp_path / "other", "-o", tmp_path / "damaged", "--workers", 1)
    assert (done.exit_code, "babelcap data check" in done.stderr) == (2, True)
    assert not (tmp_path / "damaged" / "train" / "train-00000.tar").exists()


@pytest.mark.parametrize("damage", [b"[]", b"{", b'{"coverage": {"seen": ["sing-xx"]}}'])
def test_a_damaged_receipt_is_named(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "plain" / "export.json").write_bytes(damage)
    done = run("index", tmp_path / "plain", "-o", tmp_path / "again")
    assert (done.exit_code, "export.json" in done.stderr) == (2, True)
