"""The rows of the corpus: what people wrote and what was made of it by machine, without any test image."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow.parquet as pq

from babelcap.coverage import CAPTION, TRANSLATION, Coverage, Pair
from babelcap.data.importers.assemble import image_members
from babelcap.data.sentences import join_sentences
from babelcap.data.store.format import ImageRow
from babelcap.data.store.licences import MADE_OF
from babelcap.data.store.store import Corpus
from babelcap.data.store.tar import TarScan
from babelcap.generate.finetune.leaks import read_leaks
from babelcap.generate.finetune.sources import Text
from babelcap.generate.finetune.texts import english_of, read_texts
from babelcap.measures import EVAL
from babelcap.records import Annotation
from babelcap.storage import file_sha256, parquet_errors, text_sha256

VERSION = "finetune/1"  # raised whenever the same files give other rows
TRANSLATED = ", translated by "  # between whose text it was and who translated it
Sentences = dict[str, dict[str, list[str]]]  # text id -> language -> sentences


class TarTexts(NamedTuple):
    """The files that hold the texts of one tar's images."""

    texts: Path
    translated: tuple[tuple[str, Path], ...]  # task -> translations of its English texts
    captions_as_pairs: bool = False


@dataclass(frozen=True)
class FinetuneMaker:
    files: Mapping[str, TarTexts]  # by the tar's name
    tars: Mapping[str, str]  # name -> SHA-256
    leaks: Path
    coverage: Coverage
    translator: str

    def made_from(self, tar: Path) -> dict[str, Any]:
        files = self.files[tar.name]
        inputs = [files.texts, self.leaks, *(path for _, path in files.translated)]
        settings = [self.coverage.model_dump(mode="json"), self.translator, files.captions_as_pairs]
        return {
            "maker": VERSION,
            "tar": self.tars[tar.name],  # by content: packed again, it is the same
            "texts": list(map(file_sha256, inputs)),
            "settings": text_sha256(settings),
        }

    def make_rows(self, scan: TarScan, skipped: Counter[str]) -> list[ImageRow]:
        files = self.files[scan.path.name]
        members = image_members(scan, skipped)
        leaks = read_leaks(self.leaks)
        translated = {task: read_translations(path) for task, path in files.translated}
        texts: dict[str, list[Text]] = {}
        for text in read_texts(files.texts, list(members)):
            texts.setdefault(text.key, []).append(text)
        rows = []
        for key, member in members.items():
            if key in leaks:
                if key in texts:
                    skipped[f"test image of {leaks[key].set}, by {leaks[key].how}"] += 1
                continue
            annotations = tuple(self._annotations(texts.get(key, []), translated, files.captions_as_pairs))
            if annotations:
                split = texts[key][0].split
                rows.append(ImageRow(key, scan.path.name, member.offset, member.length, split, annotations))
            else:
                skipped["image without annotation"] += 1
        return rows

    def _annotations(self, texts: list[Text], translated: Mapping[str, Sentences], pairs: bool) -> Iterator[Annotation]:
        made = [*map(_written, texts), *self._by_machine(texts, translated, pairs)]
        taken: set[Pair] = set()
        for annotation in made:
            known = annotation.pair in self.coverage.all_pairs
            if known and not (texts[0].split == EVAL and annotation.pair in taken):  # validation has one of each
                taken.add(annotation.pair)
                yield annotation

    def _by_machine(
        self, texts: Sequence[Text], translated: Mapping[str, Sentences], captions_as_pairs: bool
    ) -> Iterator[Annotation]:
        for task, sentences in translated.items():
            for name, (text, english) in english_of(texts, task).items():
                for language, found in sentences.get(name, {}).items():
                    target, origin = join_sentences(found, language), f"{text.origin}{TRANSLATED}{self.translator}"
                    plain = {"language": language, "target": target, "origin": origin}
                    if task == CAPTION:
                        yield Annotation(task=CAPTION, style=text.style, **plain)
                    if task == TRANSLATION or captions_as_pairs:
                        yield Annotation(task=TRANSLATION, source=english, **plain)


def _written(text: Text) -> Annotation:
    return Annotation(
        task=text.task,
        language=text.language,
        style=text.style,
        source=text.source,
        target=text.target,
        origin=text.origin,
    )


def read_translations(path: Path) -> Sentences:
    """Those that were not dropped."""
    with parquet_errors(path):
        rows = pq.read_table(path).to_pylist()
    return {
        row["key"]: {name: value for name, value in row.items() if name not in ("key", "sentences") and value}
        for row in rows
    }


def licences_of(texts: Mapping[str, Path], licences: Mapping[str, str], translator: str, of_it: str) -> dict[str, str]:
    """Who wrote or translated -> under which licence; a translation is under those of its text and of its maker."""
    found: dict[str, str] = {}
    for name, path in texts.items():
        with parquet_errors(path):
            origins = pq.read_table(path, columns=["origin"])["origin"].unique().to_pylist()
        for origin in sorted(origins):
            found[origin.removesuffix(MADE_OF)] = licences[name]
            both = dict.fromkeys(filter(None, (licences[name], of_it)))
            found[f"{origin}{TRANSLATED}{translator}"] = " and ".join(both)
    return found


def verify_clean(corpus: Corpus, leaked: Iterable[str]) -> None:
    """Of the finished corpus itself, row by row."""
    leaked = set(leaked)
    for row in corpus.rows():
        if row.key in leaked:
            raise RuntimeError(f"{corpus.folder}: {row.key} is a test image and in split {row.split}")
