"""A small world and a build of it, for the tests that run many stages."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from babelcap.config import build_config
from babelcap.generate.config import BuildConfig
from babelcap.jobs.receipts import Receipt
from babelcap.jobs.stages import Finished, Stage, run_task
from babelcap.world.corpus import WorldConfig, load_truth, make_world


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
