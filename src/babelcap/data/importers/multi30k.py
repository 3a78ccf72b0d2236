"""Multi30K as distributed (data/task1, data/task2) on tars of its photos: captions of task 2, translations of task 1.

Test splits keep their names (test_2016_flickr, ...); train and val are as in Multi30K. With `pairs`, a corpus of
sentence pairs aligned to the same photos, its translations take the place of task 1's in training, and no French that
describes a photo is seen: task 1's French becomes the caption in an unseen language by which others are judged.
With `dev_share`, so many of the training photos, chosen by a hash of their names, are kept out of it as split `dev`:
what is decided about a captioner is decided on these, and `val` stays for measuring.
"""

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from babelcap.coverage import CAPTION, TRANSLATION, Coverage, Style
from babelcap.data.importers.assemble import Assembly, assemble_corpus, image_members
from babelcap.data.importers.files import find_files
from babelcap.data.store.format import ImageRow
from babelcap.data.store.store import Corpus
from babelcap.data.store.tar import TarScan
from babelcap.errors import UserError
from babelcap.measures import TRAIN
from babelcap.records import Annotation
from babelcap.storage import read_gzip_text, read_text

TRANSLATION_LANGUAGES = ("de", "fr")
CAPTION_LANGUAGES = ("en", "de")
NUM_CAPTIONS = 5
SEEN = ("caption-en", "caption-de", "translation-de", "translation-fr")
UNSEEN_CAPTIONS = ("fr",)
DEV = "dev"
SEEN_WITH_PAIRS = ("caption-en", "caption-de", *(f"translation-{code}" for code in ("de", "fr", "es", "ru", "zh")))
SEEN_WITH_FRENCH = ("caption-en", "caption-de", "caption-fr")
SPLITS_WITH_PAIRS = {
    "UC": ("caption-fr",),
    "ST": ("translation-de", "translation-fr"),
    "SC": ("caption-en", "caption-de"),
}
# task 1 split -> task 2's names for it: of its image list and of its texts
SPLITS = {
    "train": ("train_images", "train"),
    "val": ("val_images", "val"),
    "test_2016_flickr": ("test_2016_images", "test_2016"),
    "test_2017_flickr": (None, None),
    "test_2018_flickr": (None, None),
    "test_2017_mscoco": (None, None),
}


@dataclass(frozen=True)
class Multi30kMaker:
    texts: Path
    pairs: Path | None = None
    french: bool = False  # also French captions to train on, beside English and German ones alone: for fine-tuning
    dev_share: float = 0.0  # of the photos of train

    def made_from(self, tar: Path) -> dict[str, Any]:
        known: dict[str, Any] = {} if self.pairs is None else {"pairs": Corpus.open(self.pairs).content_hash}
        known |= {"french": True} if self.french else {}
        known |= {"dev_share": self.dev_share} if self.dev_share else {}
        return {"maker": "multi30k/1", "texts": str(self.texts), **known}

    def make_rows(self, scan: TarScan, skipped: Counter[str]) -> list[ImageRow]:
        texts = load_texts(self.texts)
        rows = []
        for key, member in image_members(scan, skipped).items():
            if key not in texts:
                skipped["image without annotation"] += 1
                continue
            split, found = texts[key]
            split = DEV if split == TRAIN and is_dev(key, self.dev_share) else split
            annotations = tuple(map(_annotation, found))
            if self.french:
                annotations = tuple(entry for entry in _with_french(annotations) if entry.task == CAPTION)
            elif self.pairs is not None:
                annotations = _with_pairs(annotations, split, load_pairs(self.pairs).get(key, ()))
            rows.append(ImageRow(key, scan.path.name, member.offset, member.length, split, annotations))
        return rows


