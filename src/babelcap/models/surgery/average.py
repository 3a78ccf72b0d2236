"""The mean of the weights of captioners that were trained from the same start.

w = w_1 + sum_k share_k (w_k - w_1), so that a weight that is the same in all, such as a frozen one, stays as it is to
the bit. Of trainings that went on from one another, on other mixtures, the mean often does better than either.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from safetensors.torch import save_file
from torch import Tensor

from babelcap.errors import UserError
from babelcap.models.checkpoints.files import CAPTIONER_FILES, WEIGHTS_FILE
from babelcap.models.checkpoints.saving import copy_all_but_weights
from babelcap.models.checkpoints.weights import Checkpoint
from babelcap.storage import atomic_folder, update_manifest

# Of a configuration: what says nothing of the network.
NOT_COMPARED = {"_name_or_path", "dtype", "torch_dtype", "transformers_version"}
MAX_OFF = 1e-6  # of the sum of shares from 1


class Averaged(NamedTuple):
    num_models: int
    num_weights: int
    num_different: int  # weights of the mean that are not those of the first


def average_folders(sources: Sequence[str | Path], output: str | Path, shares: Sequence[float] = ()) -> Averaged:
    """Everything else comes from the first: processor, shortlists, languages, the account of its surgery."""
    from babelcap.models.checkpoints.card import write_card  # with pyarrow's functions, which loading does not need

    parts = _parts(len(sources), shares)
    checkpoints = [Checkpoint(source) for source in sources]
    for other in checkpoints:
        _require_same(checkpoints[0], other)
    first = checkpoints[0]
    weights: dict[str, Tensor] = {}
    num_different = 0
    for name in first.shapes:
        weights[name] = _mean((one.read(name) for one in checkpoints), parts)
        num_different += int((weights[name] != first.read(name)).sum())
    with atomic_folder(output) as target:
        copy_all_but_weights(first.folder, target)
        save_file(weights, target / WEIGHTS_FILE, metadata={"format": "pt"})
        update_manifest(target, CAPTIONER_FILES)
        write_card(target, Path(output).name)
    return Averaged(len(sources), sum(weight.numel() for weight in weights.values()), num_different)


def _parts(num_sources: int, shares: Sequence[float]) -> list[float]:
    if num_sources < 2:
        raise UserError(f"{num_sources} model given; a mean is of two or more")
    if not shares:
        return [1 / num_sources] * num_sources
    if len(shares) != num_sources:
        raise UserError(f"{len(shares)} shares given for {num_sources} models; give one for each, or none")
    if min(shares) < 0 or abs(sum(shares) - 1) > MAX_OFF:
        raise UserError(f"shares are {', '.join(map(str, shares))}; none may be negative, and their sum must be 1")
    return list(shares)


def _mean(weights: Iterator[Tensor], parts: Sequence[float]) -> Tensor:
    first = next(weights)
    start = first.to(torch.float64)
    moved = torch.zeros_like(start)
    for weight, part in zip(weights, parts[1:], strict=True):
        moved.add_(weight.to(torch.float64) - start, alpha=part)
    return (start + moved).to(first.dtype).contiguous()


def _require_same(first: Checkpoint, other: Checkpoint) -> None:
    for one in (first, other):
        if one.is_quantised:
            raise UserError(f"{one.name}: its weights are quantised; average the captioners that they were made of")
    described = [dict(_settings(one.config)) for one in (first, other)]
    names = described[0].keys() | described[1].keys()
    if unequal := sorted(name for name in names if described[0].get(name) != described[1].get(name)):
        raise UserError(f"{other.name}: its configuration differs from that of {first.name} in {', '.join(unequal)}")
    if first.shapes != other.shapes:
        odd = sorted(name for name, shape in first.shapes.items() if other.shapes.get(name) != shape)
        odd += sorted(other.shapes.keys() - first.shapes.keys())
        raise UserError(f"{other.name}: {len(odd)} weights differ in shape from {first.name}, first {odd[0]}")


def _settings(config: Mapping[str, Any], inside: str = "") -> Iterator[tuple[str, Any]]:
    """By name, those of its parts as PART.NAME."""
    for name, value in config.items():
        if name not in NOT_COMPARED:
            yield from _settings(value, f"{inside}{name}.") if isinstance(value, dict) else [(inside + name, value)]
