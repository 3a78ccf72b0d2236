"""A planted model that prefers one first token, and knows nothing else, decides ambiguity by that token."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForImageTextToText

from babelcap.evaluation.benchmarks import Item
from babelcap.evaluation.metrics.contrastive import contrastive_accuracy
from babelcap.evaluation.systems import SystemOptions, open_system
from babelcap.evaluation.systems.pillow import load_processor

PREFERRED, OTHER = "roter", "blauer"


def plant(source: Path, folder: Path, last_of_prompt: str) -> Path:
    """Layers that add nothing: a token's logits follow from the token before it alone.

    Behind the prompt's last token PREFERRED is likely; behind any other all tokens are equally so.
    """
    model: Any = AutoModelForImageTextToText.from_pretrained(source)
    processor = load_processor(source, model.config.model_type)
    text = model.model.language_model
    with torch.no_grad():
        for layer in text.layers:
            layer.self_attn.o_proj.weight.zero_()
            layer.mlp.down_proj.weight.zero_()
        text.norm.weight.fill_(1)
        embedding = text.embed_tokens.weight
        embedding.zero_()
        embedding[:, 0] = 1
        embedding[processor.tokenizer.convert_tokens_to_ids(last_of_prompt)] = torch.eye(embedding.shape[1])[1]
        model.lm_head.weight.zero_()
        model.lm_head.weight[processor.tokenizer.convert_tokens_to_ids(PREFERRED), 1] = 1
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder


def test_the_first_token_of_an_answer_counts(pixtral: Path, tmp_path: Path, pictures: list[Path]) -> None:
    folder = plant(pixtral, tmp_path / "planted", "[/INST]")
    system = open_system(f"chat:{folder}", SystemOptions(device="cpu"))
    right, wrong = (f"{word} Hund liegt im Gras" for word in (PREFERRED, OTHER))
    items = [
        Item(f"de/{n}", path, "de", "translation", source="the dog", references=(right,), contrast=wrong)
        for n, path in enumerate(pictures)
    ]
    good = dict(zip((i.id for i in items), system.token_losses(items, [right] * 3), strict=True))
    bad = dict(zip((i.id for i in items), system.token_losses(items, [wrong] * 3), strict=True))
    assert {len(row) for row in (*good.values(), *bad.values())} == {5}
    found = contrastive_accuracy(good, bad)
    assert (found.num_right, found.ties) == (3, ())
    # As the published code does it, without the first token, the model cannot tell.
    without = contrastive_accuracy(
        {key: row[1:] for key, row in good.items()}, {key: row[1:] for key, row in bad.items()}
    )
    assert (without.num_right, len(without.ties)) == (0, 3)
