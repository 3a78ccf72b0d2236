"""Checkpoints to resume from: what trains and the optimiser as safetensors, `progress.json`, and a manifest.

    step-00000400/shard-00001-....safetensors   a rank's part of every tensor; its header says which part
    step-00000400/progress.json  manifest.json

Written beside its place and moved there when all ranks are done, so a checkpoint is whole or absent; a run that is
killed or finds the disk full keeps its previous one. What is damaged later is found by its checksums and set aside.
Frozen weights are not stored: they are those of the model the run began with, whose hash is checked. Random numbers
need no state: each is drawn from (seed, step, micro-batch). Loading reshards: the number of processes may have changed.
The format is torch's distributed checkpoint in its safetensors form: tensors and JSON, nothing that could run code.
"""

import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)

from babelcap.errors import UserError
from babelcap.storage import (
    check_manifest,
    describe_file,
    has_manifest,
    list_files,
    read_json_object,
    write_json,
    write_manifest,
)
from babelcap.training.parallel import World
from babelcap.training.progress import say

PROGRESS = "progress.json"
NAME = re.compile(r"step-(\d{8,})")
DAMAGED = "damaged-"  # in front of the name of one that was set aside
FILE_BYTES = 2 * 2**30  # a file's tensors are copied once in memory when they are written


def checkpoint_name(step: int) -> str:
    return f"step-{step:08d}"


def list_checkpoints(folder: Path) -> list[tuple[int, Path]]:
    """Those that were written to their end, oldest first. Whether one still is as it was, `newest_whole` finds out."""
    paths = list(folder.iterdir()) if folder.is_dir() else []
    found = [(match, path) for path in paths if (match := NAME.fullmatch(path.name)) and path.is_dir()]
    return sorted((int(match[1]), path) for match, path in found)


def newest_whole(folder: Path, world: World) -> Path | None:
    """The newest checkpoint whose files are as they were written. Damaged ones are set aside, in a line each."""
    places = [path for _, path in world.tell(list_checkpoints(folder))]
    damaged = 0
    for place in reversed(places):
        problem = find_damage(place, world)
        if problem is None:
            if damaged and world.is_first:
                say(f"going on from {place}, the newest checkpoint that is whole")
            return place
        damaged += 1
        if world.is_first:
            aside = place.with_name(DAMAGED + place.name)
            shutil.rmtree(aside, ignore_errors=True)
            place.rename(aside)
            say(f"{problem}; the checkpoint is set aside as {aside}")
    if damaged and world.is_first:
        say(f"no checkpoint in {folder} is whole")
    return None


def find_damage(place: Path, world: World) -> str | None:
    """What is wrong with a checkpoint, the same in every process; each reads its share of the files."""
    found = world.gather(_damage_in_share(place, world.rank, world.size))
    return next((problem for problem in found if problem is not None), None)


def _damage_in_share(place: Path, rank: int, size: int) -> str | None:
    if not has_manifest(place):
        return f"{place} has no manifest"
    try:
        covered = set(read_json_object(place / "manifest.json").get("files", {}))
        problems = check_manifest(place, full=True, share=(rank, size))
    except (UserError, OSError) as error:
        return str(error)
    surplus = sorted(set(list_files(place)) ^ covered)
    return next(iter(problems), f"{place / surplus[0]} is not what its manifest lists" if surplus else None)


def save_checkpoint(
    folder: Path, model: nn.Module, optimiser: torch.optim.Optimizer, progress: dict[str, Any], world: World
) -> Path:
    """`progress` has the step, and all that `load_checkpoint` shall give back or compare."""
    step = progress["step"]
    place, partial = folder / checkpoint_name(step), folder / f".{checkpoint_name(step)}.partial"
    try:
        if world.is_first:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir(parents=True)
        world.wait()
        state = _nested(*_states(model, optimiser))
        writer = dcp.HuggingFaceStorageWriter(str(partial), _files_of(state), save_distributed=True)
        with _alone_on_purpose():
            dcp.save(state, storage_writer=writer, no_dist=world.size == 1)
        own = {path.name: describe_file(path) for path in partial.glob(f"shard-{world.rank + 1:05d}-*")}
        described = {name: value for part in world.gather(own) for name, value in part.items()}
        if world.is_first:
            write_json(partial / PROGRESS, progress)
            write_manifest(partial, described=described)
            shutil.rmtree(place, ignore_errors=True)
            partial.rename(place)
        world.wait()
    except (OSError, CheckpointException) as error:
        if world.is_first:
            shutil.rmtree(partial, ignore_errors=True)
        kept = list_checkpoints(folder)
        last = f"the last one is {kept[-1][1]}" if kept else "there is no earlier one"
        reason = str(error).strip().splitlines()[-1]
        raise UserError(f"step {step}: the checkpoint could not be written ({reason}); {last}") from error
    return place