def is_dev(key: str, share: float) -> bool:
    """The same photos for the same share, whichever of them are at hand, and of a larger share these and others."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") < share * 2**64


def import_multi30k(output: str | Path, maker: Multi30kMaker, *, images: str, num_workers: int = 1) -> Corpus:
    texts, pairs = maker.texts, maker.pairs
    if maker.french and pairs is not None:
        raise UserError("--french makes a corpus of captions, to fine-tune on; --pairs belongs to the other one")
    if not 0 <= maker.dev_share < 1:
        raise UserError(f"--dev-share is {maker.dev_share}; it is a share of the photos to train on, such as 0.05")
    if not (texts / "task1").is_dir():
        raise UserError(f"{texts}: no task1 in it; name Multi30K's data folder with --texts")
    provenance = {
        "source": "Multi30K",
        "command": "babelcap data import multi30k",
        "parameters": {"images": images, "texts": str(texts)}
        | ({} if pairs is None else {"pairs": str(pairs)})
        | ({"french": True} if maker.french else {})
        | ({"dev_share": maker.dev_share} if maker.dev_share else {}),
    }
    coverage = Coverage(seen=SEEN) if pairs is None else Coverage(seen=SEEN_WITH_PAIRS, splits=SPLITS_WITH_PAIRS)
    if maker.french:
        coverage = Coverage(seen=SEEN_WITH_FRENCH, splits=SPLITS_WITH_PAIRS)
    tars = find_files([images], ".tar")
    return assemble_corpus(output, tars, maker, Assembly(provenance, coverage, num_workers))


def _with_pairs(own: tuple[Annotation, ...], split: str, pairs: Sequence[Annotation]) -> tuple[Annotation, ...]:
    """In training captions and aligned pairs; elsewhere all that is measured, French sentences as captions too."""
    if split == TRAIN:
        return (*(entry for entry in own if entry.task == CAPTION), *pairs)
    return _with_french(own)


def _with_french(own: tuple[Annotation, ...]) -> tuple[Annotation, ...]:
    """French sentences of task 1 as captions too."""
    unseen = [entry for entry in own if entry.task == TRANSLATION and entry.language in UNSEEN_CAPTIONS]
    style = Style.SHORT
    captions = [entry.model_copy(update={"task": CAPTION, "source": None, "style": style}) for entry in unseen]
    return (*own, *captions)


@lru_cache(maxsize=1)
def load_pairs(folder: Path) -> dict[str, tuple[Annotation, ...]]:
    """key -> the translations that were aligned to the image."""
    found: dict[str, tuple[Annotation, ...]] = {}
    for row in Corpus.open(folder).rows(TRAIN):
        found[row.key] = tuple(entry for entry in row.annotations if entry.task == TRANSLATION)
    return found


class Text(NamedTuple):
    """One line of Multi30K; it becomes an Annotation only where its image is at hand."""

    language: str
    target: str
    source: str | None = None


def _annotation(text: Text) -> Annotation:
    if text.source is None:
        origin, style, task = "multi30k/task2", Style.SHORT, CAPTION
        return Annotation(task=task, language=text.language, style=style, target=text.target, origin=origin)
    return Annotation(
        task=TRANSLATION,
        language=text.language,
        source=text.source,
        target=text.target,
        origin="multi30k/task1",
    )


@lru_cache(maxsize=1)
def load_texts(folder: Path) -> dict[str, tuple[str, list[Text]]]:
    """key -> (split, texts), the captions first."""
    texts: dict[str, tuple[str, list[Text]]] = {}
    for split, (image_list, name) in SPLITS.items():
        list_path = folder / "task1" / "image_splits" / f"{split}.txt"
        if not list_path.is_file():
            continue
        keys = _keys(list_path)
        for key in keys:
            texts[key] = (split, [])
        if name is not None and image_list is not None:
            _add_captions(folder / "task2", image_list, name, texts)
        _add_translations(folder / "task1" / "raw", split, keys, texts)
    return texts


def _add_captions(folder: Path, image_list: str, name: str, texts: dict[str, tuple[str, list[Text]]]) -> None:
    keys = _keys(folder / "image_splits" / f"{image_list}.txt")
    for language in CAPTION_LANGUAGES:
        for number in range(1, NUM_CAPTIONS + 1):
            path = folder / "raw" / f"{name}.{number}.{language}.gz"
            for key, text in zip(keys, _lines(path, len(keys)), strict=True):
                if text and key in texts:
                    texts[key][1].append(Text(language, text))


def _add_translations(folder: Path, split: str, keys: list[str], texts: dict[str, tuple[str, list[Text]]]) -> None:
    sources = _lines(folder / f"{split}.en.gz", len(keys))
    for language in TRANSLATION_LANGUAGES:
        path = folder / f"{split}.{language}.gz"
        for key, source, target in zip(keys, sources, _lines(path, len(keys)), strict=True):
            if source and target:
                texts[key][1].append(Text(language, target, source))


def _keys(path: Path) -> list[str]:
    names = read_text(_present(path)).split()
    # Some lists carry "#0" behind a name, the number of a caption.
    return [name.partition("#")[0].partition(".")[0] for name in names]


def _lines(path: Path, expected: int) -> list[str]:
    text = read_gzip_text(_present(path))
    lines = [line.strip() for line in text.removesuffix("\n").split("\n")] if text else []
    if len(lines) != expected:
        raise UserError(f"{path}: {len(lines)} lines for {expected} images; they have to agree")
    return lines


def _present(path: Path) -> Path:
    if not path.is_file():
        raise UserError(f"{path}: no such file; Multi30K's data folder is incomplete")
    return path
