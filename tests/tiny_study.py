"""The settings of a study of seconds: one small model, few steps, with its controls and fine-tuning."""

import copy
from pathlib import Path
from typing import Any

TINY: dict[str, Any] = {
    "name": "tiny",
    "num_workers": 2,
    "world": {"num_images": 60, "num_eval_images": 8, "num_holdout_images": 4, "num_text_lines": 10},
    "base": {
        "num_pictures": 20,
        "tower_steps": 1,
        "tower_batch_size": 4,
        "caption_steps": 1,
        "caption_batch_size": 4,
        "language_steps": 1,
        "language_batch_size": 4,
        "num_decoder_tokens": 1500,
        "use_shipped": False,
    },
    "grid": [
        {"sizes": ["micro-gemma-s"], "budgets": [3, 6], "seeds": [0]},
        {"kind": "no-translation", "sizes": ["micro-gemma-s"], "budgets": [6], "seeds": [0]},
        {"kind": "unfit-translation", "sizes": ["micro-gemma-s"], "budgets": [6], "seeds": [0]},
    ],
    "finetune": [
        {
            "sizes": ["micro-gemma-s"],
            "seeds": [0],
            "num_steps": 3,
            "num_images": 20,
            "training": {"batch_size": 4, "optimiser": {"learning_rate": 5e-4}, "schedule": {"kind": "cosine"}},
        }
    ],
    "training": {
        "batch_size": 8,
        "dropout": 0.1,
        "optimiser": {"learning_rate": 2e-3},
        "schedule": {"kind": "wsd", "warmup_steps": 2},
        "checkpoint": {"every_steps": 2, "keep": 1},
        "parallel": {"micro_batch_size": 4, "num_threads": 1},
        "log": {"trackers": []},
        "data": {
            "max_prompt_tokens": 64,
            "max_target_tokens": 48,
            "source_mask_probability": 0.3,
            "image_features": "cache",
            "num_workers": 0,
        },
    },
    "evaluation": {
        "loss_samples": 4,
        "num_captions": 3,
        "num_holdout_captions": 2,
        "num_translated": 2,
        "num_pairs": 2,
        "max_new_tokens": 6,
        "final_variants": ["plain", "prefix", "prefix+shortlist"],
    },
    "report": {"num_pictures": 2},
}


def tiny_values(output: Path, **changes: Any) -> dict[str, Any]:
    values = copy.deepcopy(TINY) | {"output": str(output)}
    for name, value in changes.items():
        *blocks, key = name.split("__")
        table = values
        for block in blocks:
            table = table.setdefault(block, {})
        table[key] = value
    return values
