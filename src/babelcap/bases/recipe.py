"""Base models in small, each in a folder named by a hash of its recipe, built once or taken from the package.

    tower-<hash>/           tower.safetensors: the DaViT that all Florence-like bases share
    florence-<letter>-<hash>/           Florence2ForConditionalGeneration with its English tokenizer
    gemma-<letter>-<variant>-<hash>/    Gemma2ForCausalLM with its tokenizer of six languages

All are saved by transformers, so that the surgery treats them as it treats the published ones. Weights are rounded to
16 bits when they are made, so that a base that was built and one that was shipped are the same.
"""

import hashlib
import json
from collections.abc import Sequence
from functools import lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers.utils import logging

from babelcap.bases.config import BaseConfig
from babelcap.bases.florence import make_captioner, train_captioner
from babelcap.bases.gemma import make_language_model, train_language_model
from babelcap.bases.text import make_tokenizers
from babelcap.bases.tower import labelled_pictures, make_tower, picture_scene, tower_maps, train_tower
from babelcap.errors import UserError
from babelcap.models.sizing.sizes import MICRO_SHAPES, get_size
from babelcap.storage import atomic_file, atomic_folder, locked, read_json, write_json

RECIPE = "recipe.json"
DECODER_TOKENIZER = "decoder_tokenizer"
VERSION = 1  # raised whenever the code changes what a recipe gives
TOWER_FILE = "tower.safetensors"
SHIPPED, HASHES = "shipped", "hashes.json"
TOKENIZER_FIELDS = ("seed", "num_encoder_tokens", "num_decoder_tokens")
TOWER_FIELDS = ("seed", "num_pictures", "tower_steps", "tower_batch_size", "tower_learning_rate")
CAPTION_FIELDS = ("caption_steps", "caption_batch_size", "caption_learning_rate")
LANGUAGE_FIELDS = ("language_steps", "language_batch_size", "language_learning_rate")


class Base(NamedTuple):
    """One base model: what it is made of decides its folder's name."""

    kind: str  # tower | florence | gemma
    letter: str
    variant: str
    recipe: dict[str, Any]

    @property
    def name(self) -> str:
        canonical = json.dumps(self.recipe, sort_keys=True)
        digest = hashlib.sha256(canonical.encode()).hexdigest()[:12]
        return "-".join(part for part in (self.kind, self.letter, self.variant, digest) if part)


def tower_base(config: BaseConfig) -> Base:
    vision = {name: value for name, value in get_size("micro-florence-s").vision.items() if name != "projection_dim"}
    return Base("tower", "", "", {"version": VERSION, "vision": vision, **_fields(config, TOWER_FIELDS)})


def florence_base(config: BaseConfig, letter: str) -> Base:
    own = _fields(config.for_letter(letter), TOKENIZER_FIELDS + CAPTION_FIELDS)
    recipe = {"tower": tower_base(config).recipe, **own}
    return Base("florence", letter, "", {**recipe, "shape": list(MICRO_SHAPES[letter])})


def gemma_base(config: BaseConfig, letter: str, variant: str) -> Base:
    if variant not in config.variants:
        raise UserError(f"unknown variant '{variant}'; base.variants has {', '.join(config.variants)}")
    shares = config.variants[variant]
    recipe = {"version": VERSION, **_fields(config, TOKENIZER_FIELDS + LANGUAGE_FIELDS)}
    return Base("gemma", letter, variant, {**recipe, "shares": shares, "shape": list(MICRO_SHAPES[letter])})


def needed_bases(config: BaseConfig, size: str, variant: str) -> list[Base]:
    """The bases of a captioner, in the order in which they have to be built. A Florence-like one has no variant."""
    family, letter = split_size(size)
    found = [tower_base(config), florence_base(config, letter)]
    return found if family == "florence" else [*found, gemma_base(config, letter, variant)]


