"""`babelcap data build`: all stages, then the corpus and the page that shows it."""

import os
from pathlib import Path
from typing import NamedTuple

from babelcap.data.store.format import IMAGES
from babelcap.data.store.store import Corpus
from babelcap.generate.assemble import assemble
from babelcap.generate.config import BuildConfig
from babelcap.generate.page import write_page
from babelcap.generate.pipeline import Build, build_shards, eval_keys, find_tars
from babelcap.jobs.engines import LocalEngine, RayEngine
from babelcap.jobs.stages import Engine, sweep_partials
from babelcap.storage import locked


class BuildResult(NamedTuple):
    """Without corpus and page where shards were set aside: `build` names them, and all others are done."""

    build: Build
    corpus: Corpus | None
    page: Path | None


def make_engine(config: BuildConfig) -> Engine:
    if config.engine == "ray":
        return RayEngine(num_workers(config), config.address)
    return LocalEngine(num_workers(config), config.work_folder / "logs")


def num_workers(config: BuildConfig) -> int:
    return config.num_workers or len(os.sched_getaffinity(0))


def build_dataset(config: BuildConfig, engine: Engine | None = None) -> BuildResult:
    """Killed at any moment, the same call ends the same; what is done stays done."""
    work = config.work_folder
    refuse = f"{work}: another process builds this dataset"
    with locked(work / ".lock", refuse=refuse), engine or make_engine(config) as engine:
        _sweep(config)
        build, aligned = build_shards(config, engine)
        if build.set_aside:
            return BuildResult(build, None, None)
        tars = find_tars(config)
        corpus = assemble(config, tars, aligned, eval_keys(config, tars), num_workers(config))
        return BuildResult(build, corpus, write_page(build, corpus, aligned))


def _sweep(config: BuildConfig) -> None:
    """What killed runs left half made, wherever they were."""
    sweep_partials(config.work_folder)
    sweep_partials(config.output)
    for path in (config.output / IMAGES).glob(".*"):
        if path.is_symlink():
            path.unlink()
