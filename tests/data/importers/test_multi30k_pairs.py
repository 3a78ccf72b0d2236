"""Multi30K with sentence pairs aligned to its photographs: what is trained on, and what is held out to measure by."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from babelcap.coverage import TRANSLATION
from babelcap.data.importers.multi30k import Multi30kMaker, import_multi30k, load_pairs, load_texts
from babelcap.data.store.store import Corpus, CorpusWriter
from babelcap.errors import UserError
from babelcap.records import Annotation


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A photograph of training and one of validation, as Multi30K is distributed."""
    load_texts.cache_clear()
    load_pairs.cache_clear()
    folder = tmp_path / "data"
    files = {}
    for split, key in (("train", "11"), ("val", "22")):
        files[f"task1/image_splits/{split}.txt"] = f"{key}.jpg\n"
        files[f"task2/image_splits/{split}_images.txt"] = f"{key}.jpg#0\n"
        for language in ("en", "de", "fr"):
            files[f"task1/raw/{split}.{language}.gz"] = f"{language} sentence of {key}.\n"
        for number in range(1, 6):
            for language in ("en", "de"):
                files[f"task2/raw/{split}.{number}.{language}.gz"] = f"{language} caption {number} of {key}.\n"
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
    return folder


def test_no_french_of_a_photograph_is_trained_on(tmp_path: Path, texts: Path, write_tar: Callable[..., Path]) -> None:
    write_tar(tmp_path / "photos.tar", {"11.jpg": b"a photograph", "22.jpg": b"another"})
    aligned = Annotation(task=TRANSLATION, language="fr", source="A dog runs.", target="Un chien court.", origin="t")
    with CorpusWriter(tmp_path / "pairs", provenance={"source": "test"}) as writer:
        writer.add("11", b"a photograph", "jpg", "train", [aligned])
        writer.add("22", b"another", "jpg", "eval", [aligned])
    corpus = import_multi30k(
        tmp_path / "c", Multi30kMaker(texts, tmp_path / "pairs"), images=str(tmp_path / "photos.tar")
    )
    found = {row.key: row for row in Corpus.open(corpus.folder).rows()}
    trained = [(str(entry.pair), entry.target) for entry in found["11"].annotations]
    assert len(trained) == 11
    assert ("translation-fr", "Un chien court.") in trained
    assert not any("fr sentence" in text for _, text in trained)
    measured = [(str(entry.pair), entry.target) for entry in found["22"].annotations]
    assert ("caption-fr", "fr sentence of 22.") in measured
    assert ("translation-fr", "fr sentence of 22.") in measured
    assert not any("Un chien" in text for _, text in measured)
    assert [str(pair) for pair in corpus.coverage.hole if pair.language == "fr"] == ["caption-fr"]
    assert corpus.coverage.splits["UC"] == ("caption-fr",)


def test_french_captions_to_fine_tune_on(tmp_path: Path, texts: Path, write_tar: Callable[..., Path]) -> None:
    write_tar(tmp_path / "photos.tar", {"11.jpg": b"a photograph", "22.jpg": b"another"})
    corpus = import_multi30k(tmp_path / "c", Multi30kMaker(texts, french=True), images=str(tmp_path / "photos.tar"))
    for row in Corpus.open(corpus.folder).rows():
        pairs = [str(entry.pair) for entry in row.annotations]
        assert sorted(set(pairs)) == ["caption-de", "caption-en", "caption-fr"]
        assert pairs.count("caption-fr") == 1
    assert "caption-fr" in corpus.coverage.seen
    with pytest.raises(UserError, match="--pairs belongs to the other one"):
        import_multi30k(tmp_path / "d", Multi30kMaker(texts, tmp_path / "p", french=True), images="none")


def test_photographs_to_decide_on_are_never_trained_on(
    tmp_path: Path, texts: Path, write_tar: Callable[..., Path]
) -> None:
    """SHA-256 of "11" begins with 4fc8, .31 of the way: it is among the first third, not among the first tenth."""
    write_tar(tmp_path / "photos.tar", {"11.jpg": b"a photograph", "22.jpg": b"another"})
    for name, share, split in (("c", 0.1, "train"), ("d", 0.4, "dev")):
        corpus = import_multi30k(
            tmp_path / name, Multi30kMaker(texts, dev_share=share), images=str(tmp_path / "photos.tar")
        )
        assert {row.key: row.split for row in Corpus.open(corpus.folder).rows()} == {"11": split, "22": "val"}
    with pytest.raises(UserError, match=r"--dev-share is 1.5; it is a share"):
        import_multi30k(tmp_path / "e", Multi30kMaker(texts, dev_share=1.5), images=str(tmp_path / "photos.tar"))
