"""Checkpoints to resume from: torch's distributed checkpoint of what trains and of the optimiser, plus `progress.json`.

Written beside its place and moved there when all ranks are done, so a checkpoint is whole or absent; a run that is
killed or finds the disk full keeps its previous one. Frozen weights are not stored: they are those of the model the run
began with, whose hash is checked. Random numbers need no state: each is drawn from (seed, step, micro-batch).
Loading reshards: the number of processes may have changed.
"""

import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from babelcap.errors import UserError
from babelcap.storage import read_json, write_json
from babelcap.training.parallel import World

PROGRESS = "progress.json"


def checkpoint_name(step: int) -> str:
    return f"step-{step:08d}"


def list_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """The whole ones, oldest first."""
    found = [path for path in folder.glob("step-*") if (path / PROGRESS).is_file()]
    return sorted((int(path.name.removeprefix("step-")), path) for path in found)


def save_checkpoint(
    folder: Path, step: int, model: nn.Module, optimiser: torch.optim.Optimizer, progress: dict[str, Any], world: World
) -> Path:
    place, partial = folder / checkpoint_name(step), folder / f".{checkpoint_name(step)}.partial"
    if world.is_first:
        shutil.rmtree(partial, ignore_errors=True)
        partial.mkdir(parents=True)
    world.wait()
    try:
        with _alone_on_purpose():
            writer = dcp.FileSystemWriter(partial, sync_files=True)
            dcp.save(_state(model, optimiser), storage_writer=writer, no_dist=world.size == 1)
        if world.is_first:
            write_json(partial / PROGRESS, progress | {"step": step})
            shutil.rmtree(place, ignore_errors=True)
            partial.rename(place)
        world.wait()
    except (OSError, CheckpointException) as error:
        if world.is_first:
            shutil.rmtree(partial, ignore_errors=True)
        kept = list_checkpoints(folder)
        last = f"the last whole one is {kept[-1][1]}" if kept else "there is no earlier one"
        reason = str(error).strip().splitlines()[-1]
        raise UserError(f"step {step}: the checkpoint could not be written ({reason}); {last}") from error
    return place


def load_checkpoint(
    place: Path, model: nn.Module, optimiser: torch.optim.Optimizer, expected: dict[str, str], world: World
) -> dict[str, Any]:
    """Puts the state into model and optimiser and returns the progress. `expected` are hashes that must agree."""
    progress = read_json(place / PROGRESS)
    for name, value in expected.items():
        if progress.get(name) != value:
            raise UserError(
                f"{place} is a checkpoint of another {name.removesuffix('_hash')} ({progress.get(name)}, "
                f"this is {value}); choose another output or remove it"
            )
    state = _state(model, optimiser)
    with _alone_on_purpose():
        dcp.load(state, storage_reader=dcp.FileSystemReader(place), no_dist=world.size == 1)
    options = StateDictOptions(ignore_frozen_params=True, strict=False)
    set_model_state_dict(model, state["model"], options=options)
    set_optimizer_state_dict(model, optimiser, state["optimiser"], options=options)
    return progress


def _state(model: nn.Module, optimiser: torch.optim.Optimizer) -> dict[str, Any]:
    options = StateDictOptions(ignore_frozen_params=True)
    return {
        "model": get_model_state_dict(model, options=options),
        "optimiser": get_optimizer_state_dict(model, optimiser, options=options),
    }


@contextmanager
def _alone_on_purpose() -> Iterator[None]:
    """torch warns where one process writes a distributed checkpoint; here that is meant."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled, unavailable or uninitialized")
        yield


def remove_old(folder: Path, keep: int, kept_for_branches: set[int]) -> None:
    """Leaves the newest `keep` and those that branches start from."""
    for step, path in list_checkpoints(folder)[:-keep]:
        if step not in kept_for_branches:
            shutil.rmtree(path)


def full_state(model: nn.Module) -> dict[str, torch.Tensor]:
    """All weights, gathered to the first process's memory; empty on the others."""
    state: dict[str, Any] = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    return state
