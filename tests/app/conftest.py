"""The captioner that comes with babelcap behind an engine, and a small world."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from babelcap.app.engine import Engine
from babelcap.app.limits import Limits
from babelcap.models import CaptionPipeline, load
from babelcap.world.corpus import WorldConfig, make_world
from babelcap.world.scenes import Scope


@pytest.fixture(scope="session")
def pipeline() -> CaptionPipeline:
    return load("micro")


@pytest.fixture
def engine(pipeline: CaptionPipeline) -> Iterator[Engine]:
    engine = Engine(pipeline, Limits(max_upload_bytes=2**20, max_pixels=4_000_000, timeout_seconds=60))
    yield engine
    engine.close()


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "corpus"
    config = WorldConfig(
        num_images=30, num_eval_images=4, num_holdout_images=2, num_text_lines=0, scope=Scope(num_nouns=12)
    )
    make_world(folder, config)
    return folder
