"""The runs of a study: blocks of a grid with trials beside it, fine-tuning, and what single sizes are trained with.

A trial is a run with one thing changed, named as NAME=VALUE (`match=0.5`): in how it is trained, or in the world that
it is trained on. No law takes it; it is measured on the pictures of the study, as all others are.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from babelcap.config import ConfigModel, PlainName
from babelcap.measures import TRAIN
from babelcap.models.sizing.sizes import SIZES

Kind = Literal["main", "no-translation", "unfit-translation"]
TrialName = Annotated[str, Field(pattern=r"^([a-z][a-z_-]*=[A-Za-z0-9.+_-]+)?$", max_length=60)]
# What a study sets in every training configuration: its own settings, the run's place in the grid, the steps before it.
SET_BY_STUDY = (
    "name",
    "model",
    "output",
    "budgets",
    "seed",
    "coverage",
    "data.corpus",
    "data.split",
    "data.exchange_images",
)


def _only_settings(fragment: dict[str, Any]) -> dict[str, Any]:
    if taken := [key for key in SET_BY_STUDY if _holds(fragment, key)]:
        raise ValueError(f"'{taken[0]}' is set by the study itself (by its grid, its corpus or its models); remove it")
    return fragment


def _holds(values: Any, key: str) -> bool:
    first, _, rest = key.partition(".")
    return isinstance(values, dict) and first in values and (not rest or _holds(values[first], rest))


Fragment = Annotated[dict[str, Any], AfterValidator(_only_settings)]


class GridBlock(ConfigModel):
    """A run for each size, base and seed; its budgets are branches of one training where the schedule is wsd."""

    kind: Kind = "main"  # no-translation: captions only; unfit-translation: translations with other pictures
    sizes: tuple[str, ...]  # micro-gemma-s, 0.4B, ... as `babelcap model info` knows them
    bases: tuple[PlainName, ...] = ("balanced",)  # names of base.variants, or of checkpoints
    budgets: tuple[int, ...]  # optimiser steps
    seeds: tuple[int, ...] = (0, 1, 2)
    trial: TrialName = ""  # what is changed in these runs, as match=0.5; by `training` or `world`
    training: Fragment = Field({})  # of a trial: over the study's and the size's
    world: dict[str, Any] = Field({})  # over the study's world. Of a trial: what it is trained on; else a seed alone
    predicted: bool = False  # run last, after `babelcap study predict`; stage=fitting leaves them out

    @property
    def changes(self) -> tuple[dict[str, Any], dict[str, Any]]:
        return self.training, self.world

    @model_validator(mode="after")
    def _trials_are_named(self) -> Self:
        if not self.trial and (self.training or set(self.world) - {"seed"}):
            raise ValueError('training and world change what is tried: name it with trial = "NAME=VALUE"')
        if self.trial and (self.kind != "main" or self.predicted):
            raise ValueError(f"trial {self.trial}: a trial is of kind main and is not predicted")
        return self

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
    """Fine-tuning of grid runs on every pair, on a corpus folder or on a world with pictures of its own."""

    sizes: tuple[str, ...]
    bases: tuple[PlainName, ...] = ("balanced",)
    from_budget: int | None = None  # None: the largest of the grid's
    seeds: tuple[int, ...] = (0, 1, 2)
    num_steps: int = Field(100, ge=1)
    num_images: int | None = Field(None, ge=1)  # of a world of full coverage
    corpus: Path | None = None  # in its place: a folder of full coverage
    split: str = TRAIN  # of that folder
    training: Fragment = Field({})  # over the study's and the size's
    trial: TrialName = ""  # where several are compared: what differs, as tuning_images=200

    @model_validator(mode="after")
    def _one_corpus(self) -> Self:
        if (self.num_images is None) == (self.corpus is None):
            raise ValueError("give num_images (of a world) or corpus (a folder), one of them")
        return self


class SizeSettings(ConfigModel):
    """Settings of one size, over those of all."""

    size: str
    training: Fragment = Field({})
    finetuning: Fragment = Field({})
