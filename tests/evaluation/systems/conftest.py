"""Tiny models of every class that a system can be, with random weights and processors, saved by transformers."""

import re
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    BartConfig,
    Blip2Config,
    Blip2ForConditionalGeneration,
    Blip2Processor,
    Florence2Config,
    Florence2ForConditionalGeneration,
    Florence2Processor,
    Gemma3Config,
    Gemma3ForConditionalGeneration,
    Gemma3Processor,
    LlavaConfig,
    LlavaForConditionalGeneration,
    M2M100Config,
    M2M100ForConditionalGeneration,
    MistralConfig,
    NllbTokenizer,
    PaliGemmaConfig,
    PaliGemmaForConditionalGeneration,
    PaliGemmaProcessor,
    PixtralVisionConfig,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerFast,
    Qwen2VLConfig,
    Qwen2VLForConditionalGeneration,
    Qwen2VLProcessor,
)
from transformers.models.blip.image_processing_pil_blip import BlipImageProcessorPil
from transformers.models.clip.image_processing_pil_clip import CLIPImageProcessorPil
from transformers.models.gemma3.image_processing_pil_gemma3 import Gemma3ImageProcessorPil
from transformers.models.pixtral.image_processing_pil_pixtral import PixtralImageProcessorPil
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil
from transformers.models.siglip.image_processing_pil_siglip import SiglipImageProcessorPil

from babelcap.evaluation.systems import pillow
from babelcap.languages import LANGUAGES
from babelcap.models import Captioner, CaptionProcessor
from babelcap.models.sizing.sizes import size_config

torch.set_num_threads(1)
PROMPTS = (
    "Describe this image in one short sentence in German . Only answer with the caption . Translate the following to "
    "English . translation You are a helpful assistant user model caption en de zh a photo of What does the image "
    "describe ? in detail what is shown with paragraph ( ) ### French simplified Chinese"
)
TEXT = "ein roter blauer Hund Ball liegt im Gras the red blue dog ball bat lies on grass un chien rouge 一 只 狗"
WORDS = list(dict.fromkeys(f"{PROMPTS} {TEXT}".split()))
SIDE = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 2}
LANGUAGE_MODEL = {**SIDE, "num_key_value_heads": 1, "head_dim": 8}


def words_tokenizer(specials: Sequence[str], begin: str | None, **names: object) -> PreTrainedTokenizerFast:
    """A word a token; the begin of text in front of every text where one is named."""
    vocabulary = {word: number for number, word in enumerate(dict.fromkeys([*specials, *WORDS, "\n"]))}
    core = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split("\n", "isolated"), pre_tokenizers.Split(" ", "removed"), pre_tokenizers.Punctuation()]
    )
    if begin is not None:
        core.post_processor = processors.TemplateProcessing(
            single=f"{begin} $A", pair=f"{begin} $A $B:1", special_tokens=[(begin, vocabulary[begin])]
        )
    return PreTrainedTokenizerFast(tokenizer_object=core, unk_token="<unk>", **names)  # type: ignore[arg-type]


def save(folder: Path, model_class: type[PreTrainedModel], config: PreTrainedConfig, processor: object) -> Path:
    """With weights large enough that tokens differ in likelihood and pictures matter."""
    torch.manual_seed(0)
    model = model_class(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * 0.2)
    model.save_pretrained(folder)
    processor.save_pretrained(folder)  # type: ignore[attr-defined]
    return folder


@pytest.fixture(scope="session")
def make_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    return lambda name: tmp_path_factory.mktemp("systems") / name


@pytest.fixture(scope="session")
def florence2(make_folder: Callable[[str], Path]) -> Path:
    tokenizer = words_tokenizer(
        ["<s>", "<pad>", "</s>", "<unk>", "<image>"], None, bos_token="<s>", pad_token="<pad>", eos_token="</s>",
        extra_special_tokens={"image_token": "<image>"},
    )  # fmt: skip
    images = CLIPImageProcessorPil(size={"height": 32, "width": 32}, do_center_crop=False)
    images.image_seq_length = 17
    vision = {
        "depths": [1, 1], "embed_dim": [8, 16], "num_heads": [2, 2], "num_groups": [2, 2], "patch_size": [7, 3],
        "patch_stride": [4, 2], "patch_padding": [3, 1], "patch_prenorm": [False, True], "window_size": 4,
        "projection_dim": 16, "drop_path_rate": 0.0, "max_position_embeddings": 8,
    }  # fmt: skip
    text = BartConfig(
        vocab_size=len(tokenizer), d_model=16, encoder_layers=2, decoder_layers=2, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=24, decoder_ffn_dim=24, max_position_embeddings=96, dropout=0.0,
        forced_bos_token_id=None,
    )  # fmt: skip
    config = Florence2Config(text_config=text.to_dict(), vision_config=vision, image_token_id=4)
    processor = Florence2Processor(images, tokenizer)
    return save(make_folder("florence2"), Florence2ForConditionalGeneration, config, processor)


