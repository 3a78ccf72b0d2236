"""What a study is: a world, base models, a grid of runs with controls and fine-tuning, measures, laws and a report.

Fields made by `resource` change how a study is computed, not what; they are no part of any step's name.
"""

from itertools import product
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from babelcap.bases.config import BaseConfig
from babelcap.config import ConfigModel, resource
from babelcap.coverage import Style
from babelcap.measures import VARIANTS, Variant
from babelcap.models.sizing.sizes import SIZES
from babelcap.training.config import ScheduleConfig
from babelcap.world.corpus import WorldConfig

Kind = Literal["main", "no-translation", "unfit-translation"]


class GridBlock(ConfigModel):
    """A run for each size, base and seed; its budgets are branches of one training where the schedule is wsd."""

    kind: Kind = "main"  # no-translation: captions only; unfit-translation: translations of other pictures
    sizes: tuple[str, ...]  # micro-gemma-s, ... as `babelcap model info` knows them
    bases: tuple[str, ...] = ("balanced",)  # names of base.variants
    budgets: tuple[int, ...]  # optimiser steps
    seeds: tuple[int, ...] = (0, 1, 2)

    @model_validator(mode="after")
    def _known(self) -> Self:
        for size in self.sizes:
            if size not in SIZES:
                raise ValueError(f"unknown size '{size}'; known: {', '.join(SIZES)}")
        if not self.budgets or min(self.budgets) < 1 or list(self.budgets) != sorted(set(self.budgets)):
            raise ValueError(f"budgets must be ascending numbers of steps, found {list(self.budgets)}")
        if not (self.sizes and self.bases and self.seeds):
            raise ValueError("sizes, bases and seeds need at least one entry each")
        return self


class FinetuneBlock(ConfigModel):
    """Fine-tuning of grid runs on a corpus that covers every pair, with pictures of its own."""

    sizes: tuple[str, ...]
    bases: tuple[str, ...] = ("balanced",)
    from_budget: int | None = None  # None: the largest of the grid's
    seeds: tuple[int, ...] = (0, 1, 2)
    num_steps: int = Field(100, ge=1)
    batch_size: int = Field(32, ge=1)
    learning_rate: float = Field(5e-4, gt=0)
    num_images: int = Field(500, ge=1)


class StudyTraining(ConfigModel):
    """What all runs of the grid share."""

    batch_size: int = Field(32, ge=1)
    learning_rate: float = Field(2e-3, gt=0)
    learning_rates: dict[str, float] = Field({})  # of single sizes, in place of the one above
    gate_rate_factor: float = Field(1.0, gt=0)
    cross_attention_rate_factor: float = Field(1.0, gt=0)
    betas: tuple[float, float] = (0.9, 0.999)
    weight_decay: float = Field(0.01, ge=0)
    dropout: float | None = Field(0.1, ge=0, lt=1)
    schedule: ScheduleConfig = ScheduleConfig(kind="wsd", warmup_steps=50)
    policy: str = "pretraining"
    policies: dict[str, str] = Field({})  # of single sizes, in place of the one above
    weights: str | dict[str, float] = "uniform"  # of the mixture
    prefix_probability: float = Field(0.0, ge=0, le=1)
    source_mask_probability: float = Field(0.3, ge=0, lt=1)
    max_prompt_tokens: int = Field(128, ge=2)
    max_target_tokens: int = Field(128, ge=2)
    checkpoint_every_steps: int = resource(200, ge=1)


class StudyEvaluation(ConfigModel):
    """Losses of every run; captions of every run in few variants, of the largest budgets in all of them."""

    loss_samples: int = Field(200, ge=1)  # of each pair
    num_captions: int = Field(100, ge=0)  # pictures of the eval split, each captioned in every language
    num_holdout_captions: int = Field(50, ge=0)  # of the compositional hold-out; largest budgets only
    variants: tuple[Variant, ...] = ("plain", "prefix")  # of every run
    final_variants: tuple[Variant, ...] = VARIANTS  # of a run's largest budget, and of controls and fine-tuning
    style: Style = Style.SHORT
    num_beams: int = Field(1, ge=1)
    max_new_tokens: int = Field(48, ge=1)
    batch_size: int = resource(128, ge=1)


class StudyReport(ConfigModel):
    num_pictures: int = Field(8, ge=0)  # of the gallery
    gallery_size: str | None = None  # whose captions the gallery shows; None: the largest run of the grid


class StudyConfig(ConfigModel):
    name: str = "study"
    output: Path = resource(Path("studies/study"))
    world: WorldConfig = WorldConfig()
    base: BaseConfig = BaseConfig()
    grid: tuple[GridBlock, ...]
    finetune: tuple[FinetuneBlock, ...] = ()
    training: StudyTraining = StudyTraining()
    evaluation: StudyEvaluation = StudyEvaluation()
    report: StudyReport = StudyReport()
    num_workers: int | None = resource(None, ge=1)  # processes of one thread each; None: one a core

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        for bases in [block.bases for block in self.grid] + [block.bases for block in self.finetune]:
            for base in bases:
                if base not in self.base.variants:
                    raise ValueError(f"unknown base '{base}'; base.variants has {', '.join(self.base.variants)}")
        trained = {
            (size, base, seed, budget)
            for block in self.grid
            if block.kind == "main"
            for size, base, seed, budget in product(block.sizes, block.bases, block.seeds, (*block.budgets, None))
        }
        for tuned in self.finetune:
            for size, base, seed in product(tuned.sizes, tuned.bases, tuned.seeds):
                if (size, base, seed, tuned.from_budget) not in trained:
                    budget = "" if tuned.from_budget is None else f" and budget {tuned.from_budget}"
                    raise ValueError(
                        f"finetune: no main run of size {size}, base {base}, seed {seed}{budget} in the grid"
                    )
        return self
