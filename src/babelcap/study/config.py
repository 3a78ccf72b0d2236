"""What a study is: pictures, base models, a grid of runs with controls and fine-tuning, measures and a report.

Training settings are fragments of a training configuration (`babelcap train`), as tables or as the name of a TOML file.
Fields made by `resource` change how a study is computed, not what; they are no part of any step's name.
"""

from itertools import product
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from babelcap.bases.config import BaseConfig
from babelcap.config import ConfigModel, PlainName, apply_overrides, build_config, merge_values, read_values, resource
from babelcap.coverage import Coverage, Style
from babelcap.jobs.slurm import ClusterConfig
from babelcap.measures import EVAL, TRAIN, VARIANTS, Variant
from babelcap.study.blocks import SET_BY_STUDY, FinetuneBlock, Fragment, GridBlock, SizeSettings
from babelcap.world.corpus import WorldConfig

OTHER_JOBS = ("default", "world", "corpus", "benchmarks", "base", "prepare", "loss", "captions", "report")


class CorpusConfig(ConfigModel):
    """A corpus folder in the store's format (`babelcap data import`, `data index`)."""

    folder: Path
    train_split: str = TRAIN
    eval_split: str = EVAL
    holdout_split: str | None = None  # where it has one, with a truth file: captions of the compositional hold-out
    coverage: Coverage = Coverage()  # which pairs are trained on, and the test splits


class CheckpointConfig(ConfigModel):
    """Where the captioner of one size comes from: the surgery on two checkpoints, or a folder that is ready."""

    base: PlainName  # what grid.bases calls it
    size: str
    florence: str | None = None  # folder or hub id
    gemma: str | None = None  # for a Florence captioner only its tokenizer is read
    model: Path | None = None  # in place of both: a captioner's folder
    dtype: str = "float32"
    seed: int = 0

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        if (self.model is None) == (self.florence is None) or (self.florence is None) != (self.gemma is None):
            raise ValueError(f"size {self.size}: give florence and gemma, or model alone")
        return self


class StudyEvaluation(ConfigModel):
    """Losses of every run. Captions where the truth is known: of every run in few variants, of some in all.

    Of a world that the study makes, also its twins of the benchmarks (docs/world.md).
    """

    loss_samples: int = Field(200, ge=1)  # of each pair
    shuffled: bool = True  # losses also with another's picture, of every run; else of the largest budgets alone
    calibrated: bool = False  # losses also after the best temperature
    wording: bool = False  # of a world: losses of unseen captions worded as captions and as translations are
    texts: Path | None = None  # of photographs: Multi30K's data, by which their captions are judged (docs/photos.md)
    num_captions: int = Field(100, ge=0)  # pictures of the eval split, each captioned in every language
    num_holdout_captions: int = Field(50, ge=0)  # of the compositional hold-out; largest budgets only
    variants: tuple[Variant, ...] = ("plain", "prefix")  # of every run
    final_variants: tuple[Variant, ...] = VARIANTS  # of a run's largest budget, and of controls and fine-tuning
    downstream: bool = True  # captions against five references, translation, ambiguity; needs babelcap[eval]
    num_translated: int = Field(20, ge=1)  # pictures of the eval split with a sentence to translate
    num_pairs: int = Field(24, ge=1)  # of pictures, in the ambiguity test
    style: Style = Style.SHORT
    num_beams: int = Field(1, ge=1)
    max_new_tokens: int = Field(48, ge=1)
    batch_size: int = resource(128, ge=1)


class StudyReport(ConfigModel):
    num_pictures: int = Field(8, ge=0)  # of the gallery
    gallery_size: str | None = None  # whose captions the gallery shows; None: the largest run of the grid
    baselines: dict[str, str] = Field({})  # name of a trial -> the value of it that the grid's own runs have


