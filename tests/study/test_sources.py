"""Pictures from a corpus folder and captioners from named checkpoints: the same steps, named by what they hold."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from babelcap.coverage import Coverage
from babelcap.errors import UserError
from babelcap.storage import write_json
from babelcap.study.config import StudyConfig, load_study
from babelcap.study.graph import Step
from babelcap.study.grid import study_graph
from babelcap.study.sources import content_mark
from babelcap.study.steps import run_step
from babelcap.training.config import TrainConfig
from babelcap.world.corpus import TRUTH, WorldConfig, make_world

Tiny = Callable[..., StudyConfig]
PAPER = Path(__file__).parents[2] / "configs" / "study" / "paper.toml"
ON_CORPUS: dict[str, Any] = {"source": "corpus", "world": None, "finetune": []}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("foreign") / "corpus"
    make_world(folder, WorldConfig(num_images=10, num_eval_images=4, num_holdout_images=0, num_text_lines=0))
    return folder


def on_corpus(tiny: Tiny, folder: Path, **settings: Any) -> StudyConfig:
    return tiny(**ON_CORPUS, corpus={"folder": str(folder)} | settings)


def test_captions_are_judged_where_the_truth_is_there(tiny: Tiny, corpus: Path) -> None:
    known = study_graph(on_corpus(tiny, corpus))
    assert {step.kind for step in known.steps} == {"corpus", "base", "prepare", "train", "loss", "captions"}
    assert known.pictures.place(Path("study")) == corpus
    (corpus / TRUTH).rename(corpus / "hidden")
    unknown = study_graph(on_corpus(tiny, corpus))
    (corpus / "hidden").rename(corpus / TRUTH)
    assert {step.kind for step in unknown.steps} == {"corpus", "base", "prepare", "train", "loss"}
    assert [run.train.hash for run in unknown.runs] == [run.train.hash for run in known.runs]


def test_a_corpus_is_named_by_its_contents_not_by_its_place(tiny: Tiny, corpus: Path, tmp_path: Path) -> None:
    before = study_graph(on_corpus(tiny, corpus)).pictures.hash
    manifest = json.loads((corpus / "corpus.json").read_text())
    write_json(tmp_path / "moved" / "corpus.json", manifest)
    assert study_graph(on_corpus(tiny, tmp_path / "moved")).pictures.hash == before
    write_json(tmp_path / "other" / "corpus.json", manifest | {"content_hash": "0" * 16})
    assert study_graph(on_corpus(tiny, tmp_path / "other")).pictures.hash != before


def test_a_corpus_without_the_split_is_one_clear_line(tiny: Tiny, corpus: Path, tmp_path: Path) -> None:
    step = study_graph(on_corpus(tiny, corpus, eval_split="val")).pictures
    with pytest.raises(UserError, match="no annotated split 'val'"):
        run_step(step.job(tmp_path))
    assert not (tmp_path / step.folder / "done.json").exists()
    run_step(study_graph(on_corpus(tiny, corpus)).pictures.job(tmp_path))


def test_the_paper_is_a_whole_study() -> None:
    graph = study_graph(load_study(PAPER, []))
    main = [run for run in graph.runs if run.kind == "main"]
    sizes = ("0.4B", "1.0B", "11.2B", "3.5B")
    assert [(run.size, run.train.resources["config"]["budgets"]) for run in main] == [
        (size, [budget]) for size in sizes for budget in (500, 2000, 5000, 10000)
    ]
    trained = [TrainConfig.model_validate(run.train.resources["config"]) for run in main]
    assert {(config.batch_size, config.data.image_size_px, config.optimiser.learning_rate) for config in trained} == {
        (1024, 224, 1e-4)
    }
    tuned = [run for run in graph.runs if run.kind == "finetuned"]
    assert [run.started_from for run in tuned] == [f"{size}.published.s0.b010000" for size in sizes]
    for run in tuned:
        config = TrainConfig.model_validate(run.train.resources["config"])
        assert (config.batch_size, config.data.image_size_px, config.optimiser.weight_decay) == (256, 768, 0.05)
        assert config.schedule.kind == "cosine"
        assert len(config.coverage.seen) == 11
        assert run.initial.settings["data"]["image_size_px"] == 768
    assert len({step.name for step in graph.steps}) == len(graph.steps)
    prepared = {step.slug: step for step in graph.steps if step.kind == "prepare"}
    assert prepared["11.2B.published"].resources == {
        "florence": "microsoft/Florence-2-large",
        "gemma": "google/gemma-2-9b",
    }


def test_files_of_trainings_are_read_beside_the_study_and_replayed(tmp_path: Path) -> None:
    (tmp_path / "train.toml").write_text(
        'name = "x"\nmodel = "m"\nbudgets = [9]\nbatch_size = 16\ndata = { corpus = "c", num_workers = 3 }\n'
    )
    study = tmp_path / "study.toml"
    study.write_text('training = "train.toml"\n[[grid]]\nsizes = ["micro-gemma-s"]\nbudgets = [4]\nseeds = [0]\n')
    config = load_study(study, ["training.batch_size=32"])
    assert config.training == {"batch_size": 32, "data": {"num_workers": 3}}
    write_json(tmp_path / "config.json", config.model_dump(mode="json"))
    assert load_study(tmp_path, []) == config
    (step,) = [step for step in study_graph(config).steps if step.kind == "train"]
    assert (step.resources["config"]["budgets"], step.resources["config"]["batch_size"]) == ([4], 32)


def test_a_ready_captioner_is_used_where_it_lies(tiny: Tiny, tmp_path: Path) -> None:
    from babelcap.models.sizing.sizes import size_config

    def prepared(size: str) -> Step:
        block = {"sizes": [size], "bases": ["mine"], "budgets": [3], "seeds": [0]}
        ready = [{"base": "mine", "size": size, "model": str(tmp_path / "model")}]
        graph = study_graph(tiny(grid=[block], finetune=[], checkpoints=ready))
        return next(step for step in graph.steps if step.kind == "prepare")

    size_config("micro-gemma-s").save_pretrained(tmp_path / "model")
    step = prepared("micro-gemma-s")
    assert step.place(Path("study")) == tmp_path / "model"
    run_step(step.job(tmp_path / "study"))
    with pytest.raises(UserError, match="has a gemma decoder, size micro-florence-s has not"):
        run_step(prepared("micro-florence-s").job(tmp_path / "study"))


def test_a_model_is_marked_by_what_it_holds(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "model.safetensors").write_bytes(b"x" * 100)
    before = content_mark(str(tmp_path / "a"))
    (tmp_path / "a").rename(tmp_path / "b")
    assert content_mark(str(tmp_path / "b")) == before
    (tmp_path / "b" / "model.safetensors").write_bytes(b"x" * 99 + b"y")
    assert content_mark(str(tmp_path / "b")) != before
    assert content_mark("owner/model") == "owner/model"


def test_coverage_of_a_corpus_is_the_studys(tiny: Tiny, corpus: Path) -> None:
    seen = [pair for pair in Coverage().seen if pair != "translation-fr"]
    graph = study_graph(on_corpus(tiny, corpus, coverage={"seen": seen}))
    main = next(run for run in graph.runs if run.kind == "main")
    assert main.train.resources["config"]["coverage"]["seen"] == seen
    assert main.loss.settings["coverage"]["seen"] == seen
