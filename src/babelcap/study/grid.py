"""From a study's configuration to its steps: worlds, bases, prepared models, runs, fine-tuning and their measures."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any

from babelcap.bases.config import BaseConfig
from babelcap.bases.recipe import SHIPPED, Base, needed_bases
from babelcap.coverage import Coverage
from babelcap.models.sizing.sizes import get_size
from babelcap.study.config import FinetuneBlock, StudyConfig
from babelcap.study.graph import Step, all_steps
from babelcap.training.schedule import num_trained_steps, plan_legs
from babelcap.world.corpus import WorldConfig

FINETUNED = "finetuned"
FINETUNE_WORLD_SEED = 1_000_003  # added to the world's, so that fine-tuning has pictures of its own
NUM_LOSS_PASSES = 2  # with the own picture and with another's


@dataclass(frozen=True)
class PlannedRun:
    """One record to be: a budget of a training, with what was measured of it before and after."""

    name: str
    kind: str
    family: str
    size: str
    base: str
    seed: int
    leg: str
    train: Step
    initial: Step  # loss of the model that the training started from
    loss: Step
    captions: Step | None


@dataclass(frozen=True)
class Plan:
    config: StudyConfig
    world: Step
    runs: tuple[PlannedRun, ...]
    steps: list[Step] = field(default_factory=list)  # inputs first


@dataclass(frozen=True)
class Cell:
    """A training of the grid."""

    kind: str
    size: str
    base: str
    seed: int

    @property
    def slug(self) -> str:
        run = f"{self.size}.{self.base}.s{self.seed}"
        return run if self.kind == "main" else f"{run}.{self.kind}"


def plan_study(config: StudyConfig) -> Plan:
    return _Planner(config).plan()


def grid_cells(config: StudyConfig) -> dict[Cell, tuple[int, ...]]:
    """Each training with its budgets; blocks that name the same training add their budgets to it."""
    budgets: dict[Cell, set[int]] = {}
    for block in config.grid:
        for size, base, seed in product(block.sizes, block.bases, block.seeds):
            budgets.setdefault(Cell(block.kind, size, base, seed), set()).update(block.budgets)
    return {cell: tuple(sorted(found)) for cell, found in budgets.items()}


class _Planner:
    def __init__(self, config: StudyConfig) -> None:
        self.config = config
        self.coverage: Coverage = config.world.coverage
        self.world = self._world_step("main", config.world)
        self.runs: list[PlannedRun] = []
        self.trainings: dict[Cell, Step] = {}

    def plan(self) -> Plan:
        cells = grid_cells(self.config)
        for cell, budgets in cells.items():
            self._add_cell(cell, budgets)
        for block in self.config.finetune:
            for size, base, seed in product(block.sizes, block.bases, block.seeds):
                cell = Cell("main", size, base, seed)
                self._add_finetuning(cell, block, block.from_budget or cells[cell][-1])
        runs = tuple(sorted(self.runs, key=lambda run: run.name))
        ends = [step for run in runs for step in (run.initial, run.loss, run.captions) if step is not None]
        return Plan(self.config, self.world, runs, all_steps(ends))

    def _world_step(self, slug: str, world: WorldConfig) -> Step:
        settings = world.model_dump(mode="json", exclude={"num_workers"})
        units = world.num_images + world.num_eval_images + world.num_holdout_images
        return Step("world", slug, settings, units=units)

    def _prepared(self, size: str, variant: str) -> Step:
        """The bases of a captioner, and the captioner made of them."""
        config = self.config.base
        resources = {"config": config.model_dump(mode="json")}
        built: dict[str, Step] = {}
        for base in needed_bases(config, size, variant):
            needs = {"tower": built["tower"]} if base.kind == "florence" else {}
            values = {"kind": base.kind, "letter": base.letter, "variant": base.variant}
            is_shipped = config.use_shipped and is_in_package(base)
            built[base.kind] = Step(
                "base",
                base.name.rpartition("-")[0],
                values | {"recipe": base.recipe},
                needs,
                resources,
                units=1.0 if is_shipped else _base_units(config, base.kind),
                size="shipped" if is_shipped else f"{base.kind}-{base.letter}",
                path=f"bases/{base.name}",
            )
        settings = {"size": size, "seed": config.seed}
        return Step("prepare", f"{size}.{variant}", settings, built, size=size)

    def _corpus(self, kind: str) -> Step:
        if kind != "unfit-translation":
            return self.world
        # Only its training texts are read: the tokenizers and what is evaluated are those of the main world.
        changes = {"match_probability": 0.0, "num_eval_images": 0, "num_holdout_images": 0, "num_text_lines": 0}
        return self._world_step("unfit", self.config.world.model_copy(update=changes))

    def _train_coverage(self, kind: str) -> Coverage:
        if kind != "no-translation":
            return self.coverage
        coverage = self.coverage
        seen = [str(pair) for pair in coverage.seen_pairs if not coverage.task(pair.task).needs_source]
        return Coverage(**(coverage.model_dump() | {"seen": tuple(seen)}))

    def _settings(self, size: str, coverage: Coverage) -> dict[str, Any]:
        training = self.config.training
        weights = training.weights
        if isinstance(weights, dict):
            weights = {pair: weight for pair, weight in weights.items() if pair in coverage.seen}
        shared = training.model_dump(
            mode="json", exclude={"learning_rates", "policies", "weights", "checkpoint_every_steps"}
        )
        return shared | {
            "learning_rate": training.learning_rates.get(size, training.learning_rate),
            "policy": training.policies.get(size, training.policy),
            "weights": weights,
            "coverage": coverage.model_dump(mode="json"),
            "image_size_px": get_size(size).image_size_px,
        }

    def _add_cell(self, cell: Cell, budgets: tuple[int, ...]) -> None:
        config = self.config.training
        prepared = self._prepared(cell.size, cell.base)
        settings = self._settings(cell.size, self._train_coverage(cell.kind))
        settings |= {"budgets": list(budgets), "seed": cell.seed}
        legs = plan_legs(budgets, config.schedule)
        inputs = {"model": prepared, "corpus": self._corpus(cell.kind)}
        resources = {"checkpoint_every_steps": config.checkpoint_every_steps}
        units = num_trained_steps(legs) * config.batch_size
        train = Step("train", cell.slug, settings, inputs, resources, units, cell.size)
        self.trainings[cell] = train
        initial = self._loss_step(f"{cell.size}.{cell.base}.initial", cell.size, prepared, "")
        for leg in legs:
            if leg.budget is not None:
                is_final = leg.budget == budgets[-1]
                self._add_run(f"{cell.slug}.b{leg.budget:06d}", cell.kind, cell, train, initial, leg.name, is_final)

    def _add_finetuning(self, cell: Cell, block: FinetuneBlock, budget: int) -> None:
        config = self.config
        changes = {
            "coverage": self.coverage.full(),
            "num_images": block.num_images,
            "seed": config.world.seed + FINETUNE_WORLD_SEED,
            "num_eval_images": 0,
            "num_holdout_images": 0,
            "num_text_lines": 0,
        }
        corpus = self._world_step("full", config.world.model_copy(update=changes))
        source = f"budget-{budget:06d}"
        settings = self._settings(cell.size, self.coverage.full())
        settings |= {
            "model": source,
            "budgets": [block.num_steps],
            "seed": cell.seed,
            "batch_size": block.batch_size,
            "learning_rate": block.learning_rate,
            "schedule": config.training.schedule.model_dump(mode="json") | {"kind": "cosine"},
            "prefix_probability": 0.0,
        }
        settings["schedule"]["warmup_steps"] = min(settings["schedule"]["warmup_steps"], block.num_steps // 4)
        started_from = self.trainings[cell]
        units = block.num_steps * block.batch_size
        slug = f"{cell.slug}.{FINETUNED}.from{budget:06d}"
        inputs = {"model": started_from, "corpus": corpus}
        tuned = Step("finetune", slug, settings, inputs, {}, units, cell.size)
        initial = self._loss_step(f"{cell.slug}.b{budget:06d}", cell.size, started_from, f"{source}/model")
        name = f"{slug}.b{block.num_steps:06d}"
        leg = plan_legs((block.num_steps,), config.training.schedule)[0].name
        self._add_run(name, FINETUNED, cell, tuned, initial, leg, is_final=True)

    def _add_run(self, name: str, kind: str, cell: Cell, train: Step, initial: Step, leg: str, is_final: bool) -> None:
        model = f"{leg}/model"
        loss = self._loss_step(name, cell.size, train, model)
        captions = self._captions_step(name, cell.size, train, model, is_final)
        family = get_size(cell.size).family
        run = PlannedRun(name, kind, family, cell.size, cell.base, cell.seed, leg, train, initial, loss, captions)
        self.runs.append(run)

    def _loss_step(self, slug: str, size: str, source: Step, model: str) -> Step:
        settings = self._evaluated(size, model) | {"loss_samples": self.config.evaluation.loss_samples}
        units = self.config.evaluation.loss_samples * len(self.coverage.evaluated_pairs) * NUM_LOSS_PASSES
        inputs = {"model": source, "world": self.world}
        return Step("loss", slug, settings, inputs, self._resources(), units, size)

    def _captions_step(self, slug: str, size: str, source: Step, model: str, is_final: bool) -> Step | None:
        config = self.config.evaluation
        variants = config.final_variants if is_final else config.variants
        if not variants or not config.num_captions:
            return None
        num_pictures = {"eval": config.num_captions}
        if is_final and config.num_holdout_captions and self.config.world.num_holdout_images:
            num_pictures["holdout"] = config.num_holdout_captions
        settings = self._evaluated(size, model) | {
            "num_pictures": num_pictures,
            "variants": list(variants),
            "style": str(config.style),
            "num_beams": config.num_beams,
            "max_new_tokens": config.max_new_tokens,
        }
        units = sum(num_pictures.values()) * len(variants) * len(self.coverage.languages)
        inputs = {"model": source, "world": self.world}
        return Step("captions", slug, settings, inputs, self._resources(), units, size)

    def _evaluated(self, size: str, model: str) -> dict[str, Any]:
        training = self.config.training
        return {
            "model": model,
            "image_size_px": get_size(size).image_size_px,
            "max_prompt_tokens": training.max_prompt_tokens,
            "max_target_tokens": training.max_target_tokens,
        }

    def _resources(self) -> dict[str, Any]:
        return {"batch_size": self.config.evaluation.batch_size}


def is_in_package(base: Base) -> bool:
    """Whether its weights come with the package, so that it need not be trained."""
    return (Path(str(files("babelcap.bases"))) / SHIPPED / f"{base.name}.safetensors").is_file()


def _base_units(config: BaseConfig, kind: str) -> float:
    """Samples that the base is trained on."""
    name = {"tower": "tower", "florence": "caption", "gemma": "language"}[kind]
    return float(getattr(config, f"{name}_steps") * getattr(config, f"{name}_batch_size"))


def captioned_runs(plan: Plan) -> Iterator[PlannedRun]:
    return (run for run in plan.runs if run.captions is not None)
