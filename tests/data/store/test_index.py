"""Random access to a corpus."""

import multiprocessing
import os
import pickle
import tracemalloc
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from babelcap.coverage import CAPTION, TRANSLATION, Coverage, Pair, Style
from babelcap.data.store import index_build
from babelcap.data.store.format import ANNOTATION_TYPE, SCHEMA
from babelcap.data.store.index import CorpusIndex, TarReader
from babelcap.data.store.manifest import Shard, SplitCounts, make_manifest, write_corpus_manifest
from babelcap.data.store.store import Corpus, CorpusWriter
from babelcap.errors import BadSample, UserError
from babelcap.records import Annotation


def make_corpus(folder: Path, num_images: int = 25, images_per_tar: int = 10) -> Corpus:
    """Images that are not images, since an index never looks inside: the text says which image it belongs to."""
    with CorpusWriter(folder, provenance={"source": "test"}, images_per_tar=images_per_tar) as writer:
        for number in range(num_images):
            annotations = [
                Annotation(task=CAPTION, language="de", style=Style.SHORT, target=f"Bild {number}", origin="a"),
                Annotation(task=TRANSLATION, language="zh", source=f"image {number}", target=f"图{number}", score=0.1),
            ]
            split = "eval" if number % 5 == 4 else "train"
            writer.add(f"{number:09d}", f"bytes of {number}".encode(), "jpg", split, annotations[: 1 + number % 2])
    return Corpus.open(folder)


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    return make_corpus(tmp_path / "corpus")


def test_every_annotation_and_image_comes_back(corpus: Corpus) -> None:
    index = CorpusIndex.open(corpus)
    expected = [(row.key, row.split, annotation) for row in corpus.rows() for annotation in row.annotations]
    assert index.num_annotations == len(expected) == 37
    for row, (key, _, annotation) in enumerate(expected):
        assert index.annotation(row) == annotation
        assert index.key(index.image_number(row)) == key
        assert index.read_image(index.image_number(row)) == f"bytes of {int(key)}".encode()
        assert row in index.image_rows(index.image_number(row))
    for split in corpus.splits:
        assert index.pairs(split) == (Pair(CAPTION, "de"), Pair(TRANSLATION, "zh"))
        for pair in index.pairs(split):
            rows = index.rows(split, pair)
            wanted = [row for row, item in enumerate(expected) if item[1] == split and item[2].pair == pair]
            assert rows.tolist() == wanted
            assert len(rows) == corpus.counts(split)[pair]


