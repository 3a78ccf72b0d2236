"""AdamW over what trains. Matrices decay; biases, norms, gates and embeddings of positions do not.

Adam moves a weight by about the learning rate a step, whatever its gradient. A gate is one number that starts at 0 and
has to come near 1 before its cross-attention says anything: where steps are few, `gate_rate_factor` lets it.
"""

import re

import torch
from torch import nn

from babelcap.models.sizing.freezing import CROSS_ATTENTION
from babelcap.training.config import OptimiserConfig
from babelcap.training.small_moments import SmallMomentsAdamW

GATE = r"decoder\.layers\.\d+\.encoder_attn_gate"


def parameter_groups(model: nn.Module, config: OptimiserConfig) -> list[dict]:
    """By decay and by factor of the rate, in the order of the model's parameters; a tied one is listed once."""
    groups: dict[tuple[float, float], list[nn.Parameter]] = {}
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:
            decay = config.weight_decay if _decays(name, parameter) else 0.0
            groups.setdefault((decay, _rate_factor(name, config)), []).append(parameter)
    return [
        {"params": parameters, "weight_decay": decay, "rate_factor": factor}
        for (decay, factor), parameters in groups.items()
    ]


def _decays(name: str, parameter: nn.Parameter) -> bool:
    return parameter.ndim >= 2 and "embed_positions" not in name


def _rate_factor(name: str, config: OptimiserConfig) -> float:
    if re.fullmatch(GATE, name):
        return config.gate_rate_factor
    return config.cross_attention_rate_factor if re.fullmatch(CROSS_ATTENTION, name) else 1.0


def make_optimiser(model: nn.Module, config: OptimiserConfig) -> torch.optim.Optimizer:
    groups, rate = parameter_groups(model, config), config.learning_rate
    if config.moments == "bfloat16":
        return SmallMomentsAdamW(groups, lr=rate, betas=config.betas, eps=config.epsilon)
    return torch.optim.AdamW(groups, lr=rate, betas=config.betas, eps=config.epsilon, fused=True)


def set_learning_rate(optimiser: torch.optim.Optimizer, rate: float) -> None:
    for group in optimiser.param_groups:
        group["lr"] = rate * group["rate_factor"]
