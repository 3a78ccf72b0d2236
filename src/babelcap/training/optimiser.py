"""AdamW over what trains. Matrices decay; biases, norms, gates and embeddings of positions do not."""

import torch
from torch import nn

from babelcap.training.config import OptimiserConfig


def decay_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Two groups in the order of the model's own parameters; a tied parameter is listed once."""
    trained = [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]
    decayed = [parameter for name, parameter in trained if _decays(name, parameter)]
    others = [parameter for name, parameter in trained if not _decays(name, parameter)]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return [group for group in groups if group["params"]]


def _decays(name: str, parameter: nn.Parameter) -> bool:
    return parameter.ndim >= 2 and "embed_positions" not in name


def make_optimiser(model: nn.Module, config: OptimiserConfig, device: torch.device) -> torch.optim.AdamW:
    return torch.optim.AdamW(
        decay_groups(model, config.weight_decay),
        lr=config.learning_rate,
        betas=config.betas,
        eps=config.epsilon,
        fused=True,
    )


def set_learning_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate
