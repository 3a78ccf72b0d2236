"""From a study's configuration to its graph: pictures, captioners, runs with their controls, fine-tuning, measures."""

from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

from babelcap.config import content_hash
from babelcap.coverage import Coverage
from babelcap.data.feed.batches import BatchConfig
from babelcap.measures import EVAL, HOLDOUT
from babelcap.models.sizing.sizes import get_size
from babelcap.study.config import FinetuneBlock, StudyConfig
from babelcap.study.graph import Step, all_steps
from babelcap.study.sources import captioner_step, finetuning_step, pictures_step, splits_of, truth_hash
from babelcap.study.trainings import train_config
from babelcap.training.config import TrainConfig
from babelcap.training.schedule import num_trained_steps, plan_legs

MAIN, FINETUNED = "main", "finetuned"
# Controls: the task that training leaves out, and the task whose annotations get other pictures.
WITHOUT = {"no-translation": "translation"}
EXCHANGED = {"unfit-translation": "translation"}
ONLY_TRAINING = {"prefix_probability", "source_mask_probability"}  # of how a batch is read
NUM_LOSS_PASSES = 2  # with the own picture and with another's


@dataclass(frozen=True)
class GridRun:
    """One record to be: a budget of a training, with what was measured of it before and after."""

    name: str
    kind: str
    started_from: str  # the main run, where this one is fine-tuned
    family: str
    size: str
    base: str
    seed: int
    leg: str
    train: Step
    initial: Step  # loss of the model that the training started from
    loss: Step
    captions: Step | None

    @property
    def ends(self) -> list[Step]:
        """The steps that its record is made of, beside those that they stand on."""
        return [step for step in (self.initial, self.loss, self.captions) if step is not None]


@dataclass(frozen=True)
class StudyGraph:
    config: StudyConfig
    pictures: Step
    runs: tuple[GridRun, ...]
    steps: list[Step] = field(default_factory=list)  # inputs first

    def with_runs(self, runs: list[GridRun]) -> "StudyGraph":
        return replace(self, runs=tuple(runs), steps=all_steps(step for run in runs for step in run.ends))


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
        return run if self.kind == MAIN else f"{run}.{self.kind}"


class Training(NamedTuple):
    """A training step of a cell, with what its runs are made from."""

    cell: Cell
    kind: str
    step: Step
    initial: Step
    settings: TrainConfig
    started_from: str = ""


def study_graph(config: StudyConfig) -> StudyGraph:
    return _Builder(config).build()


def grid_cells(config: StudyConfig) -> dict[Cell, tuple[int, ...]]:
    """Each training with its budgets; blocks that name the same training add their budgets to it."""
    budgets: dict[Cell, set[int]] = {}
    for block in config.grid:
        for size, base, seed in product(block.sizes, block.bases, block.seeds):
            budgets.setdefault(Cell(block.kind, size, base, seed), set()).update(block.budgets)
    return {cell: tuple(sorted(found)) for cell, found in budgets.items()}


