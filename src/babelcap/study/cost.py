"""What a study's steps cost on GPUs, told without weights, data or a cluster.

GPU-hours = FLOPs / (peak FLOPs of a GPU x the share of it that is reached): both are settings, not measured. A training
has 2 F (2 + Pt / P) FLOPs a sample (`babelcap train --dry-run`), a measure those of one forward pass, 2 F, at most.
Making worlds, bases in small and captioners, and opening corpora, is work for CPUs.
"""

import json
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from babelcap.config import build_config, merge_values
from babelcap.jobs.slurm import ClusterConfig
from babelcap.study.config import StudyConfig
from babelcap.study.graph import Step
from babelcap.training.config import TrainConfig
from babelcap.training.cost import run_cost

TRAININGS, MEASURES = ("train", "finetune"), ("loss", "captions")


class Cost(NamedTuple):
    flops: float
    num_gpus: int
    gpu_hours: float
    memory_gib: float | None  # of each GPU, estimated; of trainings alone

    @property
    def hours(self) -> float:
        return self.gpu_hours / max(1, self.num_gpus)


def cluster_of(config: StudyConfig, kind: str, step: Step | None = None) -> ClusterConfig:
    """What a job of this kind asks Slurm for: a training's is in its own configuration, all others are one task."""
    if step is not None and kind in TRAININGS:
        return build_config(ClusterConfig, step.resources["config"]["cluster"], f"{step.name}: cluster")
    values = merge_values(ClusterConfig, config.cluster.get("default", {}), config.cluster.get(kind, {}))
    return build_config(ClusterConfig, values | {"nodes": 1, "tasks_per_node": 1}, f"cluster.{kind}")


def step_costs(config: StudyConfig, steps: Iterable[Step]) -> dict[str, Cost]:
    """Hash -> cost. A model is counted once for each image size and way of training it, whatever the number of runs."""
    steps = list(steps)
    flops, memory, forward = dict.fromkeys((step.hash for step in steps), 0.0), {}, {}
    for step in steps:
        if step.kind in TRAININGS:
            trained = build_config(TrainConfig, step.resources["config"])
            counted = _of_sample(step.size, _what_counts(trained), cluster_of(config, step.kind, step).num_tasks)
            flops[step.hash] = step.units * counted.training_flops
            memory[step.hash] = counted.memory_gib
            forward[step.size, trained.data.image_size_px] = counted.forward_flops
    for step in steps:
        if step.kind in MEASURES:  # at the image size of a training, always
            flops[step.hash] = step.units * forward[step.size, step.settings["data"]["image_size_px"]]
    return {step.hash: _cost(config, step, flops[step.hash], memory.get(step.hash)) for step in steps}


def _cost(config: StudyConfig, step: Step, flops: float, memory_gib: float | None) -> Cost:
    cluster = cluster_of(config, step.kind, step)
    gpu_hours = flops / (config.peak_tflops * 1e12 * config.reached_share) / 3600
    return Cost(flops, cluster.nodes * cluster.gpus_per_node, gpu_hours, memory_gib)


def _what_counts(config: TrainConfig) -> str:
    """All that FLOPs and memory of one sample depend on."""
    data = {"image_size_px": config.data.image_size_px, "corpus": ""}
    return json.dumps({"policy": config.policy, "data": data, "parallel": config.parallel.model_dump(mode="json")})


class Counted(NamedTuple):
    training_flops: float  # of one sample
    forward_flops: float
    memory_gib: float  # of each process


@lru_cache(maxsize=256)
def _of_sample(size: str, settings: str, num_tasks: int) -> Counted:
    config = build_config(TrainConfig, {"model": size, "budgets": [1], "batch_size": 1} | json.loads(settings))
    cost = run_cost(config, num_tasks, size)
    forward = cost["training_flops"] / (2 + cost["Pt"] / cost["P"])
    return Counted(cost["training_flops"], forward, cost["memory_bytes_per_process"]["total"] / 2**30)
