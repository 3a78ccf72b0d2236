"""From a study's configuration to its graph: pictures, captioners, trainings, fine-tuning, and what is measured."""

from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any, NamedTuple

from babelcap.config import content_hash
from babelcap.coverage import TRANSLATION, Coverage
from babelcap.data.feed.batches import BatchConfig
from babelcap.measures import EVAL, HOLDOUT
from babelcap.models.sizing.sizes import get_size
from babelcap.study.blocks import FinetuneBlock
from babelcap.study.cells import MAIN, Cell, cells_of, grid_cells
from babelcap.study.config import StudyConfig
from babelcap.study.graph import Step, all_steps
from babelcap.study.sources import (
    benchmarks_step,
    captioner_step,
    changed_world,
    finetuning_step,
    photograph_settings,
    pictures_step,
    splits_of,
    trial_step,
    truth_hash,
)
from babelcap.study.trainings import train_config
from babelcap.training.config import TrainConfig
from babelcap.training.schedule import num_trained_steps, plan_legs

FINETUNED, TRIAL = "finetuned", "trial"
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
    trial: str = ""  # what was changed
    predicted: bool = False  # to be run after the prediction

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


class Measured(NamedTuple):
    """What the runs of a training are measured on: a world, and its twins of the benchmarks."""

    pictures: Step
    benchmarks: Step | None


class Training(NamedTuple):
    """A training step of a cell, with what its runs are made from."""

    cell: Cell
    kind: str
    step: Step
    initial: Step
    settings: TrainConfig
    measured: Measured
    started_from: str = ""
    trial: str = ""


def study_graph(config: StudyConfig) -> StudyGraph:
    graph = _Builder(config).build()
    if config.stage == "all":
        return graph
    return graph.with_runs([run for run in graph.runs if not run.predicted])


