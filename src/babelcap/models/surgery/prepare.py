"""Making a captioner of published parts: Florence-2 with another vocabulary, or its encoder joined to Gemma.

florence: encoder and decoder of Florence-2; decoder embedding = token map of Florence's embedding (token_map.py)
gemma: encoder of Florence-2; decoder of Gemma with gated cross-attention, gate 0, so that it begins as Gemma itself
Weights go one by one from the sources' files into the result's shards, so memory holds one shard at most.
"""

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import GenerationConfig

from babelcap.errors import UserError
from babelcap.models.checkpoints.card import write_card
from babelcap.models.checkpoints.files import CAPTIONER_FILES, INDEX_FILE, SURGERY_FILE, WEIGHTS_FILE
from babelcap.models.checkpoints.processor import CaptionProcessor
from babelcap.models.checkpoints.published import SPECIAL_IDS
from babelcap.models.checkpoints.tokenizers import load_tokenizer
from babelcap.models.checkpoints.weights import Checkpoint, tensor_type
from babelcap.models.network.configuration import CaptionerConfig
from babelcap.models.sizing.flops import meta_captioner
from babelcap.models.surgery.joined_config import join_configs
from babelcap.models.surgery.keys import (
    EMBEDDING,
    HEAD,
    KeyPlan,
    Step,
    check_plan,
    plan_cross_attention,
    plan_florence,
    plan_gemma,
    remapped_name,
)
from babelcap.models.surgery.token_map import TokenMap, build_token_map
from babelcap.storage import atomic_folder, update_manifest, write_json

SHARD_BYTES = 4 * 2**30


@dataclass
class Tokenizers:
    """`source` is the one whose pieces the decoder's new embedding is made of; mostly the encoder's own."""

    encoder: Any
    decoder: Any
    source: Any


def prepare(
    size: str,
    florence: str | Path,
    gemma: str | Path,
    output: str | Path,
    *,
    dtype: str = "float32",
    cross_attention_every: int = 1,
    seed: int = 0,
    tokenizers: Tokenizers | None = None,
    coverage: dict[str, Any] | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes the captioner to `output`, whole or not at all, and returns the account that `surgery.json` holds.

    `size` is a size's name, against which the sources are checked, or auto-florence or auto-gemma, which take their
    dimensions from the sources as they are. For a Florence captioner only the tokenizer is read of `gemma`.
    """
    kind = tensor_type(dtype)
    florence_source = Checkpoint(florence)
    if tokenizers is None:
        encoder_tokenizer = load_tokenizer(florence_source.folder)
        tokenizers = Tokenizers(encoder_tokenizer, load_tokenizer(gemma), encoder_tokenizer)
    sizes = (len(tokenizers.encoder), len(tokenizers.decoder))
    config, gemma_source = join_configs(size, florence_source, gemma, sizes, cross_attention_every)
    set_special_ids(config, tokenizers.decoder)
    config.coverage = coverage
    token_map = build_token_map(tokenizers.source, tokenizers.decoder) if gemma_source is None else None
    plan = make_plan(config, florence_source, gemma_source, token_map, len(tokenizers.encoder), seed)
    report = {
        "size": size,
        "sources": {"florence": str(florence), "gemma": str(gemma)},
        "seed": seed,
        "dtype": dtype,
        **plan.account(),
    }
    with atomic_folder(output, overwrite=overwrite) as folder:
        config.dtype = kind
        config.architectures = ["Captioner"]
        write_weights(folder, plan, {name: tensor.shape for name, tensor in _expected(config).items()}, kind)
        config.save_pretrained(folder)
        generation_config(config).save_pretrained(folder)
        processor = CaptionProcessor(tokenizers.encoder, tokenizers.decoder, image_size_px=config.image_size_px)
        processor.save_pretrained(folder)
        if token_map is not None:
            token_map.save(folder)
        write_json(folder / SURGERY_FILE, report)
        update_manifest(folder, CAPTIONER_FILES)
        write_card(folder, Path(output).name)
    return report


def make_plan(
    config: CaptionerConfig,
    florence: Checkpoint,
    gemma: Checkpoint | None,
    token_map: TokenMap | None,
    num_encoder_tokens: int,
    seed: int,
) -> KeyPlan:
    """Where each weight comes from, checked for completeness and shapes before any is read."""
    plan = KeyPlan()
    expected = {name: tensor.shape for name, tensor in _expected(config).items()}
    plan_florence(plan, florence, with_decoder=gemma is None)
    if gemma is not None:
        plan_gemma(plan, gemma)
        deviation = config.decoder_config.initializer_range
        plan_cross_attention(
            plan,
            expected,
            normal=lambda name: draw(expected[name], deviation, seed, name),
            zeros=lambda name: torch.zeros(expected[name]),
        )
    shapes = _step_shapes(plan, florence, gemma)
    shapes |= _fit_encoder_rows(plan, expected, shapes, num_encoder_tokens)
    if token_map is not None:
        name = remapped_name(florence)
        shapes[HEAD] = (config.vocab_size, florence.shapes[name][1])
        step = Step(
            "initialised",
            f"token map of {name}",
            lambda: token_map.remap(florence.read(name), config.vocab_size),
        )
        plan.steps[HEAD] = step
    check_plan(plan, expected, shapes)
    return plan


def _expected(config: CaptionerConfig) -> dict[str, Tensor]:
    weights: dict[str, Tensor] = meta_captioner(config).state_dict()
    return weights


def _step_shapes(plan: KeyPlan, florence: Checkpoint, gemma: Checkpoint | None) -> dict[str, tuple[int, ...]]:
    known = florence.shapes | (gemma.shapes if gemma is not None else {})
    shapes = {name: known[step.origin] for name, step in plan.steps.items() if step.origin in known}
    for name, step in plan.steps.items():
        if step.origin == "image_projection":
            shapes[name] = tuple(reversed(shapes[name]))
    return shapes


def _fit_encoder_rows(
    plan: KeyPlan, expected: dict[str, torch.Size], shapes: dict[str, tuple[int, ...]], num_tokens: int
) -> dict[str, tuple[int, ...]]:
    """Padding rows of the encoder's embedding come and go; rows of tokens do not."""
    step = plan.steps[EMBEDDING]
    num_source, num_rows = shapes[EMBEDDING][0], expected[EMBEDDING][0]
    if num_source == num_rows:
        return {}
    if min(num_source, num_rows) < num_tokens:
        raise UserError(
            f"{step.origin} has {num_source} rows and the captioner {num_rows}, but the encoder's tokenizer has "
            f"{num_tokens} tokens; give the tokenizer that belongs to the checkpoint"
        )

    def fit() -> Tensor:
        rows = step.make()
        padding = rows[:num_tokens].float().mean(dim=0).to(rows.dtype).expand(max(0, num_rows - num_source), -1)
        return torch.cat([rows[:num_rows], padding])

    change = f"{num_source} rows cut" if num_source > num_rows else f"{num_source} rows padded with their mean"
    plan.steps[EMBEDDING] = Step("loaded", f"{step.origin}, {change} to {num_rows}", fit)
    return {EMBEDDING: tuple(expected[EMBEDDING])}


def draw(shape: torch.Size, deviation: float, seed: int, name: str) -> Tensor:
    """Normal numbers that depend on the seed and the weight's name only, not on the order of the surgery."""
    digest = hashlib.sha256(f"{seed}/surgery/{name}".encode()).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest[:8], "little") >> 1)
    return torch.randn(shape, generator=generator) * deviation