def test_tars_follow_the_rows(corpus: Corpus) -> None:
    index = CorpusIndex.open(corpus)
    rows = index.rows("train", Pair(CAPTION, "de"))
    tars = index.tar_of(rows)
    assert tars.tolist() == [index.image_number(row) // 10 for row in rows]
    assert np.all(np.diff(tars) >= 0)


def test_unknown_split_and_pair_are_named(corpus: Corpus) -> None:
    index = CorpusIndex.open(corpus)
    with pytest.raises(UserError, match="no annotated split 'test'"):
        index.pairs("test")
    with pytest.raises(UserError, match="has no caption-fr"):
        index.rows("train", Pair(CAPTION, "fr"))


def test_an_image_without_annotations_has_an_empty_range(tmp_path: Path) -> None:
    with CorpusWriter(tmp_path / "c", provenance={}) as writer:
        writer.add("a", b"x", "jpg", "train", [])
        writer.add("b", b"y", "png", "train", [Annotation(task=CAPTION, language="en", target="b")])
    index = CorpusIndex.open(tmp_path / "c")
    assert [list(index.image_rows(number)) for number in range(2)] == [[], [0]]
    assert index.image_number(0) == 1


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_read_the_same(corpus: Corpus, method: str) -> None:
    index = CorpusIndex.open(corpus)
    rows, numbers = range(index.num_annotations), range(index.num_images)
    here = [index.annotation(row) for row in rows], [index.read_image(number) for number in numbers]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as executor:
        there = list(executor.map(index.annotation, rows)), list(executor.map(index.read_image, numbers, chunksize=5))
    assert there == here


def test_pickling_carries_no_data(corpus: Corpus) -> None:
    index = CorpusIndex.open(corpus)
    again = pickle.loads(pickle.dumps(index))
    assert again.annotation(3) == index.annotation(3)
    assert set(index.__getstate__()) == {"corpus", "folder"}


def test_several_processes_may_ask_at_once(corpus: Corpus) -> None:
    with ProcessPoolExecutor(4, mp_context=multiprocessing.get_context("fork")) as executor:
        indices = list(executor.map(CorpusIndex.open, [corpus.folder] * 8))
    assert {index.num_annotations for index in indices} == {37}
    folders = [path.name for path in (corpus.folder / "index").iterdir() if path.is_dir()]
    assert folders == [f"v2-{corpus.content_hash}"]


def test_open_files_are_bounded(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}.tar" for number in range(20)]
    for number, path in enumerate(paths):
        path.write_bytes(bytes([number]) * 10)
    before = len(os.listdir("/proc/self/fd"))
    reader = TarReader(paths, max_open=4)
    assert all(reader.read(number, 5, 2) == bytes([number]) * 2 for _ in range(2) for number in range(20))
    assert len(os.listdir("/proc/self/fd")) <= before + 4


@pytest.mark.parametrize(
    ("offset", "length", "reason"),
    [(-4, 2, "damaged place"), (2, -1, "damaged place"), (9, 2, "truncated tar"), (0, 2**60, "truncated tar")],
)
def test_a_place_outside_its_tar_is_a_bad_sample(tmp_path: Path, offset: int, length: int, reason: str) -> None:
    path = tmp_path / "0.tar"
    path.write_bytes(bytes(10))
    reader = TarReader([path])
    with pytest.raises(BadSample) as caught:
        reader.read(0, offset, length)
    assert caught.value.reason == reason
    assert reader.read(0, 8, 2) == bytes(2)


def test_lost_and_truncated_tars_are_bad_samples(corpus: Corpus) -> None:
    index = CorpusIndex.open(corpus)
    os.truncate(corpus.tar_path("00000.tar"), 600)
    with pytest.raises(BadSample, match="truncated tar"):
        index.read_image(3)
    corpus.tar_path("00001.tar").unlink()
    with pytest.raises(BadSample) as caught:
        index.read_image(12)
    assert caught.value.reason == "missing tar"


def test_a_read_only_corpus_is_indexed_in_the_cache(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    build = index_build._build_once
    refused = [corpus.folder / "index"]

    def build_where_allowed(corpus: Corpus, place: Path, name: str) -> Path:
        if place in refused:
            raise OSError(30, "Read-only file system", str(place))
        return build(corpus, place, name)

    monkeypatch.setattr(index_build, "_build_once", build_where_allowed)
    monkeypatch.setenv("BABELCAP_CACHE", str(tmp_path / "cache"))
    assert CorpusIndex.open(corpus).folder.is_relative_to(tmp_path / "cache")
    refused.append(tmp_path / "other" / "index")
    monkeypatch.setenv("BABELCAP_CACHE", str(tmp_path / "other"))
    with pytest.raises(UserError, match="set BABELCAP_CACHE"):
        CorpusIndex.open(corpus)


def test_a_build_that_fails_leaves_nothing(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    def full_disk(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(index_build._Builder, "_append_groups", full_disk)
    with pytest.raises(OSError, match="No space left"):
        CorpusIndex.open(corpus)
    assert [path for path in (corpus.folder / "index").iterdir() if path.is_dir()] == []
    monkeypatch.undo()
    assert CorpusIndex.open(corpus).num_annotations == 37


def test_a_changed_corpus_gets_a_new_index(tmp_path: Path) -> None:
    small, large = make_corpus(tmp_path / "s", 5), make_corpus(tmp_path / "l", 6)
    assert small.content_hash != large.content_hash
    assert CorpusIndex.open(small).folder.name != CorpusIndex.open(large).folder.name
    assert make_corpus(tmp_path / "again", 5).content_hash == small.content_hash
    assert isinstance(small.coverage, Coverage)


def test_a_damaged_index_is_built_again(corpus: Corpus, capsys: pytest.CaptureFixture[str]) -> None:
    folder = CorpusIndex.open(corpus).folder
    expected = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in ("text", "rows-0000", "index.json", "score"):
        (folder / name).write_bytes(expected[name][:-1] + bytes([expected[name][-1] ^ 1]))
        assert CorpusIndex.open(corpus).num_annotations == 37
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == expected
        assert "is damaged or unfinished; it is built again" in capsys.readouterr().err
    (folder / "offset").unlink()
    CorpusIndex.open(corpus)
    assert (folder / "offset").read_bytes() == expected["offset"]


def test_old_indices_go_but_for_the_last_ones_and_those_in_use(tmp_path: Path) -> None:
    in_use = CorpusIndex.open(make_corpus(tmp_path / "c", 3))
    index = in_use.folder.parent
    os.utime(in_use.folder, (1, 1))  # last used longest ago
    names = []
    for number in range(4, 10):
        source = CorpusIndex.open(make_corpus(tmp_path / f"other{number}", number)).folder
        source.rename(index / source.name)
        os.utime(index / source.name, (number, number))
        names.append(source.name)
    renewed = make_corpus(tmp_path / "renewed", 12)
    index.rename(renewed.folder / "index")
    name = CorpusIndex.open(renewed).folder.name
    left = {path.name for path in (renewed.folder / "index").glob("v*")}
    assert left == {name, in_use.folder.name, *names[-index_build.NUM_KEPT :]}
    del in_use


def test_a_corpus_whose_index_cannot_be_a_folder_uses_the_cache(
    corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BABELCAP_CACHE", str(tmp_path / "cache"))
    (corpus.folder / "index").symlink_to(tmp_path / "lost")
    assert CorpusIndex.open(corpus).folder.is_relative_to(tmp_path / "cache")
    (corpus.folder / "index").unlink()
    (corpus.folder / "index").write_text("a file")
    assert CorpusIndex.open(corpus).num_annotations == 37
    (corpus.folder / "index").unlink()
    (tmp_path / "elsewhere").mkdir()
    (corpus.folder / "index").symlink_to(tmp_path / "elsewhere")
    monkeypatch.setenv("BABELCAP_CACHE", str(tmp_path / "cache2"))
    assert CorpusIndex.open(corpus).folder.resolve().parent == tmp_path / "elsewhere"


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    """Half a million annotations, written by column. What an index holds afterwards is names and file handles."""
    corpus = make_large_corpus(tmp_path / "c", num_tars=5, images_per_tar=10_000, num_texts=10)
    CorpusIndex.open(corpus)
    tracemalloc.start()
    index = CorpusIndex.open(corpus)
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert index.num_annotations == 500_000
    assert peak < 1_000_000  # two bytes an annotation would be more
    assert held < 500_000
    rows = index.rows("train", Pair(TRANSLATION, "zh"))
    assert len(rows) == 100_000
    row = int(rows[77_777])
    assert index.annotation(row).target == f"目标 {row}"
    assert index.annotation(row).source == f"source {row}"
    assert index.key(index.image_number(row)) == f"{index.image_number(row):09d}"


def make_large_corpus(folder: Path, num_tars: int, images_per_tar: int, num_texts: int) -> Corpus:
    """A corpus whose tars are empty and whose texts tell their row number; the last two of ten texts are Chinese."""
    kinds = [("caption", "en"), ("caption", "de")] * ((num_texts - 2) // 2) + [("translation", "zh")] * 2
    shards, row = [], 0
    (folder / "annotations").mkdir(parents=True)
    for tar in range(num_tars):
        number = images_per_tar * num_texts
        ids = np.arange(row, row + number).astype(str)
        is_caption = np.tile([task == "caption" for task, _ in kinds], images_per_tar)
        fields = {
            "task": pa.array([task for task, _ in kinds] * images_per_tar),
            "language": pa.array([language for _, language in kinds] * images_per_tar),
            "style": pa.nulls(number, pa.string()),
            "source": pa.array(np.char.add("source ", ids).tolist(), mask=is_caption),
            "target": pa.array(np.char.add("目标 ", ids).tolist()),
            "origin": pa.array(["web"] * number),
            "score": pa.array(np.zeros(number)),
        }
        texts = pa.StructArray.from_arrays(list(fields.values()), fields=list(ANNOTATION_TYPE))
        places = np.arange(0, number + 1, num_texts, dtype=np.int32)
        columns = {
            "key": [f"{tar * images_per_tar + image:09d}" for image in range(images_per_tar)],
            "tar": [f"{tar}.tar"] * images_per_tar,
            "offset": np.arange(images_per_tar) * 1024 + 512,
            "length": np.full(images_per_tar, 512),
            "split": ["train"] * images_per_tar,
            "annotations": pa.ListArray.from_arrays(pa.array(places), texts),
        }
        path = folder / "annotations" / f"{tar}.parquet"
        pq.write_table(pa.table(columns, schema=SCHEMA), path, row_group_size=4096)
        counts = Counter(f"{task}-{language}" for task, language in kinds)
        splits = {
            "train": SplitCounts(num_images=images_per_tar, pairs={k: v * images_per_tar for k, v in counts.items()})
        }
        shards.append(Shard(tar=f"{tar}.tar", tar_bytes=0, tar_headers_sha256="", annotations=path.name, splits=splits))
        row += number
    write_corpus_manifest(folder, make_manifest(shards, Coverage(), {}))
    return Corpus.open(folder)
