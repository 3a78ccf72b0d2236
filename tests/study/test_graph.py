"""The plan of a study: what is run, and that a changed setting renames only what it affects."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from babelcap.config import build_config, load_config
from babelcap.errors import UserError
from babelcap.study.config import StudyConfig
from babelcap.study.estimate import Estimate, estimate_steps, measured_rates, wall_seconds
from babelcap.study.gallery import shown_runs
from babelcap.study.graph import Step, ahead
from babelcap.study.grid import grid_cells, plan_study
from babelcap.study.runner import describe_plan

Tiny = Callable[..., StudyConfig]
CONFIGS = Path(__file__).parents[2] / "configs" / "study"


def hashes(config: StudyConfig) -> dict[str, str]:
    return {step.name: step.hash for step in plan_study(config).steps}


def changed(before: StudyConfig, after: StudyConfig) -> set[str]:
    """The kinds of the steps that would run again."""
    old = set(hashes(before).values())
    return {name.split(" ")[0] for name, value in hashes(after).items() if value not in old}


def test_runs_and_their_names(tiny: Tiny) -> None:
    plan = plan_study(tiny())
    assert [(run.name, run.kind) for run in plan.runs] == [
        ("micro-gemma-s.balanced.s0.b000003", "main"),
        ("micro-gemma-s.balanced.s0.b000006", "main"),
        ("micro-gemma-s.balanced.s0.finetuned.from000006.b000003", "finetuned"),
        ("micro-gemma-s.balanced.s0.no-translation.b000006", "no-translation"),
        ("micro-gemma-s.balanced.s0.unfit-translation.b000006", "unfit-translation"),
    ]
    assert len({step.folder for step in plan.steps}) == len(plan.steps)
    seen: set[str] = set()
    for step in plan.steps:  # inputs come first
        assert {need.hash for need in step.inputs.values()} <= seen
        seen.add(step.hash)


def test_controls_differ_in_what_they_are_named_for(tiny: Tiny) -> None:
    trained = {run.kind: run.train for run in plan_study(tiny()).runs if run.leg == "budget-000006"}
    assert trained["no-translation"].settings["coverage"]["seen"] == ["caption-en", "caption-de"]
    assert trained["no-translation"].inputs["corpus"] is trained["main"].inputs["corpus"]
    unfit = trained["unfit-translation"]
    assert unfit.inputs["corpus"].settings["match_probability"] == 0
    assert unfit.inputs["corpus"].settings["seed"] == trained["main"].inputs["corpus"].settings["seed"]
    assert unfit.settings == trained["main"].settings | {"budgets": [6]}
    weights = {"caption-en": 1.0, "translation-de": 1.0}
    plan = plan_study(tiny(training__weights=weights))
    control = next(run.train for run in plan.runs if run.kind == "no-translation")
    assert control.settings["weights"] == {"caption-en": 1.0}


def test_finetuning_covers_every_pair_and_has_its_own_pictures(tiny: Tiny) -> None:
    plan = plan_study(tiny())
    tuned = next(run for run in plan.runs if run.kind == "finetuned")
    assert len(tuned.train.settings["coverage"]["seen"]) == 11
    assert tuned.train.inputs["corpus"].settings["seed"] != plan.world.settings["seed"]
    assert tuned.train.settings["model"] == "budget-000006"
    # What is measured before fine-tuning is what was measured after pretraining.
    assert tuned.initial.hash == plan.runs[1].loss.hash


def test_the_gallery_shows_the_largest_model_wherever_the_grid_names_it(tiny: Tiny) -> None:
    others = [
        {"sizes": ["micro-gemma-l"], "budgets": [6], "seeds": [1]},
        {"sizes": ["micro-florence-s"], "budgets": [9], "seeds": [0]},
    ]
    plan = plan_study(tiny(grid=[*tiny().model_dump(mode="json")["grid"], *others]))
    assert shown_runs(plan)[0].name == "micro-gemma-l.balanced.s1.b000006"
    assert [run.kind for run in shown_runs(plan_study(tiny()))] == [
        "main", "finetuned", "no-translation", "unfit-translation",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("change", "affected"),
    [
        ({}, set()),
        ({"num_workers": 7, "evaluation__batch_size": 3, "training__checkpoint_every_steps": 9}, set()),
        ({"base__use_shipped": True}, set()),
        ({"report__num_pictures": 1}, set()),
        ({"evaluation__max_new_tokens": 7}, {"captions"}),
        ({"evaluation__loss_samples": 5}, {"loss"}),
        ({"training__learning_rate": 1e-3}, {"train", "finetune", "loss", "captions"}),
        ({"base__language_steps": 2}, {"base", "prepare", "train", "finetune", "loss", "captions"}),
        ({"world__seed": 5}, {"world", "train", "finetune", "loss", "captions"}),
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


def test_mistakes_are_named(tmp_path: Path, tiny: Tiny) -> None:
    grid = {"sizes": ["micro-gemma-s"], "budgets": [4], "seeds": [0]}
    for block, words in (
        (grid | {"sizes": ["micro-gemma-xl"]}, "unknown size 'micro-gemma-xl'"),
        (grid | {"bases": ["french"]}, "unknown base 'french'"),
        (grid | {"budgets": [4, 2]}, "budgets must be ascending"),
    ):
        with pytest.raises(UserError, match=words):
            build_config(StudyConfig, {"grid": [block]})
    with pytest.raises(UserError, match="no main run of size micro-gemma-s, base balanced, seed 3"):
        tiny(finetune=[{"sizes": ["micro-gemma-s"], "seeds": [3]}])


@pytest.mark.parametrize("name", sorted(path.name for path in CONFIGS.glob("*.toml") if path.stem != "paper"))
def test_shipped_configurations_make_a_plan(name: str) -> None:
    plan = plan_study(load_config(StudyConfig, CONFIGS / name))
    assert {run.kind for run in plan.runs} == {"main", "no-translation", "unfit-translation", "finetuned"}


def test_dry_run_writes_nothing(tiny: Tiny, tmp_path: Path) -> None:
    plan = describe_plan(tiny(tmp_path / "nowhere"))
    assert (plan["num_done"], plan["num_runs"]) == (0, 5)
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
