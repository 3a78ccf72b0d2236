"""What trains, by named policy. A rule is a pattern over parameter names; the first that matches decides."""

import difflib
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from torch import nn

from babelcap.errors import UserError

CROSS_ATTENTION = r"decoder\.layers\.\d+\.(post_|pre_)?encoder_att(n|ention).*"  # with norms and gate, of both families
GEMMA_LAYERS_AND_NORM = r"decoder\.(layers\.\d+|norm)\..*"
DECODER = r"decoder\..*"
VISION = r"encoder\.(vision_tower|projector)\..*"

Rules = tuple[tuple[str, bool], ...]


class Policy(NamedTuple):
    """Rules for each family of decoder; what no rule names trains or not as `otherwise` says."""

    meaning: str
    bart: Rules
    gemma: Rules
    otherwise: bool


# Embeddings and head are one weight, and train; the text encoder trains with its embedding.
_PAPER = {
    "bart": ((VISION, False),),
    "gemma": ((VISION, False), (CROSS_ATTENTION, True), (GEMMA_LAYERS_AND_NORM, False)),
}
POLICIES: Mapping[str, Policy] = MappingProxyType(
    {
        "pretraining": Policy(
            "vision tower and projector frozen, and of a Gemma decoder all but cross-attention and embedding",
            otherwise=True,
            **_PAPER,
        ),
        "finetuning": Policy("the same as in pretraining", otherwise=True, **_PAPER),
        "text": Policy(
            "vision tower and projector frozen; the whole decoder trains, a Gemma one too",
            bart=((VISION, False),),
            gemma=((VISION, False),),
            otherwise=True,
        ),
        "bridge": Policy(
            "of encoder and decoder what joins them: all of the encoder but its vision tower, and cross-attention",
            bart=((VISION, False), (CROSS_ATTENTION, True), (DECODER, False)),
            gemma=((VISION, False), (CROSS_ATTENTION, True), (DECODER, False)),
            otherwise=True,
        ),
        "all": Policy("everything trains", bart=(), gemma=(), otherwise=True),
        "cross-attention": Policy(
            "only the decoder's cross-attention trains, with its norm and gate",
            bart=((CROSS_ATTENTION, True),),
            gemma=((CROSS_ATTENTION, True),),
            otherwise=False,
        ),
    }
)


class TrainingRow(NamedTuple):
    module: str
    num_parameters: int
    num_trained: int


def get_policy(name: str) -> Policy:
    if name not in POLICIES:
        near = difflib.get_close_matches(name, POLICIES, n=1, cutoff=0.4)
        hint = f"did you mean '{near[0]}'? " if near else ""
        raise UserError(f"unknown freezing policy '{name}'; {hint}known: {', '.join(POLICIES)}")
    return POLICIES[name]


def apply_policy(model: nn.Module, name: str) -> nn.Module:
    """Sets `requires_grad` of every parameter of a captioner; returns it."""
    policy = get_policy(name)
    rules = policy.bart if model.config.decoder_config.kind == "bart" else policy.gemma  # type: ignore[union-attr]
    for parameter_name, parameter in model.named_parameters():
        decisions = (trains for pattern, trains in rules if re.fullmatch(pattern, parameter_name))
        parameter.requires_grad_(next(decisions, policy.otherwise))
    return model


def training_table(model: nn.Module) -> list[TrainingRow]:
    """What trains, by part; a weight shared by two parts counts once, at its first."""
    totals: dict[str, list[int]] = {}
    for name, parameter in model.named_parameters():
        row = totals.setdefault(_part_of(name), [0, 0])
        row[0] += parameter.numel()
        row[1] += parameter.numel() if parameter.requires_grad else 0
    return [TrainingRow(part, *numbers) for part, numbers in totals.items()]


def trained_parameters(model: nn.Module) -> Iterator[tuple[str, nn.Parameter]]:
    return ((name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad)


PARTS = (
    (r"encoder\.vision_tower\..*", "vision tower"),
    (r"encoder\.(projector|image_projection|prompt_projection)\..*", "projector"),
    (r"encoder\.text_encoder\.embed_tokens\..*", "encoder embedding"),
    (r"encoder\.text_encoder\..*", "text encoder"),
    (r"decoder\.embed_tokens\..*", "decoder embedding and head"),
    (CROSS_ATTENTION, "decoder cross-attention"),
    (r"decoder\..*", "decoder"),
)


def _part_of(name: str) -> str:
    return next((part for pattern, part in PARTS if re.fullmatch(pattern, name)), name.partition(".")[0])
