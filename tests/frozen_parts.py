"""Tiny parts as transformers saves them: Gemma-3, two vision models and a tokenizer that both sides read with."""

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    PreTrainedTokenizerFast,
    ResNetConfig,
    ResNetModel,
    ViTConfig,
    ViTModel,
)

from babelcap.coverage import Style, caption_prompt
from babelcap.languages import LANGUAGES

SPECIALS = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"}
TINY_GEMMA = {
    "vocab_size": 128,
    "hidden_size": 32,
    "num_hidden_layers": 4,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "intermediate_size": 64,
    "query_pre_attn_scalar": 16,
    "sliding_window": 8,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "eos_token_id": 1,
    "bos_token_id": 2,
    "initializer_range": 0.2,
}


def make_tokenizer() -> PreTrainedTokenizerFast:
    prompts = " ".join(caption_prompt(language, style) for language in LANGUAGES for style in Style)
    prefixes = " ".join(language.prefix for language in LANGUAGES)
    words = sorted({*prompts.split(), *prefixes.split()})
    vocabulary = {word: number for number, word in enumerate([*SPECIALS.values(), *words, "cat", "dog", "Katze"])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **SPECIALS)


def make_gemma(folder: Path) -> Path:
    torch.manual_seed(0)
    model = Gemma3ForCausalLM(Gemma3TextConfig(**TINY_GEMMA))
    with torch.no_grad():  # norms that do something
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.normal_(0, 0.3)
    model.save_pretrained(folder)
    return folder


def make_backbones(folder: Path) -> dict[str, Path]:
    """One of patches, with a class token, and one of convolutions, with batch norms."""
    torch.manual_seed(1)
    patches = ViTConfig(
        hidden_size=12, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, image_size=32, patch_size=8
    )
    ViTModel(patches).save_pretrained(folder / "vit")
    stages = ResNetConfig(embedding_size=8, hidden_sizes=[8, 20], depths=[1, 1], layer_type="basic")
    ResNetModel(stages).save_pretrained(folder / "resnet")
    return {"vit": folder / "vit", "resnet": folder / "resnet"}
