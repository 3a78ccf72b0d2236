"""What a training run is: the model, the data, the budgets, the optimiser, and how it is spread over processes.

Fields made by `resource` change how a run is computed, not what; they are no part of its hash.
"""

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from babelcap.config import ConfigModel, PlainName, resource
from babelcap.coverage import Coverage
from babelcap.data.feed.batches import BatchConfig
from babelcap.data.feed.mixture import MixtureConfig
from babelcap.jobs.slurm import ClusterConfig
from babelcap.measures import TRAIN

MAX_PROCESSES = 1024  # of one machine: more is a slip of the finger


class DataConfig(BatchConfig):
    """How a batch is read (`BatchConfig`), and from where."""

    corpus: Path
    split: str = TRAIN
    exchange_images: str | None = None  # a task whose annotations get other images: a control (feed/exchange.py)
    mixture: MixtureConfig = MixtureConfig()
    image_features: Literal["compute", "cache"] = resource("compute")  # "cache": the frozen tower runs once per image
    num_workers: int = resource(2, ge=0, le=MAX_PROCESSES)


class OptimiserConfig(ConfigModel):
    learning_rate: float = Field(1e-4, gt=0)
    gate_rate_factor: float = Field(1.0, gt=0)  # of the learning rate, for the gates of a Gemma decoder
    cross_attention_rate_factor: float = Field(1.0, gt=0)  # for the rest of the cross-attention
    weight_decay: float = Field(0.01, ge=0)
    betas: tuple[Annotated[float, Field(ge=0, lt=1)], Annotated[float, Field(ge=0, lt=1)]] = (0.9, 0.999)
    epsilon: float = Field(1e-8, gt=0)
    max_gradient_norm: float = Field(1.0, gt=0)
    # bfloat16: half of the memory of AdamW's moments (small_moments.py); runs in float32 keep their hashes
    moments: Literal["float32", "bfloat16"] = Field("float32", exclude_if=lambda value: value == "float32")


class ScheduleConfig(ConfigModel):
    """cosine: every budget is a run of its own. wsd: warm-up, stable, decay; budgets branch off one trunk."""

    kind: Literal["cosine", "wsd"] = "cosine"
    warmup_steps: int = Field(100, ge=0)
    decay_share: float = Field(0.2, gt=0, le=1)  # wsd: the last part of a budget, in which the rate falls
    final_share: float = Field(0.0, ge=0, le=1)  # of the learning rate, at the end


class StoppingConfig(ConfigModel):
    """Budgets are trained in turn, and longer ones left out once the loss of held-out captions stops to fall.

    Only captions in languages that are trained on count: what is asked of the others must not decide.
    """

    split: str  # of the corpus; nothing of it is trained on
    num_samples: int | None = Field(None, ge=1)  # of each pair; by default all
    patience: int = Field(1, ge=1)  # so many budgets in a row may be no better than the best before them


class ParallelConfig(ConfigModel):
    micro_batch_size: int = resource(32, ge=1)  # samples of one forward pass on one rank
    replicas: int | Literal["all"] = resource(1)  # 1: sharded over all ranks; "all": replicated; between: hybrid
    precision: Literal["auto", "fp32", "bf16"] = resource("auto")  # auto: bf16 autocast on GPUs, fp32 elsewhere
    activation_checkpointing: bool = resource(False)
    packed: bool = resource(False)  # no padding between targets; only a Gemma decoder can (models/network/packed.py)
    num_threads: int | None = resource(None, ge=1, le=MAX_PROCESSES)

    @field_validator("replicas")
    @classmethod
    def _at_least_one(cls, replicas: int | str) -> int | str:
        if isinstance(replicas, int) and replicas < 1:
            raise ValueError('replicas is a number of at least 1, or "all"')
        return replicas


class CheckpointConfig(ConfigModel):
    every_steps: int = resource(500, ge=1)
    keep: int = resource(2, ge=1)


class LogConfig(ConfigModel):
    every_steps: int = resource(10, ge=1)  # of the lines on the terminal; metrics.jsonl has every step
    trackers: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = resource(("tensorboard",))
    peak_tflops: float | None = resource(None, gt=0)  # of one device, to tell the share that is reached


class TrainConfig(ConfigModel):
    name: PlainName = resource("run")
    model: str  # folder or hub id of the captioner to start from
    output: Path = resource(Path("runs/run"))
    policy: str = "pretraining"  # what trains: see `babelcap model info --policy`
    head: Literal["whole", "corpus"] = "whole"  # corpus: the loss is over the corpus' tokens alone (head.py)
    budgets: tuple[int, ...] = (500,)  # optimiser steps
    batch_size: int = Field(1024, ge=1)  # samples of one step, over all ranks
    dropout: float | None = Field(None, ge=0, lt=1)  # of states; None: as the model's configuration says
    seed: int = Field(0, ge=0)
    export: bool = resource(True)
    coverage: Coverage = Coverage()  # where none is given, a run takes its corpus'
    data: DataConfig
    optimiser: OptimiserConfig = OptimiserConfig()
    schedule: ScheduleConfig = ScheduleConfig()
    stopping: StoppingConfig | None = Field(None, exclude_if=lambda value: value is None)
    parallel: ParallelConfig = ParallelConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()
    log: LogConfig = LogConfig()
    cluster: ClusterConfig = resource(ClusterConfig())

    @model_validator(mode="after")
    def _budgets_ascend(self) -> Self:
        if not self.budgets or min(self.budgets) < 1 or list(self.budgets) != sorted(set(self.budgets)):
            raise ValueError(f"budgets must be ascending numbers of steps, found {list(self.budgets)}")
        return self