def set_special_ids(config: CaptionerConfig, tokenizer: Any) -> None:
    """The decoder's: it starts with eos, and a target is [bos, tokens..., eos]."""
    ids = {role: getattr(tokenizer, f"{role}_token_id") for role in ("pad", "bos", "eos")}
    absent = [role for role, token_id in ids.items() if token_id is None]
    if absent:
        raise UserError(f"the decoder's tokenizer has no {' and no '.join(absent)} token; targets need bos and eos")
    for part in (config, config.decoder_config):
        part.pad_token_id, part.bos_token_id, part.eos_token_id = ids["pad"], ids["bos"], ids["eos"]
        part.decoder_start_token_id = ids["eos"]


def generation_config(config: CaptionerConfig) -> GenerationConfig:
    return GenerationConfig(**{name: getattr(config, name) for name in SPECIAL_IDS})


def write_weights(folder: Path, plan: KeyPlan, shapes: dict[str, torch.Size], kind: torch.dtype) -> None:
    """Shards as transformers names them; one file where one is enough."""
    groups = list(_group(shapes, kind))
    places: dict[str, str] = {}
    for number, names in enumerate(groups, start=1):
        file = WEIGHTS_FILE if len(groups) == 1 else f"model-{number:05d}-of-{len(groups):05d}.safetensors"
        tensors = {name: plan.steps[name].make().to(kind).contiguous() for name in names}
        save_file(tensors, folder / file, metadata={"format": "pt"})
        places |= dict.fromkeys(names, file)
    if len(groups) > 1:
        total = sum(math.prod(shape) for shape in shapes.values()) * kind.itemsize
        write_json(folder / INDEX_FILE, {"metadata": {"total_size": total}, "weight_map": places})


def _group(shapes: dict[str, torch.Size], kind: torch.dtype) -> Iterator[list[str]]:
    names: list[str] = []
    num_bytes = 0
    for name, shape in shapes.items():
        size = math.prod(shape) * kind.itemsize
        if names and num_bytes + size > SHARD_BYTES:
            yield names
            names, num_bytes = [], 0
        names.append(name)
        num_bytes += size
    yield names
