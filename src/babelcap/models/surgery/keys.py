"""Where every weight of a prepared captioner comes from. Tables of names; what no row names stops the surgery.

A source's weight is loaded under our name or dropped for a stated reason; a captioner's weight is loaded or initialised
by a stated rule. Nothing else exists, and the plan holds all of it before a single weight is read.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from torch import Size, Tensor

from babelcap.errors import UserError
from babelcap.models.checkpoints.published import our_name, some_names
from babelcap.models.checkpoints.weights import Checkpoint

EMBEDDING = "encoder.text_encoder.embed_tokens.weight"
HEAD = "decoder.embed_tokens.weight"
# Florence-2 as transformers saves it. The shared embedding becomes the encoder's; the decoder's is mapped from it.
FLORENCE_KEYS: tuple[tuple[str, str], ...] = (
    (r"model\.vision_tower\.(.+)", r"encoder.vision_tower.\1"),
    (r"model\.multi_modal_projector\.(.+)", r"encoder.projector.\1"),
    (r"model\.language_model\.shared\.weight", EMBEDDING),
    (r"model\.language_model\.encoder\.(?!embed_tokens)(.+)", r"encoder.text_encoder.\1"),
    (r"model\.language_model\.decoder\.(?!embed_tokens)(.+)", r"decoder.\1"),
)
GEMMA_KEYS: tuple[tuple[str, str], ...] = ((r"model\.(embed_tokens\.weight|norm\.weight|layers\..+)", r"decoder.\1"),)
TIED = r"(?:model\.)?language_model\.(?:model\.)?(?:(?:encoder|decoder)\.embed_tokens|lm_head)\.weight|lm_head\.weight"
BIAS = r"(?:model\.)?(?:language_model\.)?final_logits_bias"
CROSS_NORM = r"decoder\.layers\.(\d+)\.post_encoder_attention_layernorm\.weight"
CROSS_ZERO = r"decoder\.layers\.\d+\.(encoder_attn(_gate|\.[qkvo]_proj\.bias)|pre_encoder_attention_layernorm\.weight)"
CROSS_WEIGHT = r"decoder\.layers\.\d+\.encoder_attn\.[qkvo]_proj\.weight"


class Step(NamedTuple):
    """How one weight of the captioner is made: `make` reads or computes it when its turn comes."""

    kind: str  # loaded | initialised
    origin: str
    make: Callable[[], Tensor]


@dataclass
class KeyPlan:
    steps: dict[str, Step] = field(default_factory=dict)
    dropped: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)

    def account(self) -> dict[str, Any]:
        """The whole account of keys, as plain data."""
        kinds = [step.kind for step in self.steps.values()]
        return {
            "num_loaded": kinds.count("loaded"),
            "num_initialised": kinds.count("initialised"),
            "num_dropped": len(self.dropped),
            "weights": {name: {"kind": step.kind, "from": step.origin} for name, step in self.steps.items()},
            "dropped": self.dropped,
        }


def plan_florence(plan: KeyPlan, source: Checkpoint, with_decoder: bool) -> None:
    """Encoder, and with it the decoder where the captioner keeps it, of Florence-2 in any of the three formats."""
    tied_to = embedding_name(source)
    for name in source.shapes:
        if source.model_type == "babelcap":
            ours: str | None = name
        elif name.startswith(("model.", "lm_head.")):
            ours = _rename(name, FLORENCE_KEYS)
        else:
            ours = EMBEDDING if name == tied_to else our_name(name)[0]
        if ours == HEAD or (ours is None and re.fullmatch(TIED, name)):
            if source.model_type != "babelcap":
                _check_tied(source, name, tied_to)
            plan.dropped[name] = "the old vocabulary's embedding and head"
        elif ours is None and re.fullmatch(BIAS, name):
            if bool(source.read(name).any()):
                raise UserError(f"{source.name}: {name} is not all zeros; a captioner's head has no bias")
            plan.dropped[name] = "a bias of the logits that is zero"
        elif ours is None:
            plan.unknown.append(name)
        elif ours.startswith("decoder.") and not with_decoder:
            plan.dropped[name] = "BART's decoder, replaced by Gemma's"
        else:
            plan.steps[ours] = Step("loaded", name, _reader(source, name))


def embedding_name(source: Checkpoint) -> str:
    """The embedding that a Florence checkpoint reads its prompt with."""
    candidates = (
        "model.language_model.shared.weight",
        "language_model.model.shared.weight",
        "language_model.model.encoder.embed_tokens.weight",
        EMBEDDING,
    )
    found = [name for name in candidates if name in source.shapes]
    if not found:
        raise UserError(f"{source.name}: no shared embedding; this is not a Florence-2 checkpoint")
    return found[0]


def remapped_name(source: Checkpoint) -> str:
    """What the new vocabulary is mapped from. A captioner of ours has an embedding for the decoder alone."""
    return HEAD if source.model_type == "babelcap" else embedding_name(source)


def plan_gemma(plan: KeyPlan, source: Checkpoint) -> None:
    for name in source.shapes:
        ours = _rename(name, GEMMA_KEYS)
        if name == "lm_head.weight":
            _check_tied(source, name, "model.embed_tokens.weight")
            plan.dropped[name] = "the head, tied to the embedding"
        elif ours is None:
            plan.unknown.append(name)
        else:
            plan.steps[ours] = Step("loaded", name, _reader(source, name))


def plan_cross_attention(
    plan: KeyPlan, expected: Iterable[str], normal: Callable[[str], Tensor], zeros: Callable[[str], Tensor]
) -> None:
    """What Gemma does not have: projections drawn anew, the norm copied from the layer's own, the gate at zero."""
    for name in expected:
        norm = re.fullmatch(CROSS_NORM, name)
        if norm:
            own = plan.steps.get(f"decoder.layers.{norm[1]}.post_attention_layernorm.weight")
            if own is not None:
                plan.steps[name] = Step("initialised", f"copy of {own.origin}", partial(_copy, own))
        elif re.fullmatch(CROSS_ZERO, name):
            plan.steps[name] = Step("initialised", "zero", partial(zeros, name))
        elif re.fullmatch(CROSS_WEIGHT, name):
            plan.steps[name] = Step("initialised", "normal", partial(normal, name))


