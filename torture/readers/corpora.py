"""Readers of a corpus: its manifest, its index, and `data check`."""

import io
import shutil
from pathlib import Path

from PIL import Image

from babelcap.coverage import CAPTION
from babelcap.data.inspect.check import check_corpus
from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.store import Corpus, CorpusWriter
from babelcap.records import Annotation
from torture.readers.target import Target


def small_corpus(folder: Path) -> Path:
    with CorpusWriter(folder, provenance={}) as writer:
        for number in range(3):
            stream = io.BytesIO()
            Image.new("RGB", (8, 6), (number * 20, 9, 99)).save(stream, "PNG")
            texts = [Annotation(task=CAPTION, language="en", target=f"dog {number}", score=0.5)]
            writer.add(str(number), stream.getvalue(), "png", "train", texts)
    return folder


def read_all(folder: Path) -> list[object]:
    index = CorpusIndex.open(folder)
    return [(index.key(n), index.read_image(n)) for n in range(index.num_images)] + [
        index.annotation(row) for row in range(index.num_annotations)
    ]


def corpus_manifest(folder: Path) -> Target:
    corpus = small_corpus(folder / "c")
    return Target([corpus / "corpus.json"], lambda out: read_all(corpus))


def corpus_index(folder: Path) -> Target:
    """Whatever was done to the index, what is read is what it was."""
    corpus = small_corpus(folder / "c")
    expected = read_all(corpus)

    def read(out: Path) -> None:
        shutil.copytree(corpus, out)
        assert read_all(out) == expected

    return Target(sorted(path for path in corpus.glob("index/v*/*") if path.stat().st_size), read)


def corpus_check(folder: Path) -> Target:
    corpus = small_corpus(folder / "c")
    files = [*corpus.glob("images/*"), *corpus.glob("annotations/*")]
    return Target(files, lambda out: check_corpus(Corpus.open(corpus), full=True))