class StudyConfig(ConfigModel):
    name: PlainName = "study"
    output: Path = resource(Path("studies/study"))
    source: Literal["world", "corpus"] = "world"  # of the pictures
    world: WorldConfig | None = None
    corpus: CorpusConfig | None = None
    base: BaseConfig = BaseConfig()  # base models in small
    checkpoints: tuple[CheckpointConfig, ...] = ()  # others
    grid: tuple[GridBlock, ...]
    finetune: tuple[FinetuneBlock, ...] = ()
    training: Fragment = Field({})
    sizes: tuple[SizeSettings, ...] = ()
    evaluation: StudyEvaluation = StudyEvaluation()
    report: StudyReport = StudyReport()
    stage: Literal["all", "fitting"] = resource("all")  # fitting: without the runs that are predicted
    num_workers: int | None = resource(None, ge=1)  # processes of one thread each; None: one a core
    cluster: dict[str, dict[str, Any]] = resource({})  # kind of step -> what to ask Slurm for; `default` is below all
    peak_tflops: float = resource(989.0, gt=0)  # of one GPU in the runs' precision; 989 is an H100's in bf16, dense
    reached_share: float = resource(0.35, gt=0, le=1)  # of the peak: an assumption until measured

    @property
    def coverage(self) -> Coverage:
        """Which pairs the grid is trained on, and the test splits."""
        found = self.corpus or self.world
        assert found is not None
        return found.coverage

    @model_validator(mode="before")
    @classmethod
    def _a_world_by_default(cls, values: Any) -> Any:
        if isinstance(values, dict) and values.get("source", "world") == "world" and values.get("world") is None:
            return values | {"world": {}}
        return values

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if (self.source == "corpus") != (self.corpus is not None):
            raise ValueError(f"source is '{self.source}'; [corpus] goes with source = \"corpus\" and with no other")
        if self.source == "corpus" and self.world is not None:
            raise ValueError("source is 'corpus', which has no [world]; remove one of the two")
        for kind, values in self.cluster.items():
            if kind not in OTHER_JOBS:
                raise ValueError(f"cluster.{kind}: known are {', '.join(OTHER_JOBS)}; trainings have training.cluster")
            build_config(ClusterConfig, values, f"cluster.{kind}")
        return self

    @model_validator(mode="after")
    def _bases_are_known(self) -> Self:
        origins = [(origin.base, origin.size) for origin in self.checkpoints]
        for name, size in origins:
            if origins.count((name, size)) > 1 or name in self.base.variants:
                raise ValueError(f"checkpoints: base '{name}' of size {size} comes twice, here or in base.variants")
        named = [(block.bases, block.sizes) for block in self.grid]
        named += [(block.bases, block.sizes) for block in self.finetune]
        for bases, sizes in named:
            for base, size in product(bases, sizes):
                made = base in self.base.variants
                if not made and base not in {name for name, _ in origins}:
                    known = [*self.base.variants, *dict.fromkeys(name for name, _ in origins)]
                    raise ValueError(f"unknown base '{base}'; base.variants and checkpoints have {', '.join(known)}")
                if not made and (base, size) not in origins:
                    raise ValueError(f"checkpoints: base '{base}' has no size {size}")
                if made and not size.startswith("micro-"):
                    raise ValueError(f"base '{base}' is made in small; size {size} needs an entry in checkpoints")
        used = {size for block in self.grid for size in block.sizes}
        own = [settings.size for settings in self.sizes]
        for size in own:
            if size not in used or own.count(size) > 1:
                raise ValueError(f"sizes: {size} is in no block of the grid, or comes twice here")
        return self

    @model_validator(mode="after")
    def _blocks_agree(self) -> Self:
        """What two blocks say of one training must be the same; only its budgets are added up."""
        said: dict[Any, Any] = {}
        for block in self.grid:
            if block.world and self.world is None:
                raise ValueError('grid: world is of a world that is drawn; source = "corpus" has none')
            if block.world and self.world is not None:
                build_config(WorldConfig, merge_values(WorldConfig, self.world.model_dump(), block.world), "grid.world")
            for size, base, seed in product(block.sizes, block.bases, block.seeds):
                run = (block.kind, size, base, seed, block.trial, block.world.get("seed"))
                values = (block.changes, block.predicted)
                if said.setdefault(run, values) != values:
                    name = f"size {size}, base {base}, seed {seed}"
                    raise ValueError(
                        f"grid: two blocks differ in training, world or predicted of {name}; give predicted runs seeds "
                        "of their own, and trials a name of their own"
                    )
        return self

    @model_validator(mode="after")
    def _finetuning_has_its_runs(self) -> Self:
        trained = {
            (size, base, seed, budget)
            for block in self.grid
            if block.kind == "main" and not block.trial and not block.world
            for size, base, seed, budget in product(block.sizes, block.bases, block.seeds, (*block.budgets, None))
        }
        for tuned in self.finetune:
            if tuned.num_images is not None and self.source == "corpus":
                raise ValueError('finetune: num_images is of a world; with source = "corpus" give finetune.corpus')
            for size, base, seed in product(tuned.sizes, tuned.bases, tuned.seeds):
                if (size, base, seed, tuned.from_budget) not in trained:
                    budget = "" if tuned.from_budget is None else f" and budget {tuned.from_budget}"
                    raise ValueError(
                        f"finetune: no main run of size {size}, base {base}, seed {seed}{budget} in the grid"
                    )
        return self


def load_study(path: Path, overrides: list[str]) -> StudyConfig:
    """From a study's TOML file, its config.json or its folder. Files that it names become what is in them."""
    path = path / "config.json" if path.is_dir() else path
    values = read_values(path)
    _inline(values, "training", path.parent)
    for name, keys in (("sizes", ("training", "finetuning")), ("finetune", ("training",)), ("grid", ("training",))):
        blocks = values.get(name)
        for block in blocks if isinstance(blocks, list) else []:
            for key in keys:
                _inline(block, key, path.parent)
    apply_overrides(StudyConfig, values, overrides)
    return build_config(StudyConfig, values, str(path))


def _inline(table: Any, key: str, folder: Path) -> None:
    """A training's file in place of its name, without what the study sets: its model, its budgets, ..."""
    if isinstance(table, dict) and isinstance(table.get(key), str):
        fragment = read_values(folder / table[key])
        for name in SET_BY_STUDY:
            first, _, rest = name.partition(".")
            place = fragment.get(first) if rest else fragment
            if isinstance(place, dict):
                place.pop(rest or first, None)
        table[key] = fragment