def load_checkpoint(
    place: Path, model: nn.Module, optimiser: torch.optim.Optimizer, expected: dict[str, str], world: World
) -> dict[str, Any]:
    """Puts the state into model and optimiser and returns the progress. `expected` are hashes that must agree."""
    progress = read_json_object(place / PROGRESS)
    for name, value in expected.items():
        if progress.get(name) != value:
            raise UserError(
                f"{place} is a checkpoint of another {name.removesuffix('_hash')} ({progress.get(name)}, "
                f"this is {value}); choose another output or remove it"
            )
    options = StateDictOptions(ignore_frozen_params=True, strict=False)
    weights, moments = _states(model, optimiser)
    state = _nested(weights, moments)
    try:
        with _alone_on_purpose():
            dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(str(place)), no_dist=world.size == 1)
    except (OSError, CheckpointException) as error:
        reason = str(error).strip().splitlines()[-1]
        raise UserError(f"{place} cannot be loaded ({reason}); remove it to go on from the one before it") from error
    set_model_state_dict(model, {**state["model"]}, options=options)
    moments["state"] = {
        name: {key: state["optimiser"][f"{name}.{key}"].reshape(tensor.shape) for key, tensor in values.items()}
        for name, values in moments["state"].items()
    }
    set_optimizer_state_dict(model, optimiser, moments, options=options)
    return progress


def _states(model: nn.Module, optimiser: torch.optim.Optimizer) -> tuple[dict[str, Any], dict[str, Any]]:
    """What trains, a tied parameter once; and the optimiser's state, whose settings are the configuration's."""
    options = StateDictOptions(ignore_frozen_params=True)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    weights = {name: value for name, value in get_model_state_dict(model, options=options).items() if name in trained}
    return weights, get_optimizer_state_dict(model, optimiser, options=options)


def _nested(weights: dict[str, Any], moments: dict[str, Any]) -> dict[str, dict[str, Tensor]]:
    """The tensors under the names that they have in the files: model.NAME and optimiser.NAME.exp_avg."""
    flat = {f"{name}.{key}": tensor for name, values in moments["state"].items() for key, tensor in values.items()}
    # A number of no dimension cannot be read in slices.
    flat = {name: tensor.reshape(1) if tensor.ndim == 0 else tensor for name, tensor in flat.items()}
    return {"model": weights, "optimiser": flat}


def _files_of(state: dict[str, dict[str, Tensor]]) -> dict[str, int]:
    """Which file of a rank each tensor goes to, counted from 1: full ones follow one another."""
    places, number, size = {}, 1, 0
    for part, tensors in state.items():
        for name, tensor in tensors.items():
            if size >= FILE_BYTES:
                number, size = number + 1, 0
            size += tensor.numel() * tensor.element_size()
            places[f"{part}.{name}"] = number
    return places


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


def remove_all(folder: Path) -> None:
    """Of a leg that is done. The folder may be a link to a larger disk; what others put there stays."""
    for path in list(folder.iterdir()) if folder.is_dir() else []:
        name = path.name.removeprefix(DAMAGED).removeprefix(".").removesuffix(".partial")
        if NAME.fullmatch(name) and path.is_dir():
            shutil.rmtree(path)
    with suppress(OSError):
        folder.unlink() if folder.is_symlink() else folder.rmdir()


def full_state(model: nn.Module) -> dict[str, Tensor]:
    """All weights, gathered to the first process's memory; empty on the others."""
    state: dict[str, Any] = get_model_state_dict(
        model, options=StateDictOptions(full_state_dict=True, cpu_offload=True)
    )
    return state