def _copy(step: Step) -> Tensor:
    return step.make().clone()  # what is read twice of an open file is the same memory


def check_plan(plan: KeyPlan, expected: dict[str, Size], shapes: dict[str, tuple[int, ...]]) -> None:
    """Stops with the list unless each key is accounted for. `shapes` are those of the steps, by our names."""
    findings = {
        "no place in a captioner": plan.unknown,
        "missing": sorted(expected.keys() - plan.steps.keys()),
        "surplus": sorted(plan.steps.keys() - expected.keys()),
        "misshapen": [
            f"{name} {list(shapes[name])} instead of {list(expected[name])}"
            for name in sorted(expected.keys() & shapes.keys())
            if tuple(expected[name]) != tuple(shapes[name])
        ],
    }
    found = [f"{len(names)} {kind}: {some_names(names, 8)}" for kind, names in findings.items() if names]
    if found:
        raise UserError(f"not every weight is accounted for: {'; '.join(found)}")


def _rename(name: str, table: tuple[tuple[str, str], ...]) -> str | None:
    for pattern, ours in table:
        match = re.fullmatch(pattern, name)
        if match:
            return match.expand(ours)
    return None


def _reader(source: Checkpoint, name: str) -> Callable[[], Tensor]:
    if name == "image_projection":  # states times matrix there, a linear layer's transpose here
        return lambda: source.read(name).T.contiguous()
    return lambda: source.read(name)


def _check_tied(source: Checkpoint, name: str, tied_to: str) -> None:
    if name == tied_to:
        return
    if source.shapes[name] != source.shapes[tied_to] or not source.read(name).equal(source.read(tied_to)):
        raise UserError(f"{source.name}: {name} differs from {tied_to}; a captioner's head is tied to its embedding")