class _Builder:
    def __init__(self, config: StudyConfig) -> None:
        self.config = config
        self.coverage = config.coverage
        self.splits = splits_of(config)
        self.truth = truth_hash(config)
        self.pictures = pictures_step(config)
        self.runs: list[GridRun] = []
        self.trainings: dict[tuple[Cell, int], Step] = {}

    def build(self) -> StudyGraph:
        cells = grid_cells(self.config)
        for cell, budgets in cells.items():
            self._add_cell(cell, budgets)
        for block in self.config.finetune:
            for size, base, seed in product(block.sizes, block.bases, block.seeds):
                cell = Cell(MAIN, size, base, seed)
                self._add_finetuning(cell, block, block.from_budget or cells[cell][-1])
        graph = StudyGraph(self.config, self.pictures, ())
        return graph.with_runs(sorted(self.runs, key=lambda run: run.name))

    def _add_cell(self, cell: Cell, budgets: tuple[int, ...]) -> None:
        """Budgets that branch off one trunk are one training; where each stands alone, each is a step of its own."""
        prepared = captioner_step(self.config, cell.size, cell.base)
        branch = self._settings(cell, budgets).schedule.kind == "wsd"
        for group in [budgets] if branch else [(budget,) for budget in budgets]:
            settings = self._settings(cell, group)
            slug = cell.slug if branch else f"{cell.slug}.b{group[0]:06d}"
            step = self._train_step("train", slug, settings, {"model": prepared, "corpus": self.pictures})
            initial = self._loss_step(f"{cell.size}.{cell.base}.initial", prepared, "", settings)
            for budget in group:
                self.trainings[cell, budget] = step
                training = Training(cell, cell.kind, step, initial, settings)
                self._add_run(f"{cell.slug}.b{budget:06d}", training, budget, budget == budgets[-1])

    def _settings(self, cell: Cell, budgets: tuple[int, ...]) -> TrainConfig:
        without = WITHOUT.get(cell.kind)
        seen = [pair for pair in self.coverage.seen_pairs if str(pair.task) != without]
        coverage = Coverage(**(self.coverage.model_dump() | {"seen": tuple(map(str, seen))}))
        own: dict[str, Any] = {
            "name": cell.slug,
            "seed": cell.seed,
            "budgets": list(budgets),
            "coverage": coverage.model_dump(mode="json"),
            "data": {"split": self.splits.train_split, "exchange_images": EXCHANGED.get(cell.kind)},
        }
        return train_config(self.config, cell.size, own)

    def _add_finetuning(self, cell: Cell, block: FinetuneBlock, budget: int) -> None:
        source, started_from = f"budget-{budget:06d}", self.trainings[cell, budget]
        slug = f"{cell.slug}.{FINETUNED}.from{budget:06d}"
        own = {
            "name": slug,
            "seed": cell.seed,
            "budgets": [block.num_steps],
            "coverage": self.coverage.full().model_dump(mode="json"),
            "data": {"split": block.split},
        }
        settings = train_config(self.config, cell.size, own, block)
        inputs = {"model": started_from, "corpus": finetuning_step(self.config, block)}
        step = self._train_step("finetune", slug, settings, inputs, f"{source}/model")
        main = f"{cell.slug}.b{budget:06d}"
        initial = self._loss_step(main, started_from, f"{source}/model", settings)
        if initial.hash not in {run.loss.hash for run in self.runs}:  # read in another way: with larger images, mostly
            initial = self._loss_step(f"{slug}.initial", started_from, f"{source}/model", settings)
        training = Training(cell, FINETUNED, step, initial, settings, main)
        self._add_run(f"{slug}.b{block.num_steps:06d}", training, block.num_steps, is_final=True)

    def _train_step(
        self, kind: str, slug: str, settings: TrainConfig, inputs: dict[str, Step], model: str = ""
    ) -> Step:
        """`model` is the folder of the captioner within what the step before it gives."""
        named = {"training": content_hash(settings), "model": model}
        resources = {"config": settings.model_dump(mode="json")}
        units = num_trained_steps(plan_legs(settings.budgets, settings.schedule)) * settings.batch_size
        return Step(kind, slug, named, inputs, resources, units, inputs["model"].size)

    def _add_run(self, name: str, training: Training, budget: int, is_final: bool) -> None:
        cell, leg = training.cell, f"budget-{budget:06d}"
        model = f"{leg}/model"
        run = GridRun(
            name=name,
            kind=training.kind,
            started_from=training.started_from,
            family=get_size(cell.size).family,
            size=cell.size,
            base=cell.base,
            seed=cell.seed,
            leg=leg,
            train=training.step,
            initial=training.initial,
            loss=self._loss_step(name, training.step, model, training.settings),
            captions=self._captions_step(name, training.step, model, training.settings, is_final),
        )
        self.runs.append(run)

    def _loss_step(self, slug: str, source: Step, model: str, trained: TrainConfig) -> Step:
        num_samples = self.config.evaluation.loss_samples
        settings = {"model": model, "loss_samples": num_samples, "split": self.splits.eval_split}
        units = num_samples * len(self.coverage.evaluated_pairs) * NUM_LOSS_PASSES
        return self._measure_step("loss", slug, settings, source, trained, units)

    def _captions_step(self, slug: str, source: Step, model: str, trained: TrainConfig, is_final: bool) -> Step | None:
        config = self.config.evaluation
        variants = config.final_variants if is_final else config.variants
        if not variants or not config.num_captions or self.truth is None:
            return None
        num_pictures = {EVAL: config.num_captions}
        if is_final and config.num_holdout_captions and self.splits.holdout_split is not None:
            num_pictures[HOLDOUT] = config.num_holdout_captions
        settings = {
            "model": model,
            "truth": self.truth,
            "splits": {EVAL: self.splits.eval_split, HOLDOUT: self.splits.holdout_split},
            "num_pictures": num_pictures,
            "variants": list(variants),
            "style": str(config.style),
            "num_beams": config.num_beams,
            "max_new_tokens": config.max_new_tokens,
        }
        units = sum(num_pictures.values()) * len(variants) * len(self.coverage.languages)
        return self._measure_step("captions", slug, settings, source, trained, units)

    def _measure_step(
        self, kind: str, slug: str, settings: dict[str, Any], source: Step, trained: TrainConfig, units: float
    ) -> Step:
        """On the study's pictures, read as the training reads its own."""
        read = trained.data.model_dump(mode="json", include=set(BatchConfig.model_fields) - ONLY_TRAINING)
        settings = settings | {"data": read, "coverage": self.coverage.model_dump(mode="json")}
        resources = {"batch_size": self.config.evaluation.batch_size, "image_features": trained.data.image_features}
        return Step(kind, slug, settings, {"model": source, "pictures": self.pictures}, resources, units, source.size)
