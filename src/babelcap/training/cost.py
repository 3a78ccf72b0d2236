"""What a run will cost, told before it is started: steps, samples, tokens, compute and memory. Nothing is loaded."""

import re
from pathlib import Path
from typing import Any

from babelcap.errors import UserError
from babelcap.models.network.captioner import Captioner
from babelcap.models.sizing.flops import activation_bytes, forward_macs, meta_captioner
from babelcap.models.sizing.freezing import apply_policy
from babelcap.models.sizing.info import read_size_or_folder
from babelcap.models.sizing.sizes import SIZES
from babelcap.records import compute_macs
from babelcap.training.config import TrainConfig
from babelcap.training.parallel import num_replicas
from babelcap.training.schedule import num_trained_steps, plan_legs


def run_cost(config: TrainConfig, num_processes: int, size: str | None = None) -> dict[str, Any]:
    """`size` names the model's dimensions where its folder is not there yet and its path does not say them."""
    if size is None and not Path(config.model).exists() and config.model not in SIZES:
        size = named_size(config.model)
        if size is None:
            raise UserError(f"model: {config.model}: no such folder; {how_to_make(config.model)}, or plan with --size")
    model_config = read_size_or_folder(size or config.model)
    model = meta_captioner(model_config)
    apply_policy(model, config.policy)
    image_size_px = config.data.image_size_px
    P = sum(parameter.numel() for parameter in model.parameters())
    Pt = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    F = forward_macs(model, image_size_px)["total"]
    legs = plan_legs(config.budgets, config.schedule)
    num_steps = num_trained_steps(legs)
    num_samples = num_steps * config.batch_size
    return {
        "name": config.name,
        "size": size,  # where one stood in for the model's folder
        "P": P,
        "Pt": Pt,
        "legs": [leg._asdict() for leg in legs],
        "num_steps": num_steps,
        "num_samples": num_samples,
        "max_target_tokens": num_samples * config.data.max_target_tokens,
        "C_macs": {str(budget): compute_macs(budget * config.batch_size, F, P, Pt) for budget in config.budgets},
        "training_flops": 2 * num_samples * F * (2 + Pt / P),
        "num_processes": num_processes,
        "memory_bytes_per_process": _memory(config, model, P, Pt, num_processes),
    }


def named_size(path: str) -> str | None:
    """The size that a path names: 0.4B of models/0.4B and of runs/pretrain-0.4B/budget-010000/model."""
    found = [name for name in SIZES if re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", path)]
    return max(found, key=len, default=None)


def how_to_make(model: str) -> str:
    """Which command makes a model's folder that is not there."""
    if run := re.match(r"(.+)/budget-\d+/model/?$", model):
        return f"the training whose output is {run[1]} makes it (`babelcap train`)"
    size = named_size(model) or "SIZE"
    return f"`babelcap model prepare {size} --florence ... --gemma ... -o {model}` makes it"


def _memory(config: TrainConfig, model: Captioner, P: int, Pt: int, num_processes: int) -> dict[str, int]:
    """Weights, gradients and AdamW's two moments, divided by the shards; activations of one micro-batch."""
    if num_processes % num_replicas(config.parallel, num_processes):
        raise UserError(f"parallel.replicas {config.parallel.replicas} does not divide {num_processes} processes")
    shards = num_processes // num_replicas(config.parallel, num_processes)
    of_sample = activation_bytes(model, config.data.image_size_px)
    half = config.parallel.precision != "fp32"
    parts = {
        "weights": 4 * P // shards,
        "gradients": 4 * Pt // shards,
        "optimiser": (4 if config.optimiser.moments == "bfloat16" else 8) * Pt // shards,
        "activations": of_sample * config.parallel.micro_batch_size // (2 if half else 1),
    }
    if config.parallel.activation_checkpointing:
        # Only what enters each layer is kept; one layer at a time is computed again.
        num_layers = len(model.encoder.text_encoder.layers) + len(model.decoder.layers)
        parts["activations"] //= max(1, num_layers // 2)
    return parts | {"total": sum(parts.values())}
