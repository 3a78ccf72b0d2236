"""A tiny corpus and tiny captioners of both families, made in seconds, for everything that trains."""

import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from babelcap.coverage import CAPTION, Coverage, Style
from babelcap.data.store.store import CorpusWriter
from babelcap.models.checkpoints.processor import CaptionProcessor
from babelcap.models.network.captioner import Captioner
from babelcap.models.network.configuration import CaptionerConfig
from babelcap.records import Annotation

WORDS = [f"w{number}" for number in range(40)]
PROMPTS = "The target language is German. What does the image describe? Translate the following text:"
PROMPT_WORDS = re.findall(r"\w+|[^\w ]", PROMPTS)
SIZE_PX = 32


def make_tokenizer(specials: list[str], names: dict[str, str]) -> PreTrainedTokenizerFast:
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys([*specials, *WORDS, *PROMPT_WORDS]))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names)


def make_processor() -> CaptionProcessor:
    encoder = make_tokenizer(
        ["<s>", "<pad>", "</s>", "<unk>"],
        {"bos_token": "<s>", "pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"},
    )
    decoder = make_tokenizer(
        ["<pad>", "<eos>", "<bos>", "<unk>"],
        {"bos_token": "<bos>", "pad_token": "<pad>", "eos_token": "<eos>", "unk_token": "<unk>"},
    )
    return CaptionProcessor(encoder_tokenizer=encoder, decoder_tokenizer=decoder, image_size_px=SIZE_PX)


def make_model(kind: str, seed: int = 0) -> Captioner:
    torch.manual_seed(seed)
    width = 16
    text = {
        "vocab_size": 80, "d_model": width, "encoder_layers": 2, "encoder_attention_heads": 2, "encoder_ffn_dim": 32,
        "max_position_embeddings": 160, "dropout": 0.0, "attention_dropout": 0.0, "init_std": 0.1,
    }  # fmt: skip
    vision = {
        "depths": [1, 1], "embed_dim": [8, 16], "num_heads": [2, 2], "num_groups": [2, 2], "patch_size": [7, 3],
        "patch_stride": [4, 2], "patch_padding": [3, 1], "patch_prenorm": [False, True], "window_size": 4,
        "projection_dim": width, "drop_path_rate": 0.0, "max_position_embeddings": 8,
    }  # fmt: skip
    decoders = {
        "bart": {
            "vocab_size": 80, "d_model": width, "decoder_layers": 2, "decoder_attention_heads": 2, "dropout": 0.0,
            "decoder_ffn_dim": 32, "max_position_embeddings": 160, "attention_dropout": 0.0, "init_std": 0.1,
        },
        "gemma2": {
            "vocab_size": 80, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 12,
            "num_key_value_heads": 1, "intermediate_size": 48, "max_position_embeddings": 160, "sliding_window": 8,
            "query_pre_attn_scalar": 12, "encoder_hidden_size": width, "initializer_range": 0.1, "pad_token_id": 0,
        },
    }  # fmt: skip
    config = CaptionerConfig(
        encoder_config={"kind": "florence2", "vision_config": vision, "text_config": text},
        decoder_config={"kind": kind, **decoders[kind]},
        image_size_px=SIZE_PX,
    )
    model = Captioner(config)
    with torch.no_grad():  # a gate at zero would hide what cross-attention computes
        for name, parameter in model.named_parameters():
            if name.endswith("encoder_attn_gate"):
                parameter.fill_(0.5)
    return model.eval()


def random_annotations(generator: np.random.Generator, coverage: Coverage, full: bool) -> list[Annotation]:
    annotations = []
    for pair in coverage.all_pairs if full else coverage.seen_pairs:
        words = generator.choice(WORDS, size=generator.integers(3, 12))
        target = " ".join([pair.language[0] + "0", *words]).replace(pair.language[0] + "0", WORDS[len(pair.language)])
        if pair.task == CAPTION:
            annotations.append(
                Annotation(task=pair.task, language=pair.language, target=target, style=Style.SHORT, origin="test")
            )
        else:
            source = " ".join(reversed(words))
            annotations.append(
                Annotation(task=pair.task, language=pair.language, target=target, source=source, origin="test")
            )
    return annotations


def make_corpus(folder: Path) -> Path:
    """Sixty pictures of noise with random words, fifty of them to train on."""
    coverage, generator = Coverage(), np.random.default_rng(0)
    with CorpusWriter(folder, provenance={"source": "test"}, images_per_tar=20) as writer:
        for number in range(60):
            pixels = generator.integers(0, 255, (SIZE_PX, SIZE_PX, 3), dtype=np.uint8)
            stream = io.BytesIO()
            Image.fromarray(pixels).save(stream, "png")
            split = "train" if number < 50 else "eval"
            texts = random_annotations(generator, coverage, split == "eval")
            writer.add(f"{number:06d}", stream.getvalue(), "png", split, texts)
    return folder


def save_model(kind: str, folder: Path) -> Path:
    make_model(kind).save_pretrained(folder)
    make_processor().save_pretrained(folder)
    return folder


def train_values(model: Path, corpus: Path, output: Path, /, **settings: object) -> dict[str, Any]:
    """A run of 20 steps; keyword arguments take a setting's place, `data__num_workers` one in a block."""
    values: dict[str, Any] = {
        "model": str(model),
        "output": str(output),
        "budgets": [20],
        "batch_size": 16,
        "data": {"corpus": str(corpus), "image_size_px": SIZE_PX, "num_workers": 0},
        "parallel": {"micro_batch_size": 16, "num_threads": 1},
        "schedule": {"warmup_steps": 4},
        "optimiser": {"learning_rate": 1e-3},
        "checkpoint": {"every_steps": 10},
        "log": {"trackers": []},
    }
    for name, value in settings.items():
        *blocks, key = name.split("__")
        table = values
        for block in blocks:
            table = table.setdefault(block, {})
        table[key] = value
    return values
