"""What image tokens depend on in a captioner: settings and weights of its tower, by which kept tokens are named."""

import hashlib
from typing import Any

import torch
from torch import nn

# Of a tower's settings: what says nothing about its results, as its weights' type is known from them.
NO_MATTER = {"dtype", "torch_dtype", "transformers_version"}


def tower_settings(encoder: Any) -> list[Any]:
    """Settings without those that say nothing about results."""
    return [_that_matter(value) for value in encoder.config.tower_settings]


def _that_matter(settings: Any) -> Any:
    if isinstance(settings, dict):
        return {name: value for name, value in settings.items() if name not in NO_MATTER}
    return settings


def weights_hash(modules: list[nn.Module]) -> str:
    digest = hashlib.sha256()
    for module in modules:
        for name, tensor in sorted(module.state_dict().items()):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()