@pytest.fixture(scope="session")
def paligemma(make_folder: Callable[[str], Path]) -> Path:
    tokenizer = words_tokenizer(
        ["<pad>", "<eos>", "<bos>", "<unk>", "<image>"], None, bos_token="<bos>", pad_token="<pad>", eos_token="<eos>",
        extra_special_tokens={"image_token": "<image>"},
    )  # fmt: skip
    images = SiglipImageProcessorPil(size={"height": 28, "width": 28})
    images.image_seq_length = 4
    processor = PaliGemmaProcessor(images, tokenizer)
    config = PaliGemmaConfig(
        vision_config={**SIDE, "model_type": "siglip_vision_model", "image_size": 28, "patch_size": 14},
        text_config={**LANGUAGE_MODEL, "model_type": "gemma", "vocab_size": len(tokenizer), "pad_token_id": 0},
        image_token_index=4, projection_dim=16, hidden_size=16,
    )  # fmt: skip
    return save(make_folder("paligemma"), PaliGemmaForConditionalGeneration, config, processor)


GEMMA_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}<start_of_turn>{{ 'model' if m['role'] == 'assistant' else 'user' }}\n"
    "{% for c in m['content'] %}{% if c['type'] == 'image' %}<start_of_image>{% else %}{{ c['text'] | trim }}"
    "{% endif %}{% endfor %}<end_of_turn>\n{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)


@pytest.fixture(scope="session")
def gemma3(make_folder: Callable[[str], Path]) -> Path:
    specials = ["<pad>", "<eos>", "<bos>", "<unk>", "<image_soft_token>", "<start_of_image>", "<end_of_image>"]
    tokenizer = words_tokenizer(
        [*specials, "<start_of_turn>", "<end_of_turn>"], "<bos>",
        bos_token="<bos>", pad_token="<pad>", eos_token="<eos>",
        extra_special_tokens={
            "image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>",
            "turn": "<start_of_turn>", "end": "<end_of_turn>",
        },
    )  # fmt: skip
    images = Gemma3ImageProcessorPil(size={"height": 28, "width": 28}, do_pan_and_scan=False)
    processor = Gemma3Processor(images, tokenizer, chat_template=GEMMA_TEMPLATE, image_seq_length=4)
    config = Gemma3Config(
        vision_config={**SIDE, "model_type": "siglip_vision_model", "image_size": 28, "patch_size": 7},
        text_config={
            **LANGUAGE_MODEL, "vocab_size": len(tokenizer), "sliding_window": 8,
            "layer_types": ["sliding_attention", "full_attention"],
            "query_pre_attn_scalar": 8,
            "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 2,
        },
        mm_tokens_per_image=4, image_token_index=4, boi_token_index=5, eoi_token_index=6,
    )  # fmt: skip
    return save(make_folder("gemma3"), Gemma3ForConditionalGeneration, config, processor)


PIXTRAL_TEMPLATE = (
    "{{ bos_token }}{% for m in messages %}{% if m['role'] == 'user' %}[INST]{% for c in m['content'] %}"
    "{% if c['type'] == 'image' %}[IMG]{% else %}{{ c['content'] }}{% endif %}{% endfor %}[/INST]"
    "{% elif m['role'] == 'assistant' %}{{ m['content'] + eos_token }}{% endif %}{% endfor %}"
)


@pytest.fixture(scope="session")
def pixtral(make_folder: Callable[[str], Path]) -> Path:
    marks = ["[IMG]", "[IMG_BREAK]", "[IMG_END]", "[INST]", "[/INST]"]
    tokenizer = words_tokenizer(
        ["<unk>", "<s>", "</s>", "<pad>", *marks], "<s>", bos_token="<s>", pad_token="<pad>", eos_token="</s>",
        extra_special_tokens={mark.strip("[/]") + str(number): mark for number, mark in enumerate(marks)},
    )  # fmt: skip
    images = PixtralImageProcessorPil(size={"longest_edge": 32}, patch_size={"height": 8, "width": 8})
    processor_class = pillow.processor_class(Path(), "pixtral")
    processor = processor_class(images, tokenizer, patch_size=8, chat_template=PIXTRAL_TEMPLATE)
    config = LlavaConfig(
        vision_config=PixtralVisionConfig(**SIDE, head_dim=8, image_size=32, patch_size=8),
        text_config=MistralConfig(
            **LANGUAGE_MODEL, vocab_size=len(tokenizer), pad_token_id=3, bos_token_id=1, eos_token_id=2
        ),
        image_token_index=4, vision_feature_layer=-1, vision_feature_select_strategy="full",
    )  # fmt: skip
    return save(make_folder("pixtral"), LlavaForConditionalGeneration, config, processor)


QWEN_TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{% for c in m['content'] %}{% if c['type'] == 'image' %}"
    "<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ c['text'] }}{% endif %}{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.fixture(scope="session")
