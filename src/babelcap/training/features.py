"""Image tokens of a frozen tower, computed once per image and kept beside the corpus.

`<corpus>/features/<hash of the tower's weights and the image size>/` holds one memory-mapped array [images, tokens,
width] and one byte a chunk that says it is done: building goes on where it stopped, and several ranks build together.
An image that cannot be decoded has NaN in its place, and is skipped when it is read, like a bad image anywhere.
"""

import hashlib
import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
from torch import nn

from babelcap.data.feed.batches import BatchConfig
from babelcap.data.feed.images import decode_image, square_pixels
from babelcap.data.store.index import CorpusIndex
from babelcap.errors import BadSample, UserError
from babelcap.jobs.progress import progress
from babelcap.models.network.captioner import Captioner
from babelcap.storage import locked, read_json, write_json
from babelcap.training.parallel import World

CHUNK = 256  # images


def weights_hash(modules: list[nn.Module]) -> str:
    digest = hashlib.sha256()
    for module in modules:
        for name, tensor in sorted(module.state_dict().items()):
            digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype}".encode())
            digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


class FeatureStore:
    """Reads an image's tokens by its number; safe to hand to worker processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        shape = read_json(folder / "shape.json")
        self.shape = tuple(shape["shape"])
        self._features: np.ndarray | None = None

    def __getstate__(self) -> dict:
        return self.__dict__ | {"_features": None}

    def __call__(self, image_number: int) -> torch.Tensor:
        if self._features is None:
            self._features = np.memmap(self.folder / "features.f32", dtype=np.float32, mode="r", shape=self.shape)
        tokens = np.array(self._features[image_number])
        if np.isnan(tokens[0, 0]):
            raise BadSample("corrupt image", "no features could be computed")
        return torch.from_numpy(tokens)


def open_features(
    model: Captioner, index: CorpusIndex, data_config: BatchConfig, world: World, device: torch.device
) -> FeatureStore:
    """The image tokens of a whole corpus: computed by the first who asks, awaited by others on the same corpus."""
    tower = [model.encoder.vision_tower, model.encoder.projector]
    place = index.corpus.folder / "features" / feature_key(weights_hash(tower), data_config.image_size_px)
    model.to(device).eval()

    def compute(pixels: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return model.encode_images(pixels.to(device))

    # One process speaks for its ranks: the others would wait for it while it waits for them.
    with locked(place.parent / f"{place.name}.lock") if world.is_first else nullcontext():
        return build_features(index, place, compute, data_config, world)


def build_features(
    index: CorpusIndex,
    place: Path,
    compute: Callable[[torch.Tensor], torch.Tensor],
    config: BatchConfig,
    world: World,
) -> FeatureStore:
    """`compute` maps pixels [n, 3, px, px] to tokens [n, tokens, width]."""
    probe = compute(torch.zeros(1, 3, config.image_size_px, config.image_size_px))
    shape = (index.num_images, probe.shape[1], probe.shape[2])
    num_chunks = -(-shape[0] // CHUNK)
    if world.is_first:
        _lay_out(place, shape, num_chunks)
    world.wait()
    done = np.memmap(place / "done.u8", dtype=np.uint8, mode="r+", shape=(num_chunks,))
    mine = [chunk for chunk in range(world.rank, num_chunks, world.size) if not done[chunk]]
    features = np.memmap(place / "features.f32", dtype=np.float32, mode="r+", shape=shape)
    with progress("Image features", len(mine)) as advance:
        for chunk in mine:
            numbers = range(chunk * CHUNK, min((chunk + 1) * CHUNK, shape[0]))
            features[numbers.start : numbers.stop] = _chunk_features(index, numbers, compute, config)
            features.flush()  # the data is on disk before the byte that vouches for it
            done[chunk] = 1
            done.flush()
            advance(1)
    world.wait()
    return FeatureStore(place)


def _lay_out(place: Path, shape: tuple[int, ...], num_chunks: int) -> None:
    described = place / "shape.json"
    if described.exists():
        found = tuple(read_json(described)["shape"])
        if found != shape:
            raise UserError(f"{place} holds features of shape {list(found)}, expected {list(shape)}; remove the folder")
        return
    place.mkdir(parents=True, exist_ok=True)
    np.memmap(place / "features.f32", dtype=np.float32, mode="w+", shape=shape).flush()
    np.memmap(place / "done.u8", dtype=np.uint8, mode="w+", shape=(num_chunks,)).flush()
    write_json(described, {"shape": list(shape), "chunk": CHUNK})


def _chunk_features(
    index: CorpusIndex, numbers: range, compute: Callable[[torch.Tensor], torch.Tensor], config: BatchConfig
) -> np.ndarray:
    size_px = config.image_size_px
    pixels = np.zeros((len(numbers), 3, size_px, size_px), dtype=np.float32)
    bad = []
    for row, number in enumerate(numbers):
        try:
            image = decode_image(index.read_image(number), size_px)
            pixels[row] = square_pixels(image, size_px, config.image_mean, config.image_std)
        except BadSample:
            bad.append(row)
    tokens = compute(torch.from_numpy(pixels)).float().cpu().numpy()
    tokens[bad] = np.nan
    return tokens


def feature_key(tower_hash: str, image_size_px: int) -> str:
    canonical = json.dumps({"tower": tower_hash, "image_size_px": image_size_px})
    return f"{hashlib.sha256(canonical.encode()).hexdigest()[:16]}-{image_size_px}px"
