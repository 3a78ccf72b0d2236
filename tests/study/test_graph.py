"""The plan of a study: what is run, and that a changed setting renames only what it affects."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from babelcap.config import build_config
from babelcap.errors import UserError
from babelcap.study.cells import grid_cells
from babelcap.study.config import StudyConfig, load_study
from babelcap.study.estimate import Estimate, estimate_steps, measured_rates, wall_seconds
from babelcap.study.gallery import shown_runs
from babelcap.study.graph import DONE, Step, ahead, read_done, write_done
from babelcap.study.grid import study_graph
from babelcap.study.overview import describe_study
from babelcap.training.config import TrainConfig

Tiny = Callable[..., StudyConfig]
CONFIGS = Path(__file__).parents[2] / "configs" / "study"


def hashes(config: StudyConfig) -> dict[str, str]:
    return {step.name: step.hash for step in study_graph(config).steps}


def changed(before: StudyConfig, after: StudyConfig) -> set[str]:
    """The kinds of the steps that would run again."""
    old = set(hashes(before).values())
    return {name.split(" ")[0] for name, value in hashes(after).items() if value not in old}


def test_runs_and_their_names(tiny: Tiny) -> None:
    graph = study_graph(tiny())
    assert [(run.name, run.kind) for run in graph.runs] == [
        ("micro-gemma-s.balanced.s0.b000003", "main"),
        ("micro-gemma-s.balanced.s0.b000006", "main"),
        ("micro-gemma-s.balanced.s0.finetuned.from000006.b000003", "finetuned"),
        ("micro-gemma-s.balanced.s0.no-translation.b000006", "no-translation"),
        ("micro-gemma-s.balanced.s0.unfit-translation.b000006", "unfit-translation"),
    ]
    assert len({step.folder for step in graph.steps}) == len(graph.steps)
    seen: set[str] = set()
    for step in graph.steps:  # inputs come first
        assert {need.hash for need in step.inputs.values()} <= seen
        seen.add(step.hash)


def settings_of(step: Step) -> TrainConfig:
    return build_config(TrainConfig, step.resources["config"])


def test_controls_differ_in_what_they_are_named_for(tiny: Tiny) -> None:
    trained = {run.kind: run.train for run in study_graph(tiny()).runs if run.leg == "budget-000006"}
    assert {step.inputs["corpus"].hash for kind, step in trained.items() if kind != "finetuned"} == {
        trained["main"].inputs["corpus"].hash
    }
    main, unfit = settings_of(trained["main"]), settings_of(trained["unfit-translation"])
    assert settings_of(trained["no-translation"]).coverage.seen == ("caption-en", "caption-de")
    assert (main.data.exchange_images, unfit.data.exchange_images) == (None, "translation")
    same = {"name": main.name, "budgets": main.budgets, "data": main.data}
    assert unfit.model_copy(update=same) == main
    weights = {"caption-en": 1.0, "translation-de": 1.0}
    graph = study_graph(tiny(training__data__mixture={"weights": weights}))
    control = next(run.train for run in graph.runs if run.kind == "no-translation")
    assert settings_of(control).data.mixture.weights == {"caption-en": 1.0}


def test_finetuning_covers_every_pair_and_has_its_own_pictures(tiny: Tiny) -> None:
    graph = study_graph(tiny())
    tuned = next(run for run in graph.runs if run.kind == "finetuned")
    settings = settings_of(tuned.train)
    assert len(settings.coverage.seen) == 11
    assert (settings.batch_size, settings.schedule.kind, settings.optimiser.learning_rate) == (4, "cosine", 5e-4)
    assert settings.data.max_target_tokens == 48  # what the block does not set is the study's
    assert tuned.train.inputs["corpus"].settings["seed"] != graph.pictures.settings["seed"]
    assert (tuned.train.settings["model"], tuned.started_from) == ("budget-000006/model", graph.runs[1].name)
    # What is measured before fine-tuning is what was measured after pretraining.
    assert tuned.initial.hash == graph.runs[1].loss.hash


def test_settings_of_a_size_are_over_those_of_all(tiny: Tiny) -> None:
    own = {"training": {"optimiser": {"learning_rate": 1e-3}}, "finetuning": {"batch_size": 8}}
    runs = {run.kind: run for run in study_graph(tiny(sizes=[{"size": "micro-gemma-s", **own}])).runs}
    main, tuned = settings_of(runs["main"].train), settings_of(runs["finetuned"].train)
    assert (main.optimiser.learning_rate, main.batch_size) == (1e-3, 8)
    assert (tuned.optimiser.learning_rate, tuned.batch_size) == (5e-4, 8)


def test_budgets_without_a_common_trunk_are_steps_of_their_own(tiny: Tiny) -> None:
    graph = study_graph(tiny(training__schedule={"kind": "cosine", "warmup_steps": 1}))
    main = [run for run in graph.runs if run.kind == "main"]
    assert [settings_of(run.train).budgets for run in main] == [(3,), (6,)]
    tuned = next(run for run in graph.runs if run.kind == "finetuned")
    assert tuned.train.inputs["model"] is main[1].train


def test_benchmarks_are_made_once_and_only_of_a_world_that_is_drawn(tiny: Tiny) -> None:
    graph = study_graph(tiny())
    made = [step for step in graph.steps if step.kind == "benchmarks"]
    assert len(made) == 1
    assert [run.captions.inputs["benchmarks"].hash for run in graph.runs if run.captions] == [made[0].hash] * 5
    # Shuffled pictures where tables show them: not of the smaller budget.
    shuffled = {run.name: run.captions.settings["shuffled"] for run in graph.runs if run.captions}
    assert [name for name, is_shuffled in shuffled.items() if not is_shuffled] == ["micro-gemma-s.balanced.s0.b000003"]
    without = study_graph(tiny(evaluation__downstream=False))
    assert not [step for step in without.steps if step.kind == "benchmarks"]
    assert "benchmarks" not in without.runs[0].captions.inputs  # type: ignore[union-attr]


def test_the_gallery_shows_the_largest_model_that_has_others_beside_it(tiny: Tiny) -> None:
    """Fine-tuned runs and controls; where no model has any, the largest wherever the grid names it."""
    others = [
        {"sizes": ["micro-gemma-l"], "budgets": [6], "seeds": [1]},
        {"sizes": ["micro-florence-s"], "budgets": [9], "seeds": [0]},
    ]
    graph = study_graph(tiny(grid=[*tiny().model_dump(mode="json")["grid"], *others]))
    assert shown_runs(graph)[0].name == "micro-gemma-s.balanced.s0.b000006"
    alone = study_graph(tiny(grid=others, finetune=[]))
    assert [run.name for run in shown_runs(alone)] == ["micro-gemma-l.balanced.s1.b000006"]
    assert [run.kind for run in shown_runs(study_graph(tiny()))] == [
        "main", "finetuned", "no-translation", "unfit-translation",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "affected"),
    [
        ({}, set()),
        ({"num_workers": 7, "evaluation__batch_size": 3, "training__checkpoint": {"every_steps": 9}}, set()),
        ({"base__use_shipped": True}, set()),
        ({"report__num_pictures": 1}, set()),
        ({"cluster": {"default": {"partition": "gpu"}}, "peak_tflops": 1.0}, set()),
        ({"evaluation__max_new_tokens": 7}, {"captions"}),
        ({"evaluation__loss_samples": 5}, {"loss"}),
        ({"training__optimiser": {"learning_rate": 1e-3}}, {"train", "finetune", "loss", "captions"}),
        ({"base__language_steps": 2}, {"base", "prepare", "train", "finetune", "loss", "captions"}),
        ({"world__seed": 5}, {"world", "benchmarks", "train", "finetune", "loss", "captions"}),
        ({"evaluation__num_pairs": 3}, {"benchmarks", "captions"}),
        ({"finetune": []}, set()),
    ],
)
def test_a_changed_setting_reruns_only_what_it_affects(tiny: Tiny, change: dict[str, Any], affected: set[str]) -> None:
    assert changed(tiny(), tiny(**change)) == affected


def test_a_new_seed_adds_its_run_and_leaves_the_others(tiny: Tiny) -> None:
    more = [{"sizes": ["micro-gemma-s"], "budgets": [3, 6], "seeds": [0, 1]}]
    before, after = hashes(tiny()), hashes(tiny(grid=[*tiny().model_dump()["grid"], *more]))
    added = {name for name in after if name not in before}
    assert {name.split(" ")[0] for name in added} == {"train", "loss", "captions"}
    assert all(".s1" in name for name in added)
    assert all(after[name] == value for name, value in before.items())


def test_blocks_of_one_training_add_their_budgets(tiny: Tiny) -> None:
    blocks = [{"sizes": ["micro-gemma-s"], "budgets": [budget], "seeds": [0]} for budget in (9, 4)]
    cells = grid_cells(tiny(grid=blocks, finetune=[]))
    assert list(cells.values()) == [(4, 9)]


GRID = {"sizes": ["micro-gemma-s"], "budgets": [4], "seeds": [0]}
LARGE = {"base": "published", "size": "0.4B", "florence": "owner/florence", "gemma": "owner/gemma"}


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"grid": [GRID | {"sizes": ["micro-gemma-xxl"]}]}, "unknown size 'micro-gemma-xxl'"),
        ({"grid": [GRID | {"bases": ["french"]}]}, "unknown base 'french'"),
        ({"grid": [GRID | {"budgets": [4, 2]}]}, "budgets must be ascending"),
        ({"grid": [GRID | {"sizes": ["0.4B"]}]}, "size 0.4B needs an entry in checkpoints"),
        ({"grid": [GRID | {"bases": ["published"]}], "checkpoints": [LARGE]}, "has no size micro-gemma-s"),
        ({"checkpoints": [{"base": "a", "size": "0.4B", "florence": "x/y"}]}, "give florence and gemma, or model"),
        ({"corpus": {"folder": "c"}}, "goes with source"),
        ({"source": "corpus"}, "goes with source"),
        ({"source": "corpus", "corpus": {"folder": "c"}, "world": {}}, r"has no \[world\]"),
        ({"sizes": [{"size": "micro-gemma-m"}]}, "micro-gemma-m is in no block of the grid"),
        ({"training": {"budgets": [3]}}, "'budgets' is set by the study itself"),
        ({"training": {"data": {"corpus": "x"}}}, "'data.corpus' is set by the study itself"),
        ({"cluster": {"train": {}}}, "trainings have training.cluster"),
        ({"cluster": {"loss": {"partitions": "x"}}}, "did you mean 'partition'"),
        ({"name": "x\ntouch INJ #"}, "letters, digits"),
        (
            {"finetune": [{"sizes": ["micro-gemma-s"], "seeds": [3], "num_images": 1}]},
            "no main run of size micro-gemma",
        ),
        ({"finetune": [{"sizes": ["micro-gemma-s"], "seeds": [0]}]}, "num_images .* or corpus"),
    ],
)
def test_mistakes_are_named(values: dict[str, Any], words: str) -> None:
    with pytest.raises(UserError, match=words) as raised:
        build_config(StudyConfig, {"grid": [GRID]} | values)
    assert "\n" not in str(raised.value)


def test_a_mistake_in_a_training_setting_is_named(tiny: Tiny) -> None:
    with pytest.raises(UserError, match=r"'optimiser.learning_rat'; did you mean 'optimiser.learning_rate'"):
        study_graph(tiny(training__optimiser={"learning_rat": 1e-3}))


@pytest.mark.parametrize("name", sorted(path.name for path in CONFIGS.glob("*.toml")))
def test_shipped_configurations_make_a_graph(name: str) -> None:
    graph = study_graph(load_study(CONFIGS / name, []))
    whole = {"main", "no-translation", "unfit-translation", "finetuned"}
    kinds = {"built.toml": {"main"}, "plan.toml": {"main"}, "sweep.toml": {"trial"}}
    kinds |= {name: {"main", "trial"} for name in ("trials.toml", "xl.toml")}
    assert {run.kind for run in graph.runs} == kinds.get(name, whole)
    assert len({run.name for run in graph.runs}) == len(graph.runs)
    assert len({step.folder for step in graph.steps}) == len(graph.steps)
    assert len({step.name for step in graph.steps}) == len(graph.steps)


def test_a_step_whose_seal_is_damaged_is_not_done(tmp_path: Path) -> None:
    write_done(tmp_path, {"hash": "h", "units": 3})
    assert read_done(tmp_path, "h") is not None
    path = tmp_path / DONE
    path.write_text(path.read_text(encoding="utf-8").replace('"sha256"', '"Sha256"'), encoding="utf-8")
    assert read_done(tmp_path, "h") is None


def test_dry_run_writes_nothing(tiny: Tiny, tmp_path: Path) -> None:
    plan = describe_study(tiny(tmp_path / "nowhere"))
    assert (plan["num_done"], plan["num_runs"]) == (0, 5)
    # 3 and 6 steps of 8 off one trunk, which ends before 6's decay; two controls of 6; fine-tuning, 3 steps of 4.
    assert plan["trained_share"] == pytest.approx((8 * (5 + 1 + 1) + 2 * 48 + 12) / (24 + 48 + 2 * 48 + 12))
    assert plan["wall_seconds"] < plan["core_seconds"] + 10
    assert not list(tmp_path.iterdir())


def test_estimates_come_from_what_was_measured() -> None:
    fast, slow = Step("train", "a", {"seed": 0}, units=100, size="x"), Step("train", "b", {}, units=100, size="y")
    timing = {"steps": [{"kind": "train", "size": "x", "units": 50, "seconds": 5.0}]}
    assert measured_rates(timing) == {("train", "x"): 10.0}
    found = estimate_steps([fast, slow], timing)
    assert found[fast.hash] == Estimate(10.0, True)
    assert not found[slow.hash].measured


def test_longest_chain_starts_first_and_workers_share() -> None:
    first = Step("world", "first", {"a": 1})
    users = [Step("train", f"user{number}", {"number": number}, {"corpus": first}) for number in range(3)]
    alone = Step("world", "alone", {"a": 2})
    steps = [first, alone, *users]
    seconds = {step.hash: 10.0 for step in steps}
    assert ahead(steps, seconds)[first.hash] == 20.0
    assert ahead(steps, seconds)[alone.hash] == 10.0
    estimates = {step.hash: Estimate(10.0, True) for step in steps}
    start = wall_seconds([alone], estimates, 1) - 10.0
    assert wall_seconds(steps, estimates, 1) - start == pytest.approx(50.0)
    assert wall_seconds(steps, estimates, 2) - start == pytest.approx(30.0)
    assert wall_seconds(users, estimates, 3) - start == pytest.approx(10.0)  # what is not listed is done


def test_a_trial_changes_one_thing_and_is_measured_as_all_others_are(tiny: Tiny) -> None:
    block = {"sizes": ["micro-gemma-s"], "budgets": [6], "seeds": [0]}
    seen = ["caption-en", "translation-es"]
    grid = [
        block,
        block | {"trial": "match=0.5", "world": {"match_probability": 0.5}},
        block | {"trial": "rate=1e-3", "training": {"optimiser": {"learning_rate": 1e-3}}},
        block | {"trial": "languages=1", "world": {"coverage": {"seen": seen}}},
    ]
    graph = study_graph(tiny(grid=grid, finetune=[]))
    assert [run.trial for run in shown_runs(graph)] == [""]  # trials have a table and a figure, the gallery has none
    runs = {run.trial: run for run in graph.runs}
    main, match, rate, languages = (runs[name] for name in ("", "match=0.5", "rate=1e-3", "languages=1"))
    assert [run.kind for run in (main, match, rate, languages)] == ["main", "trial", "trial", "trial"]
    assert match.name == "micro-gemma-s.balanced.s0.match-0.5.b000006"
    for trial in (match, rate, languages):  # the same before training, and the same pictures to be measured on
        assert trial.initial.hash == main.initial.hash
        assert trial.loss.inputs["pictures"].hash == main.loss.inputs["pictures"].hash
    worlds = [run.train.inputs["corpus"].settings for run in (main, match)]
    assert {key for key in worlds[0] if worlds[0][key] != worlds[1][key]} >= {"match_probability", "num_eval_images"}
    assert worlds[0]["seed"] == worlds[1]["seed"]
    assert settings_of(rate.train).optimiser.learning_rate == 1e-3
    assert settings_of(main.train).optimiser.learning_rate == 2e-3
    assert settings_of(languages.train).coverage.seen == tuple(seen)


def test_another_world_is_trained_and_measured_on(tiny: Tiny) -> None:
    block = {"sizes": ["micro-gemma-s"], "budgets": [6], "seeds": [0]}
    graph = study_graph(tiny(grid=[block, block | {"world": {"seed": 7}}], finetune=[]))
    first, second = graph.runs
    assert (second.name, second.kind) == ("micro-gemma-s.balanced.s0.w7.b000006", "main")
    for role in ("train", "loss", "captions"):
        steps = [getattr(run, role).inputs["corpus" if role == "train" else "pictures"] for run in (first, second)]
        assert [step.settings["seed"] for step in steps] == [0, 7]
    assert first.initial.hash != second.initial.hash


def test_what_is_predicted_is_run_last(tiny: Tiny) -> None:
    block = {"sizes": ["micro-gemma-s"], "budgets": [3], "seeds": [0]}
    grid = [block, block | {"budgets": [6], "seeds": [1], "predicted": True}]
    config = tiny(grid=grid, finetune=[])
    assert [run.predicted for run in study_graph(config).runs] == [False, True]
    fitting = study_graph(config.model_copy(update={"stage": "fitting"}))
    assert [run.seed for run in fitting.runs] == [0]
    assert {step.hash for step in fitting.steps} < {step.hash for step in study_graph(config).steps}
    with pytest.raises(UserError, match="give predicted runs seeds of their own"):
        tiny(grid=[block, block | {"budgets": [6], "predicted": True}], finetune=[])
    with pytest.raises(UserError, match="name it with trial"):
        tiny(grid=[block | {"training": {"batch_size": 4}}], finetune=[])
