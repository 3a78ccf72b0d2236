"""`babelcap data build` of a fine-tuning corpus: all stages, then the corpus, verified to hold no test image.

Killed at any moment, the same call ends the same; what is done stays done.
"""

import json
import os
from typing import Any, NamedTuple

from babelcap.config import content_hash
from babelcap.data.importers.assemble import Assembly, assemble_corpus
from babelcap.data.store.store import Corpus
from babelcap.generate.assemble import COMMAND, reopen_build
from babelcap.generate.finetune.config import FinetuneConfig
from babelcap.generate.finetune.leaks import ImagesOfTests, check_tests, read_leaks
from babelcap.generate.finetune.rows import FinetuneMaker, TarTexts, licences_of, verify_clean
from babelcap.generate.finetune.stages import (
    Running,
    SetAside,
    find_pictures,
    find_test_images,
    read_sources,
    translate_texts,
)
from babelcap.generate.model_stage import teacher_name
from babelcap.jobs.engines import LocalEngine, RayEngine
from babelcap.jobs.stages import CHECKSUMS, Engine
from babelcap.measures import TRAIN
from babelcap.storage import RememberedChecksums, locked, sweep_partials


class FinetuneResult(NamedTuple):
    """Without corpus where shards were set aside."""

    build: Running
    corpus: Corpus | None
    missing_pairs: list[str]  # of the coverage, that no training text has


def build_finetune(config: FinetuneConfig, tests: ImagesOfTests, engine: Engine | None = None) -> FinetuneResult:
    """`tests`: benchmark -> its pictures. None of them will be in the corpus."""
    check_tests(tests, config.leakage)
    work = config.work_folder
    with locked(work / ".lock", refuse=f"{work}: another process builds this corpus"), engine or _engine(config) as run:
        for folder in (work, config.output, config.packed_folder):
            sweep_partials(folder)
        build = Running(config, run)
        try:
            corpus = _build(build, tests)
        except SetAside:
            return FinetuneResult(build, None, [])
    counts = corpus.counts(TRAIN)
    return FinetuneResult(build, corpus, [str(pair) for pair in config.coverage.all_pairs if not counts.get(pair)])


def _engine(config: FinetuneConfig) -> Engine:
    if config.engine == "ray":
        return RayEngine(_num_workers(config), config.address)
    return LocalEngine(_num_workers(config), config.work_folder / "logs")


def _num_workers(config: FinetuneConfig) -> int:
    return config.num_workers or len(os.sched_getaffinity(0))


def _build(build: Running, tests: ImagesOfTests) -> Corpus:
    config = build.config
    texts = read_sources(build)
    tars = find_pictures(build, texts)
    leaks = find_test_images(build, texts, tars, tests)
    translated = translate_texts(build, texts, tars, leaks)
    translator = teacher_name("translate", config.translate, build.receipts.get("translate", {}).values())
    files = {
        path.name: TarTexts(texts[source], tuple(translated[name]), config.sources[source].captions_as_pairs)
        for name, (source, path) in tars.items()
    }
    licences = {name: source.licence for name, source in config.sources.items()}
    provenance: dict[str, Any] = {
        "source": config.name,
        "command": COMMAND,
        "kind": config.kind,
        "config_hash": content_hash(config),
        "benchmarks_left_out": sorted(tests),
        "licences": licences_of(texts, licences, translator, config.translate.licence),
    }
    if config.describe is not None:
        provenance["describer"] = teacher_name("describe", config.describe, build.receipts.get("describe", {}).values())
    paths = [tar.path for tar in tars.values()]
    checksums = RememberedChecksums(config.work_folder / CHECKSUMS)
    contents = {path.name: checksums.sha256(path) for path in paths}
    checksums.save()
    maker = FinetuneMaker(files, contents, leaks.path, config.coverage, translator)
    reopen_build(config.output, json.loads(json.dumps(provenance)), paths)
    corpus = assemble_corpus(config.output, paths, maker, Assembly(provenance, config.coverage, _num_workers(config)))
    verify_clean(corpus, read_leaks(leaks.path))
    return corpus