def split_size(size: str) -> tuple[str, str]:
    """micro-gemma-l -> gemma, l."""
    prefix, _, rest = size.partition("-")
    family, _, letter = rest.partition("-")
    if prefix != "micro" or family not in ("florence", "gemma") or letter not in MICRO_SHAPES:
        letters = ", ".join(MICRO_SHAPES)
        raise UserError(
            f"size '{size}' has no base in small; known are micro-florence-X and micro-gemma-X, X in {letters}"
        )
    return family, letter


def build_part(folder: str | Path, config: BaseConfig, base: Base) -> Path:
    """One base in its folder, built where it is not there yet; a Florence-like one builds its tower first."""
    place = Path(folder) / base.name
    with locked(Path(folder) / f".{base.name}.lock"):
        if (place / RECIPE).is_file():
            return place
        weights = shipped_weights(base) if config.use_shipped else None
        with atomic_folder(place, overwrite=True) as partial:
            if base.kind == "tower":
                measured = _write_tower(partial, config, weights)
            elif base.kind == "florence":
                measured = _write_florence(partial, Path(folder), config, base, weights)
            else:
                measured = _write_gemma(partial, config, base, weights)
            origin = {"shipped": weights is not None, "measured": measured}
            write_json(partial / RECIPE, {"name": base.name, "recipe": base.recipe, **origin})
    return place


def build_parts(folder: str | Path, config: BaseConfig, sizes: Sequence[str], variants: Sequence[str]) -> list[Path]:
    return [build_part(folder, config, base) for base in wanted_bases(config, sizes, variants)]


def wanted_bases(config: BaseConfig, sizes: Sequence[str], variants: Sequence[str]) -> list[Base]:
    """Every base that captioners of these sizes and variants are made of, once."""
    wanted = {base.name: base for size in sizes for v in variants for base in needed_bases(config, size, v)}
    return list(wanted.values())


def _fields(config: BaseConfig, names: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(config, name) for name in names}


def _write_tower(folder: Path, config: BaseConfig, weights: dict[str, Tensor] | None) -> dict[str, float]:
    measured: dict[str, float] = {}
    if weights is None:
        trained, measured = train_tower(config)
        weights = _rounded(trained)
    save_file(weights, folder / TOWER_FILE)
    return measured


def load_tower(folder: str | Path) -> Any:
    tower = make_tower()
    tower.load_state_dict(load_file(Path(folder) / TOWER_FILE))
    return tower.eval()


def _write_florence(
    folder: Path, bases: Path, config: BaseConfig, base: Base, weights: dict[str, Tensor] | None
) -> dict[str, float]:
    encoder_tokenizer, decoder_tokenizer = base_tokenizers(*_fields(config, TOKENIZER_FIELDS).values())
    tower = load_tower(build_part(bases, config, tower_base(config)))
    measured: dict[str, float] = {}
    if weights is None:
        maps, scenes = _pictures(str(bases / tower_base(config).name), config.num_pictures, config.seed)
        own = config.for_letter(base.letter)
        model, loss = train_captioner(base.letter, tower, maps, scenes, encoder_tokenizer, own)
        measured, weights = {"loss": loss}, _rounded(model, without="model.vision_tower.")
    model = make_captioner(base.letter, tower, encoder_tokenizer, config.seed)
    _load(model, weights, absent="model.vision_tower.")
    _save(model, folder)
    encoder_tokenizer.save_pretrained(folder)
    # What the vocabulary is mapped to lies beside it, as Gemma's tokenizer does where Florence-2 is remapped.
    decoder_tokenizer.save_pretrained(folder / DECODER_TOKENIZER)
    return measured


def _write_gemma(folder: Path, config: BaseConfig, base: Base, weights: dict[str, Tensor] | None) -> dict[str, float]:
    _, tokenizer = base_tokenizers(*_fields(config, TOKENIZER_FIELDS).values())
    measured: dict[str, float] = {}
    if weights is None:
        model, loss = train_language_model(base.letter, config.variants[base.variant], tokenizer, config)
        measured, weights = {"loss": loss}, _rounded(model)
    model = make_language_model(base.letter, tokenizer, config.seed)
    _load(model, weights)
    _save(model, folder)
    tokenizer.save_pretrained(folder)
    return measured


