"""The loss of an answer under an encoder-decoder: of its tokens and its end, given what generation begins with."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from babelcap.data.feed.batches import IGNORED_LABEL, pad
from babelcap.evaluation.systems.loading import Loaded
from babelcap.evaluation.systems.settings import Settings


def generated_texts(loaded: Loaded, inputs: Mapping[str, Any], settings: Settings, **forced: int) -> list[str]:
    with torch.inference_mode():
        ids = loaded.model.generate(
            **inputs,
            max_new_tokens=settings.max_new_tokens,
            num_beams=settings.num_beams,
            do_sample=False,
            **forced,
        )
    return list(tokenizer_of(loaded).batch_decode(ids, skip_special_tokens=True))


def tokenizer_of(loaded: Loaded) -> Any:
    """A model of texts alone has its tokenizer for a processor."""
    return getattr(loaded.processor, "tokenizer", loaded.processor)


def answer_losses(
    model: Any, inputs: Mapping[str, Any], targets: Sequence[Sequence[int]], num_given: int
) -> list[list[float]]:
    """Nats of each target token but the first `num_given`, which generation is forced to begin with."""
    labels = pad(targets, IGNORED_LABEL).to(model.device)
    with torch.inference_mode():
        logits = model(**inputs, labels=labels).logits.float()
    losses = torch.nn.functional.cross_entropy(
        logits.transpose(1, 2), labels, reduction="none", ignore_index=IGNORED_LABEL
    ).cpu()
    return [row[num_given : len(ids)].tolist() for row, ids in zip(losses, targets, strict=True)]