class _Builder:
    def __init__(self, config: StudyConfig) -> None:
        self.config = config
        self.coverage = config.coverage
        self.splits = splits_of(config)
        self.truth = truth_hash(config)
        self.pictures = pictures_step(config)
        self.measured = Measured(self.pictures, benchmarks_step(config))
        self.blocks = {cell: block for block in config.grid for cell in cells_of(block)}
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
        corpus, coverage, measured = self._corpus(cell)
        branch = self._settings(cell, coverage, budgets).schedule.kind == "wsd"
        for group in [budgets] if branch else [(budget,) for budget in budgets]:
            settings = self._settings(cell, coverage, group)
            slug = cell.slug if branch else f"{cell.slug}.b{group[0]:06d}"
            step = self._train_step("train", slug, settings, {"model": prepared, "corpus": corpus})
            place = "" if cell.world_seed is None or cell.trial else f".w{cell.world_seed}"
            initial = self._loss_step(f"{cell.size}.{cell.base}{place}.initial", prepared, "", settings, measured)
            for budget in group:
                self.trainings[cell, budget] = step
                kind = TRIAL if cell.trial else cell.kind
                training = Training(cell, kind, step, initial, settings, measured, trial=cell.trial)
                is_final = budget == budgets[-1] and not cell.trial
                self._add_run(f"{cell.slug}.b{budget:06d}", training, budget, is_final)

    def _corpus(self, cell: Cell) -> tuple[Step, Coverage, Measured]:
        """What a training reads, what it sees of it, and what it is measured on: its own world if the seed differs."""
        block = self.blocks[cell]
        if cell.trial and block.world:
            step, coverage = trial_step(self.config, cell.trial.replace("=", "-"), block.world)
            return step, coverage, self.measured
        if not block.world:
            return self.pictures, self.coverage, self.measured
        other = self.config.model_copy(update={"world": changed_world(self.config, block.world)})
        slug = f"main.w{cell.world_seed}"
        measured = Measured(pictures_step(other, slug), benchmarks_step(other, slug))
        return measured.pictures, self.coverage, measured

    def _settings(self, cell: Cell, coverage: Coverage, budgets: tuple[int, ...]) -> TrainConfig:
        without = WITHOUT.get(cell.kind)
        seen = [pair for pair in coverage.seen_pairs if str(pair.task) != without]
        coverage = Coverage(**(coverage.model_dump() | {"seen": tuple(map(str, seen))}))
        own: dict[str, Any] = {
            "name": cell.slug,
            "seed": cell.seed,
            "budgets": list(budgets),
            "coverage": coverage.model_dump(mode="json"),
            "data": {"split": self.splits.train_split, "exchange_images": EXCHANGED.get(cell.kind)},
        }
        return train_config(self.config, cell.size, own, self.blocks[cell].training)

    def _add_finetuning(self, cell: Cell, block: FinetuneBlock, budget: int) -> None:
        source, started_from = f"budget-{budget:06d}", self.trainings[cell, budget]
        tried = f"-{block.trial.replace('=', '-')}" if block.trial else ""
        slug = f"{cell.slug}.{FINETUNED}{tried}.from{budget:06d}"
        own = {
            "name": slug,
            "seed": cell.seed,
            "budgets": [block.num_steps],
            "coverage": self.coverage.full().model_dump(mode="json"),
            "data": {"split": block.split},
        }
        settings = train_config(self.config, cell.size, own, tuned=block)
        inputs = {"model": started_from, "corpus": finetuning_step(self.config, block)}
        step = self._train_step("finetune", slug, settings, inputs, f"{source}/model")
        main = f"{cell.slug}.b{budget:06d}"
        initial = self._loss_step(main, started_from, f"{source}/model", settings, self.measured)
        if initial.hash not in {run.loss.hash for run in self.runs}:  # read in another way: with larger images, mostly
            initial = self._loss_step(f"{slug}.initial", started_from, f"{source}/model", settings, self.measured)
        kind = TRIAL if block.trial else FINETUNED
        training = Training(cell, kind, step, initial, settings, self.measured, main, block.trial)
        self._add_run(f"{slug}.b{block.num_steps:06d}", training, block.num_steps, is_final=not block.trial)

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
            loss=self._loss_step(name, training.step, model, training.settings, training.measured, is_final),
            captions=self._captions_step(name, model, training, is_final),
            trial=training.trial,
            predicted=self.blocks[cell].predicted,
        )
        self.runs.append(run)

    def _loss_step(
        self, slug: str, source: Step, model: str, trained: TrainConfig, measured: Measured, is_final: bool = False
    ) -> Step:
        config = self.config.evaluation
        num_samples = config.loss_samples
        settings = {
            "model": model,
            "loss_samples": num_samples,
            "split": self.splits.eval_split,
            "content": self.truth is not None,  # the grammar of the world knows the words for it
            "calibrated": config.calibrated,
            "wording": config.wording and self.truth is not None,
        }
        if not config.shuffled and not is_final:  # said only where it is so: names of steps that were run stay
            settings["shuffled"] = False
        num_passes = NUM_LOSS_PASSES if settings.get("shuffled", True) else 1
        units = num_samples * len(self.coverage.evaluated_pairs) * num_passes
        return self._measure_step("loss", slug, settings, (source, measured.pictures), trained, units)

    def _captions_step(self, slug: str, model: str, training: Training, is_final: bool) -> Step | None:
        config = self.config.evaluation
        trained, benchmarks = training.settings, training.measured.benchmarks
        inputs = training.step, training.measured.pictures
        variants = config.final_variants if is_final else config.variants
        if (
            self.truth is None
            and (settings := photograph_settings(self.config, self.splits.eval_split, is_final)) is not None
        ):
            units = config.num_captions * len(settings["variants"]) * len(self.coverage.languages)
            step = self._measure_step("captions", slug, settings | {"model": model}, inputs, trained, units)
            return replace(step, resources=step.resources | {"texts": str(config.texts)})
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
        if benchmarks is None:
            return self._measure_step("captions", slug, settings, inputs, trained, units)
        # Pictures are shuffled where tables show it: there translations and decisions are made twice.
        settings["shuffled"] = is_final
        num_languages = len(self.coverage.pairs_of(TRANSLATION))
        units += (1 + is_final) * num_languages * (config.num_translated + 4 * config.num_pairs)
        step = self._measure_step("captions", slug, settings, inputs, trained, units)
        return replace(step, inputs=step.inputs | {"benchmarks": benchmarks})

    def _measure_step(
        self,
        kind: str,
        slug: str,
        settings: dict[str, Any],
        inputs: tuple[Step, Step],
        trained: TrainConfig,
        units: float,
    ) -> Step:
        """`inputs` are the model and the pictures, which are read as the training reads its own."""
        source, pictures = inputs
        read = trained.data.model_dump(mode="json", include=set(BatchConfig.model_fields) - ONLY_TRAINING)
        settings = settings | {"data": read, "coverage": self.coverage.model_dump(mode="json")}
        resources = {"batch_size": self.config.evaluation.batch_size, "image_features": trained.data.image_features}
        return Step(kind, slug, settings, {"model": source, "pictures": pictures}, resources, units, source.size)
