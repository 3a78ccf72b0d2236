"""The published preparation of aligned annotations into the corpus store: the hole is applied here, and verified.

training    what coverage.seen has, and nothing else
eval        held out by image: captions of all evaluated pairs, and aligned pairs with their scores; no paragraphs
"""

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from babelcap.config import content_hash
from babelcap.coverage import CAPTION, Coverage, Pair
from babelcap.data.importers.assemble import Assembly, assemble_corpus, image_members, reopen_corpus
from babelcap.data.importers.cc12m_rows import Layout, prepare_image, read_training_file
from babelcap.data.store.format import ANNOTATIONS, IMAGES, ImageRow, parquet_name
from babelcap.data.store.manifest import MANIFEST, read_corpus_manifest, record_files
from babelcap.data.store.store import Corpus
from babelcap.data.store.tar import TarScan
from babelcap.errors import UserError
from babelcap.generate.config import BuildConfig
from babelcap.generate.model_stage import teacher_name
from babelcap.generate.pipeline import Build
from babelcap.jobs.stages import CHECKSUMS
from babelcap.measures import EVAL, TRAIN
from babelcap.records import Annotation
from babelcap.storage import RememberedChecksums, atomic_file, file_sha256, text_sha256
from babelcap.world.corpus import TRUTH

VERSION = "aligned/2"  # raised whenever the same files give other rows
COMMAND = "babelcap data build"
WORLD = "world"  # the backend whose model is a folder of the world


@dataclass(frozen=True)
class AlignedMaker:
    """Rows of one tar from its file of aligned annotations."""

    files: Mapping[str, Path]  # name of a tar -> its Parquet
    tars: Mapping[str, str]  # its name -> its SHA-256
    layout: Layout
    coverage: Coverage
    held_out: frozenset[str]
    seed: int = 0

    def made_from(self, tar: Path) -> dict[str, Any]:
        """By content: a build that was killed and finished gives the bytes of one that was not."""
        hole = [self.coverage.model_dump(mode="json"), sorted(self.held_out)]
        return {
            "maker": VERSION,
            "tar": self.tars[tar.name],  # a touched file is the same file
            "annotations": file_sha256(self.files[tar.name]),
            "settings": text_sha256([self.seed, vars(self.layout), *hole]),
        }

    def make_rows(self, scan: TarScan, skipped: Counter[str]) -> list[ImageRow]:
        found = {
            key: prepare_image(key, values, self.seed, skipped, self.layout)
            for key, values in read_training_file(self.files[scan.path.name], skipped, self.layout)
        }
        rows = []
        for key, member in image_members(scan, skipped).items():
            split = EVAL if key in self.held_out else TRAIN
            annotations = [entry for entry in found.get(key, []) if self._belongs(entry, split)]
            skipped["text of the hole, or of no test split"] += len(found.get(key, [])) - len(annotations)
            if annotations:
                rows.append(ImageRow(key, scan.path.name, member.offset, member.length, split, tuple(annotations)))
            else:
                skipped["image without annotation"] += 1
        return rows

    def _belongs(self, annotation: Annotation, split: str) -> bool:
        if split == TRAIN:
            return self.coverage.is_seen(annotation.pair)
        is_whole = annotation.task == CAPTION or annotation.score is not None
        return is_whole and annotation.pair in self.coverage.evaluated_pairs


def text_origin(config: BuildConfig, language: str) -> str:
    source = config.text[language]
    return source.origin or source.files[0].name.partition(".")[0]


def layout_of(build: Build) -> Layout:
    config = build.config
    return Layout(
        captions=(*config.caption_languages, *config.eval_caption_languages),
        translations=tuple(config.translation_languages),
        captioner=teacher_name("caption", config.caption, build.receipts["caption"].values()),
        translator=teacher_name("translate", config.translate, build.receipts["translate"].values()),
        texts={language: text_origin(config, language) for language in config.text},
        with_english=True,
        with_sentences=True,
        with_scores=True,
    )


def licences(config: BuildConfig, layout: Layout) -> dict[str, str]:
    """Who made annotations -> under which licence these may be used; empty where nothing was said."""
    said = [(layout.captioner, config.caption.licence), (layout.translator, config.translate.licence)]
    said += [(layout.texts[language], source.licence) for language, source in config.text.items()]
    found: dict[str, str] = {}
    for origin, licence in said:
        if found.setdefault(origin, licence) != licence:
            raise UserError(
                f"licence: '{origin}' has '{found[origin]}' and '{licence}'; texts of two licences need two origins"
            )
    return found


def assemble(build: Build, num_workers: int) -> Corpus:
    """Makes or finishes the corpus; raises where a training annotation is of the hole."""
    config, tars = build.config, build.tars
    aligned = build.aligned.files if build.aligned is not None else {}
    checksums = RememberedChecksums(build.work / CHECKSUMS)
    chosen = [tars[name] for name in sorted(aligned)]
    maker = AlignedMaker(
        {tars[name].name: path for name, path in aligned.items()},
        {tar.name: checksums.sha256(tar) for tar in chosen},
        layout_of(build),
        config.coverage,
        frozenset(build.held_out),
        config.seed,
    )
    checksums.save()
    provenance = {
        "source": config.name,
        "command": COMMAND,
        "config_hash": content_hash(config),
        "seed": config.seed,
        "licences": licences(config, maker.layout),
        "images_licence": config.images.licence,
    }
    reopen_build(config.output, json.loads(json.dumps(provenance)), chosen)
    corpus = assemble_corpus(config.output, chosen, maker, Assembly(provenance, config.coverage, num_workers))
    verify_hole(corpus)
    return _with_truth(corpus, config.images.truth)


def _with_truth(corpus: Corpus, truth: Path | None) -> Corpus:
    """Beside the corpus, so that captions of its pictures can be judged."""
    if truth is None:
        return corpus
    with atomic_file(corpus.folder / TRUTH) as partial:
        shutil.copyfile(truth, partial)
    record_files(corpus.folder)
    return Corpus.open(corpus.folder)


def reopen_build(folder: Path, provenance: dict[str, Any], tars: list[Path]) -> None:
    """A corpus that this command made with other settings becomes an unfinished one: what changed is made again."""
    if not (folder / MANIFEST).is_file():
        (folder / TRUTH).unlink(missing_ok=True)  # comes last
        return
    before = read_corpus_manifest(folder).provenance
    if before.get("command") != COMMAND or {**before, "versions": None} == {**provenance, "versions": None}:
        return
    reopen_corpus(folder)
    (folder / TRUTH).unlink(missing_ok=True)
    kept = {tar.name for tar in tars} | {parquet_name(tar) for tar in tars}
    for path in [*(folder / IMAGES).iterdir(), *(folder / ANNOTATIONS).iterdir()]:
        if path.name not in kept:
            path.unlink()


def verify_hole(corpus: Corpus) -> None:
    """Of the finished corpus itself, row by row: counts in a manifest would say what the writer believed."""
    for row in corpus.rows(TRAIN) if TRAIN in corpus.splits else ():
        for annotation in row.annotations:
            pair: Pair = annotation.pair
            if not corpus.coverage.is_seen(pair):
                raise RuntimeError(f"{corpus.folder}: training image {row.key} has {pair}, which is of the hole")