def _save(model: Any, folder: Path) -> None:
    """Without transformers' progress bar: the models are small."""
    was_enabled = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        model.save_pretrained(folder)
    finally:
        if was_enabled:
            logging.enable_progress_bar()


@lru_cache(maxsize=1)
def base_tokenizers(seed: int, num_encoder_tokens: int, num_decoder_tokens: int) -> tuple[Any, Any]:
    return make_tokenizers(seed, num_encoder_tokens, num_decoder_tokens)


@lru_cache(maxsize=1)
def _pictures(tower_folder: str, num_pictures: int, seed: int) -> tuple[Tensor, list[Any]]:
    """The tower's maps of its own pictures, and their scenes."""
    pictures = labelled_pictures(num_pictures, seed, with_cells=False)
    scenes = [picture_scene(seed, "tower", number) for number in range(num_pictures)]
    return tower_maps(load_tower(tower_folder), pictures.pixels), scenes


def _rounded(model: nn.Module, without: str = "") -> dict[str, Tensor]:
    """Weights to 16 bits and back; what is tied to another weight is left out."""
    kept: dict[str, Tensor] = {}
    seen: set[int] = set()
    for name, tensor in model.state_dict().items():
        if (without and name.startswith(without)) or tensor.data_ptr() in seen:
            continue
        seen.add(tensor.data_ptr())
        kept[name] = tensor.detach().half().to(tensor.dtype).clone() if tensor.is_floating_point() else tensor.clone()
    return kept


def _load(model: nn.Module, weights: dict[str, Tensor], absent: str = "") -> None:
    """Every weight but those of the part named `absent`, which the model has already, and those tied to another."""
    result = model.load_state_dict({name: tensor.float() for name, tensor in weights.items()}, strict=False)
    model.tie_weights()  # type: ignore[operator]
    tied = {name for name, tensor in model.state_dict().items() if name in result.missing_keys}
    pointers = {model.state_dict()[name].data_ptr() for name in weights}
    lost = [
        n for n in tied if not (absent and n.startswith(absent)) and model.state_dict()[n].data_ptr() not in pointers
    ]
    if lost or result.unexpected_keys:
        raise UserError(f"base weights do not fit the model: missing {lost[:3]}, unknown {result.unexpected_keys[:3]}")


def shipped_weights(base: Base) -> dict[str, Tensor] | None:
    """What the package brings of this very recipe, checked against the list of hashes."""
    folder = Path(str(files("babelcap.bases"))) / SHIPPED
    path = folder / f"{base.name}.safetensors"
    if not path.is_file():
        return None
    listed = read_json(folder / HASHES).get(path.name)
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if listed != found:
        raise UserError(
            f"{path} is damaged: its hash is {found[:12]}, listed is {str(listed)[:12]}; install babelcap again"
        )
    return {name: tensor.float() if tensor.is_floating_point() else tensor for name, tensor in load_file(path).items()}


def ship_bases(folder: str | Path, output: str | Path, bases: Sequence[Base]) -> dict[str, str]:
    """Writes built bases as the package brings them: weights of 16 bits, and a list of hashes that is added to."""
    listed = Path(output) / HASHES
    hashes: dict[str, str] = read_json(listed) if listed.is_file() else {}
    for base in bases:
        place = Path(folder) / base.name
        weights = load_file(place / (TOWER_FILE if base.kind == "tower" else "model.safetensors"))
        kept = {name: tensor for name, tensor in weights.items() if not name.startswith("model.vision_tower.")}
        path = Path(output) / f"{base.name}.safetensors"
        with atomic_file(path) as partial:
            save_file({n: t.half() if t.is_floating_point() else t for n, t in kept.items()}, partial)
        hashes[path.name] = hashlib.sha256(path.read_bytes()).hexdigest()
    write_json(listed, dict(sorted(hashes.items())))
    return hashes