def qwen(make_folder: Callable[[str], Path]) -> Path:
    marks = ["<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]
    tokenizer = words_tokenizer(
        ["<unk>", "<pad>", *marks], None, pad_token="<pad>", eos_token="<|im_end|>",
        extra_special_tokens={mark.strip("<|>"): mark for mark in marks},
    )  # fmt: skip
    images = Qwen2VLImageProcessorPil(patch_size=14, merge_size=2, min_pixels=28 * 28, max_pixels=56 * 56)
    processor = pillow.pictures_only(Qwen2VLProcessor)(images, tokenizer, chat_template=QWEN_TEMPLATE)
    config = Qwen2VLConfig(
        text_config={
            **LANGUAGE_MODEL, "vocab_size": len(tokenizer), "bos_token_id": None, "eos_token_id": 3, "pad_token_id": 1,
            "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 10000.0},
        },
        vision_config={
            "depth": 1, "embed_dim": 16, "num_heads": 2, "mlp_ratio": 2, "hidden_size": 16, "patch_size": 14
        },
        image_token_id=6, video_token_id=7, vision_start_token_id=4, vision_end_token_id=5,
    )  # fmt: skip
    folder = save(make_folder("qwen"), Qwen2VLForConditionalGeneration, config, processor)
    images.save_pretrained(folder)  # published ones have this file, by which a processor of videos is looked for too
    return folder


@pytest.fixture(scope="session")
def blip2(make_folder: Callable[[str], Path]) -> Path:
    tokenizer = words_tokenizer(
        ["<s>", "<pad>", "</s>", "<unk>"], "</s>", bos_token="</s>", pad_token="<pad>", eos_token="</s>"
    )
    images = BlipImageProcessorPil(size={"height": 28, "width": 28})
    processor = Blip2Processor(images, tokenizer, num_query_tokens=3)
    config = Blip2Config(
        vision_config={**SIDE, "image_size": 28, "patch_size": 14},
        qformer_config={**SIDE, "encoder_hidden_size": 16, "vocab_size": 20},
        text_config={
            "model_type": "opt", "vocab_size": len(tokenizer), "hidden_size": 16, "ffn_dim": 24, "dropout": 0.0,
            "num_hidden_layers": 2, "num_attention_heads": 2, "max_position_embeddings": 64, "word_embed_proj_dim": 16,
            "pad_token_id": 1, "bos_token_id": 2, "eos_token_id": 2,
        },
        num_query_tokens=3, image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )  # fmt: skip
    return save(make_folder("blip2"), Blip2ForConditionalGeneration, config, processor)


@pytest.fixture(scope="session")
def nllb(make_folder: Callable[[str], Path]) -> Path:
    names = ["<s>", "<pad>", "</s>", "<unk>", *(f"▁{word}" for word in WORDS), *sorted(set("".join(WORDS))), "▁"]
    vocabulary = {name: number for number, name in enumerate(dict.fromkeys(names))}
    codes = ["eng_Latn", "deu_Latn", "fra_Latn", "zho_Hans"]
    tokenizer = NllbTokenizer(vocab=vocabulary, merges=[], extra_special_tokens=codes)
    side = {"layers": 2, "attention_heads": 2, "ffn_dim": 24}
    config = M2M100Config(
        vocab_size=len(tokenizer), d_model=16, max_position_embeddings=96, dropout=0.0, encoder_layerdrop=0.0,
        decoder_layerdrop=0.0, pad_token_id=1, bos_token_id=0, eos_token_id=2, decoder_start_token_id=2,
        **{f"{name}_{key}": value for name in ("encoder", "decoder") for key, value in side.items()},
    )  # fmt: skip
    return save(make_folder("nllb"), M2M100ForConditionalGeneration, config, tokenizer)


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, generator = tmp_path_factory.mktemp("pictures"), np.random.default_rng(0)
    paths = [folder / f"{number}.png" for number in range(3)]
    for path, (height, width) in zip(paths, ((30, 40), (40, 30), (36, 36)), strict=True):
        Image.fromarray(generator.integers(0, 255, (height, width, 3), dtype=np.uint8)).save(path)
    return paths


@pytest.fixture(scope="session")
def own_processor() -> CaptionProcessor:
    specials = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>"}
    prefixes = [word for language in LANGUAGES for word in re.findall(r"\w+|[^\w ]", language.prefix)]
    sides = [words_tokenizer(["<pad>", "<eos>", "<bos>", "<unk>", *prefixes], None, **specials) for _ in range(2)]
    return CaptionProcessor(*sides, image_size_px=32)


@pytest.fixture(scope="session")
def ours(make_folder: Callable[[str], Path], own_processor: CaptionProcessor) -> Path:
    """A captioner of this package, trained on what the published ones were: no captions in French."""
    sizes = {f"{side}_vocab_size": len(own_processor.decoder_tokenizer) for side in ("encoder", "decoder")}
    return save(make_folder("ours"), Captioner, size_config("micro-florence-s", **sizes), own_processor)
