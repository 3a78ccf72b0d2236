"""Datasets as the `datasets` library saves them and as the hub stores them."""

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from babelcap.cli import app
from babelcap.data.importers import datasets
from babelcap.data.importers.datasets import DatasetColumns, image_extension, import_datasets
from babelcap.data.inspect.check import check_corpus
from babelcap.errors import UserError

IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])  # how the library stores an image


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["data", "import", "datasets", *map(str, arguments)])


@pytest.fixture
def table(make_image: Callable[..., bytes]) -> pa.Table:
    images = [make_image(0), make_image(1, kind="PNG"), make_image(2, kind="WEBP"), b"no image", None]
    return pa.table(
        {
            "image": pa.array([{"bytes": image, "path": None} for image in images], IMAGE),
            "text": ["A dog. ", "A cat.", "", "x", "y"],
            "german": pa.array([["Ein Hund.", "Hunde."], ["Eine Katze."], None, [], []], pa.list_(pa.string())),
            "number": [1, 2, 3, 4, 5],
        }
    )


def write_arrow(path: Path, table: pa.Table) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


@pytest.fixture
def saved(tmp_path: Path, table: pa.Table) -> Path:
    """A DatasetDict after save_to_disk."""
    folder = tmp_path / "saved"
    for split in ("train", "validation"):
        rows = (
            table if split == "train" else table.slice(1, 1).set_column(0, table.field(0), table["image"].slice(2, 1))
        )
        write_arrow(folder / split / "data-00000-of-00001.arrow", rows)
        (folder / split / "state.json").write_text("{}")
        write_arrow(folder / split / "cache-1234.arrow", table)
    (folder / "dataset_dict.json").write_text(json.dumps({"splits": ["train", "validation"]}))
    return folder


def test_a_saved_dataset_is_imported(saved: Path, tmp_path: Path) -> None:
    done = run(saved, "--text", "text", "--text", "de=german", "-o", tmp_path / "c")
    assert done.exit_code == 0, done.output
    assert "3 images, 7 annotations" in done.output
    assert "left out: not an image: 2" in done.output
    corpus = import_datasets(tmp_path / "d", str(saved), DatasetColumns(texts=(("en", "text"), ("de", "german"))))
    rows = list(corpus.rows())
    assert [(row.key, row.split) for row in rows] == [
        ("train-000000000", "train"),
        ("train-000000001", "train"),
        ("validation-000000000", "validation"),
    ]
    assert [(text.language, text.target) for text in rows[0].annotations] == [
        ("en", "A dog."),
        ("de", "Ein Hund."),
        ("de", "Hunde."),
    ]
    assert corpus.coverage.seen == ("caption-en", "caption-de")
    assert check_corpus(corpus).problems.counts == {}


def test_a_dataset_of_the_hub_is_fetched_as_parquet(
    tmp_path: Path, table: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fetch(repository: str, folder: Path, patterns: list[str]) -> Path:
        assert (repository, patterns) == ("owner/photos", ["*.parquet"])
        (folder / "data").mkdir(parents=True)
        pq.write_table(table.slice(0, 1), folder / "data" / "train-00000-of-00002.parquet")
        pq.write_table(table.slice(1, 1), folder / "data" / "train-00001-of-00002.parquet")
        return folder

    monkeypatch.setattr(datasets, "download_dataset", fetch)
    corpus = import_datasets(tmp_path / "c", "owner/photos", DatasetColumns())
    assert [row.key for row in corpus.rows()] == ["train-000000000", "train-000000001"]


def test_one_file_or_bytes_alone_will_do(tmp_path: Path, table: pa.Table) -> None:
    images = pa.array([item["bytes"] for item in table["image"].to_pylist()], pa.binary())
    pq.write_table(table.set_column(0, "photo", images), tmp_path / "x.parquet")
    columns = DatasetColumns.parse("photo", ["text"], "de", "test")
    corpus = import_datasets(tmp_path / "c", str(tmp_path / "x.parquet"), columns)
    assert [(row.split, row.annotations[0].language) for row in corpus.rows()] == [("test", "de")] * 2


def test_what_cannot_be_imported_is_named(tmp_path: Path, saved: Path) -> None:
    for arguments, message in [
        ((tmp_path / "none",), "no such folder"),
        ((tmp_path,), "neither Parquet nor Arrow"),
        ((saved, "--text", "words"), "column 'words' is missing (found: image, text, german, number)"),
        ((saved, "--image", "picture"), "column 'picture' is missing"),
        ((saved, "--text", "xx=text"), "unknown language"),
        ((saved, "--text", "de="), "name the column"),
        ((saved, "--image", "number"), "no image was added"),
        ((saved, "--text", "number"), "no image was added"),
    ]:
        folder = tmp_path / "empty"
        folder.mkdir(exist_ok=True)
        place = folder if arguments[0] == tmp_path else arguments[0]
        done = run(place, *arguments[1:], "-o", tmp_path / "c")
        assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
    path = saved / "train" / "data-00000-of-00001.arrow"
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(UserError, match="is not a readable Arrow file"):
        import_datasets(tmp_path / "c", str(saved), DatasetColumns())
    assert not (tmp_path / "c").exists()


def test_images_are_known_by_their_first_bytes(make_image: Callable[..., bytes]) -> None:
    kinds = {"JPEG": "jpg", "PNG": "png", "WEBP": "webp", "GIF": "gif", "BMP": "bmp", "TIFF": "tif"}
    assert {kind: image_extension(make_image(0, kind=kind)) for kind in kinds} == kinds
    assert image_extension(b"") is None
