"""A small world and a build of it, for the tests that run many stages."""

import io
import tarfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from babelcap.config import build_config
from babelcap.data.store.tar import scan_tar
from babelcap.generate.config import BuildConfig
from babelcap.jobs.receipts import Receipt
from babelcap.jobs.stages import Finished, Stage, run_task
from babelcap.storage import write_json
from babelcap.world.corpus import WorldConfig, load_truth, make_world

from .killing import Builder


class HereEngine:
    """Runs tasks in this process: what stages do, without the seconds that worker processes take to start."""

    def __enter__(self) -> "HereEngine":
        return self

    def __exit__(self, *_: object) -> None: ...

    def run(self, stage: Stage, tasks: Sequence[dict[str, Any]]) -> Iterator[Finished]:
        for task in tasks:
            yield Finished(task["name"], Receipt.model_validate(run_task(task)))


@pytest.fixture(scope="session")
def here() -> HereEngine:
    return HereEngine()


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "w"
    make_world(
        folder, WorldConfig(num_images=60, num_eval_images=6, num_holdout_images=0, num_text_lines=0, num_workers=1)
    )
    return folder


@pytest.fixture(scope="session")
def settings(world: Path) -> Callable[..., BuildConfig]:
    truth = list(load_truth(world))

    def make(output: Path, **changes: Any) -> BuildConfig:
        keys = output.with_name("eval_keys.txt")
        keys.parent.mkdir(parents=True, exist_ok=True)
        keys.write_text("\n".join(truth[-6:]))
        values: dict[str, Any] = {
            "output": output,
            "images": {"tars": [str(world / "images")], "eval_keys": keys},
            "text": {
                code: {"files": [world / "parallel" / f"en-{code}.tsv.gz"], "format": "tsv"}
                for code in ("de", "fr", "es", "ru", "zh")
            },
            "caption": {"backend": "world", "model": str(world), "check_language": False},
            "translate": {"backend": "world"},
            "clean": {"check_language": False, "pairs_per_chunk": 150, "check_traditional": False},
            "embed": {"backend": "world", "model": str(world), "noise": 0.2},
            "align": {"num_candidates": 8, "select": {"num_texts": 2, "min_score": 0.3}},
            "num_workers": 2,
        }
        return build_config(BuildConfig, values | changes)

    return make


@pytest.fixture(scope="module")
def builder() -> Iterator[Builder]:
    found = Builder()
    yield found
    found.process.communicate()


@pytest.fixture(scope="module")
def small(
    tmp_path_factory: pytest.TempPathFactory, world: Path, settings: Callable[..., BuildConfig]
) -> Callable[..., Path]:
    """Writes the configuration of a build of four small tars and two languages into a folder."""
    tars = tmp_path_factory.mktemp("tars")
    (tar,) = (world / "images").glob("*.tar")
    members = [member for member in scan_tar(tar).members if member.is_image]
    for number in range(4):
        with tarfile.open(tars / f"{number}.tar", "w") as archive, tar.open("rb") as file:
            for member in [*members[number * 8 : number * 8 + 8], *members[-4 + number :][:1]]:
                file.seek(member.offset)
                info = tarfile.TarInfo(member.name)
                info.size = member.length
                archive.addfile(info, io.BytesIO(file.read(member.length)))

    keys = tmp_path_factory.mktemp("keys") / "eval_keys.txt"  # one for all builds: they are to be equal
    keys.write_text("\n".join(member.key for member in members[-4:]))

    def make(folder: Path, **changes: object) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        pairs = {"seen": ["caption-en", "caption-de", "translation-de", "translation-fr"]}
        coverage = pairs | {"splits": {"UC": ["caption-fr"], "SC": ["caption-en", "caption-de"]}}
        languages = ("de", "fr")
        config = settings(
            folder / "out",
            coverage=coverage,
            images={"tars": [str(tars)], "eval_keys": keys},
            text={code: {"files": [world / "parallel" / f"en-{code}.tsv.gz"], "format": "tsv"} for code in languages},
            clean={"check_language": False, "check_traditional": False, "pairs_per_chunk": 80, "pairs_per_group": 100},
            align={"num_candidates": 4, "tars_per_search": 2, "select": {"num_texts": 2, "min_score": 0.3}},
            work=folder / "work",
            **changes,
        )
        write_json(folder / "build.json", config.model_dump(mode="json"))
        return folder

    return make


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory, small: Callable[..., Path], builder: Builder) -> Path:
    """An undisturbed build."""
    folder = small(tmp_path_factory.mktemp("whole") / "build")
    builder.start(folder)
    assert builder.end() == 0
    return folder
