"""Many processes as one: joining them, sharding a model over them from outside (FSDP2), and adding up over them.

The model knows nothing of this. With one process nothing here does anything.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor

from babelcap.errors import UserError
from babelcap.jobs.slurm import distributed_environment
from babelcap.training.config import ParallelConfig

T = TypeVar("T")
PLACES = {"RANK": 0, "WORLD_SIZE": 1, "LOCAL_RANK": 0}  # what a launcher sets, and what holds without one


@dataclass(frozen=True)
class World:
    """This process among all."""

    rank: int
    size: int
    device: torch.device

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def add_up(self, values: torch.Tensor) -> torch.Tensor:
        """The sum over all processes, the same in each."""
        if self.size > 1:
            values = values.to(self.device)
            dist.all_reduce(values)
        return values.cpu()

    def wait(self) -> None:
        if self.size > 1:
            dist.barrier()

    def tell(self, value: T) -> T:
        """The first process's value, in all of them."""
        if self.size == 1:
            return value
        box = [value]
        dist.broadcast_object_list(box, src=0)
        return box[0]

    def gather(self, value: T) -> list[T]:
        """Every process's value, in all of them."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values


@contextmanager
def join_world() -> Iterator[World]:
    """The process group of torchrun or Slurm; a world of one where neither started this process."""
    environment = distributed_environment(os.environ)
    rank, size, local_rank = (_number(environment, name, low) for name, low in PLACES.items())
    device = torch.device("cpu")
    if torch.cuda.is_available():
        if local_rank >= torch.cuda.device_count():
            raise UserError(
                f"LOCAL_RANK is {local_rank}, but this machine has {torch.cuda.device_count()} GPUs; "
                "start as many processes on each node as it has GPUs"
            )
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
    if size == 1:
        yield World(0, 1, device)
        return
    os.environ.update(environment)
    backend = "nccl" if device.type == "cuda" else "gloo"
    dist.init_process_group(backend, timeout=timedelta(minutes=30))
    try:
        yield World(rank, size, device)
    finally:
        dist.destroy_process_group()


def _number(environment: Mapping[str, str], name: str, lowest: int) -> int:
    text = environment.get(name, str(lowest))
    if not text.isdecimal() or int(text) < lowest:
        raise UserError(f"the environment's {name} is '{text}', not a number of at least {lowest}; unset it")
    return int(text)


def num_replicas(config: ParallelConfig, size: int) -> int:
    return size if config.replicas == "all" else config.replicas


def check_replicas(config: ParallelConfig, size: int) -> None:
    if size % num_replicas(config, size):
        raise UserError(f"parallel.replicas is {config.replicas}, which does not divide the {size} processes")


def uses_bf16(config: ParallelConfig, device: torch.device) -> bool:
    return config.precision == "bf16" or (config.precision == "auto" and device.type == "cuda")


def shard(model: nn.Module, layers: list[nn.Module], config: ParallelConfig, world: World) -> None:
    """Shards each layer and then the rest in place. Tied parameters lie in the rest, together, so they stay tied."""
    if world.size == 1:
        model.to(world.device)
        return
    replicas = num_replicas(config, world.size)
    shape = (replicas, world.size // replicas)
    mesh = init_device_mesh(world.device.type, shape, mesh_dim_names=("replicate", "shard"))
    if replicas == 1:
        mesh = mesh["shard"]
    policy = MixedPrecisionPolicy()
    if uses_bf16(config, world.device):
        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for layer in layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=False)


def set_gradient_sync(model: nn.Module, wanted: bool) -> None:
    """Only the last micro-batch of a step exchanges gradients."""
    if isinstance(model, FSDPModule):
        model.set_requires_gradient_sync(wanted)


def clip_gradients(model: nn.Module, max_norm: float) -> float:
    """Clips to the norm over all processes' shards and returns what it was. What is short enough is not touched."""
    parameters = [parameter for parameter in model.parameters() if parameter.grad is not None]
    norm = nn.utils.get_total_norm([parameter.grad for parameter in parameters if parameter.grad is not None])
    if isinstance(norm, DTensor):
        norm = norm.full_tensor()
    found = float(norm)
    if not found < max_norm:  # one that is not a number too: the step is refused
        nn.utils.clip_grads_with_norm_(parameters, max_norm, norm)
    return found
