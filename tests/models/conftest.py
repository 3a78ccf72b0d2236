"""Tiny captioners with random weights, one for each kind of decoder."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from babelcap.coverage import Style, caption_prompt
from babelcap.languages import LANGUAGES
from babelcap.models import Captioner, CaptionerConfig, CaptionProcessor

torch.set_num_threads(1)  # on models this small, threads cost more than they give
ENCODER_VOCAB_SIZE = 60
DECODER_VOCAB_SIZE = 90
IMAGE_SIZE_PX = 32
KINDS = ("bart", "gemma2", "gemma3")
BART = {
    "d_model": 32,
    "encoder_layers": 2,
    "decoder_layers": 3,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "max_position_embeddings": 64,
    "dropout": 0.0,
}
GEMMA = {
    "hidden_size": 48,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 64,
    "query_pre_attn_scalar": 16,
    "sliding_window": 4,
    "encoder_hidden_size": 32,
}


def tiny_config(kind: str, **decoder: Any) -> CaptionerConfig:
    stages = {"depths": (1, 1), "embed_dim": (8, 16), "num_heads": (2, 2), "num_groups": (2, 2)}
    patches = {"patch_size": (7, 3), "patch_stride": (4, 2), "patch_padding": (3, 1), "patch_prenorm": (False, True)}
    vision = {**stages, **patches, "window_size": 3, "drop_path_rate": 0.0, "projection_dim": 32}
    return CaptionerConfig(
        encoder_config={
            "kind": "florence2",
            "vision_config": vision,
            "text_config": {**BART, "vocab_size": ENCODER_VOCAB_SIZE},
        },
        decoder_config={
            "kind": kind,
            "vocab_size": DECODER_VOCAB_SIZE,
            **(BART if kind == "bart" else GEMMA),
            **decoder,
        },
        image_size_px=IMAGE_SIZE_PX,
    )


def random_captioner(config: CaptionerConfig, seed: int = 0) -> Captioner:
    """Open gates, likely and unlikely tokens, and embeddings too small for Gemma just to repeat what it reads."""
    torch.manual_seed(seed)
    model = Captioner(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            is_embedding = name == "decoder.embed_tokens.weight" and config.decoder_config.kind != "bart"
            scale = 0.7 if name.endswith("gate") else 0.03 if is_embedding else 0.25
            parameter.add_(torch.randn(parameter.shape) * scale)
            if name == "decoder.norm.weight":
                parameter.add_(10)
    return model


@pytest.fixture
def make_captioner() -> Callable[..., Captioner]:
    def make(kind: str, seed: int = 0, **decoder: Any) -> Captioner:
        return random_captioner(tiny_config(kind, **decoder), seed)

    return make


@pytest.fixture(scope="session", params=KINDS)
def captioner(request: pytest.FixtureRequest) -> Captioner:
    """Read only: it is shared by all tests."""
    return random_captioner(tiny_config(request.param))


@pytest.fixture(scope="session")
def inputs() -> dict[str, Tensor]:
    """Two prompts of different lengths, padded on the right, with their images."""
    generator = torch.Generator().manual_seed(1)
    input_ids = torch.randint(3, ENCODER_VOCAB_SIZE, (2, 6), generator=generator)
    attention_mask = torch.tensor([[1, 1, 1, 1, 1, 1], [1, 1, 1, 0, 0, 0]])
    input_ids[attention_mask == 0] = 1
    pixel_values = torch.randn(2, 3, IMAGE_SIZE_PX, IMAGE_SIZE_PX, generator=generator)
    return {"input_ids": input_ids, "attention_mask": attention_mask, "pixel_values": pixel_values}


def tiny_tokenizer(words: list[str], **specials: str) -> PreTrainedTokenizerFast:
    vocabulary = {word: index for index, word in enumerate([*specials.values(), *words])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **specials)


@pytest.fixture(scope="session")
def processor() -> CaptionProcessor:
    prompts = " ".join([caption_prompt(language, style) for language in LANGUAGES for style in Style])
    words = sorted(set(prompts.split()))[: ENCODER_VOCAB_SIZE - 4]
    encoder = tiny_tokenizer(words, bos_token="<s>", pad_token="<pad>", eos_token="</s>", unk_token="<unk>")
    prefixes = sorted({word for language in LANGUAGES for word in language.prefix.split()})
    words = [*prefixes, *(f"w{number}" for number in range(DECODER_VOCAB_SIZE - 4 - len(prefixes)))]
    decoder = tiny_tokenizer(words, pad_token="<pad>", eos_token="<eos>", bos_token="<bos>", unk_token="<unk>")
    return CaptionProcessor(encoder, decoder, image_size_px=IMAGE_SIZE_PX)


@pytest.fixture(scope="session")
def model_folder(processor: CaptionProcessor, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny captioner as it lies on disk, with its processor."""
    folder = tmp_path_factory.mktemp("captioner")
    random_captioner(tiny_config("bart")).save_pretrained(folder)
    processor.save_pretrained(folder)
    return folder
