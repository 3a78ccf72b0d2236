"""`babelcap data build`, and a command for each stage: all up to it; at last the corpus and the page that shows it."""

import os
from pathlib import Path
from typing import NamedTuple

from babelcap.data.store.format import IMAGES
from babelcap.data.store.store import Corpus
from babelcap.errors import UserError
from babelcap.generate.assemble import assemble
from babelcap.generate.config import BuildConfig
from babelcap.generate.page import write_page
from babelcap.generate.pipeline import ASSEMBLE, Build
from babelcap.jobs.engines import LocalEngine, RayEngine
from babelcap.jobs.stages import Engine
from babelcap.storage import locked, sweep_partials


class BuildResult(NamedTuple):
    """Without corpus and page where it was to end before, or shards were set aside: `build` names them, and all others
    are done.
    """

    build: Build
    corpus: Corpus | None
    page: Path | None


def make_engine(config: BuildConfig) -> Engine:
    if config.engine == "ray":
        return RayEngine(num_workers(config), config.address)
    return LocalEngine(num_workers(config), config.work_folder / "logs")


def num_workers(config: BuildConfig) -> int:
    return config.num_workers or len(os.sched_getaffinity(0))


def build_dataset(config: BuildConfig, engine: Engine | None = None, until: str = ASSEMBLE) -> BuildResult:
    """Up to one of the commands, by default all of it. Killed at any moment, the same call ends the same."""
    work = config.work_folder
    refuse = f"{work}: another process builds this dataset"
    with locked(work / ".lock", refuse=refuse), engine or make_engine(config) as engine:
        _sweep(config)
        if config.images.truth is not None and not config.images.truth.is_file():
            raise UserError(f"images.truth: {config.images.truth}: no such file")
        build = Build(config, engine)
        build.run("align" if until == ASSEMBLE else until)
        if build.set_aside or until != ASSEMBLE or build.aligned is None:
            return BuildResult(build, None, None)
        corpus = assemble(build, num_workers(config))
        page = write_page(build, corpus, build.aligned.files)
        _sweep(config)
        return BuildResult(build, corpus, page)


def _sweep(config: BuildConfig) -> None:
    """What killed runs left half made, wherever they were."""
    sweep_partials(config.work_folder)
    sweep_partials(config.output)
    for path in (config.output / IMAGES).glob(".*"):
        if path.is_symlink():
            path.unlink()
