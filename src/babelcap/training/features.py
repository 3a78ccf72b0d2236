"""Image tokens of a frozen tower, computed once per image and kept beside the corpus, tar by tar.

    <corpus>/features/<key>/<id>.f32    float32 [images of the tar, tokens, width]
    <corpus>/features/<key>/<id>.sums   16 bytes a block of 256 images: its checksum, zeros where it is not computed
    <corpus>/features/<key>/whole.json  size, time of change and inode of the files that were found to be whole

The key covers all that turns an image into tokens: the tower's settings, weights and their type, image size, mean and
deviation, and the code that decodes and resizes. The id covers a tar's bytes (its SHA-256, computed again where the
file's size, time of change or inode differ) and which of its members are images of the corpus. So a new tar costs one
tar, and nothing is taken for something else. A block that is not as its checksum says is computed again. Building goes
on where it stopped, and several ranks build together. An image that cannot be decoded has NaN in its place, and is
skipped when it is read, like a bad image anywhere.
"""

import bisect
import hashlib
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import PIL
import torch
from torch import Tensor

from babelcap.data.feed import images
from babelcap.data.feed.batches import BatchConfig
from babelcap.data.store.index import CorpusIndex
from babelcap.errors import BadSample, UserError
from babelcap.models.network.captioner import Captioner
from babelcap.models.network.tower import tower_settings, weights_hash
from babelcap.storage import RememberedChecksums, file_sha256, locked, text_sha256
from babelcap.training.feature_files import FeatureFolder, TarFeatures
from babelcap.training.parallel import World

CODE_VERSION = 3  # of this file and of what the tower's code computes: raise it where results change
IMAGES_AT_ONCE = 16  # the maps of a whole block would be gigabytes, mapped anew for each layer


class FeatureStore:
    """Reads an image's tokens by its number; safe to hand to worker processes."""

    def __init__(self, tars: list[TarFeatures], shape: tuple[int, int]) -> None:
        self.tars = tars
        self.shape = shape
        self._starts = [tar.first for tar in tars]
        self._mapped: dict[int, np.ndarray] = {}

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_mapped": {}}

    def __call__(self, image_number: int) -> Tensor:
        place = bisect.bisect_right(self._starts, image_number) - 1
        tar = self.tars[place]
        if place not in self._mapped:
            shape = (tar.num_images, *self.shape)
            self._mapped[place] = np.memmap(tar.path, dtype=np.float32, mode="r", shape=shape)
        tokens = np.array(self._mapped[place][image_number - tar.first])
        if np.isnan(tokens[0, 0]):
            raise BadSample("corrupt image", "no features could be computed")
        return torch.from_numpy(tokens)


def open_features(
    model: Captioner, index: CorpusIndex, data_config: BatchConfig, world: World, device: torch.device
) -> FeatureStore:
    """The image tokens of all images of a corpus, as the model's tower gives them: verified, and computed if need be.

    Several processes may ask at once: the first computes, the others wait. The ranks of a run work together.
    """
    model.to(device).eval()

    def compute(pixels: Tensor) -> Tensor:
        with torch.inference_mode():
            return model.encode_images(pixels.to(device))

    folder = index.corpus.folder / "features"
    place = folder / feature_key(model, data_config)
    with locked(place.with_name(f"{place.name}.lock")) if world.is_first else nullcontext():
        world.wait()
        size_px = data_config.image_size_px
        shape = compute(torch.zeros(1, 3, size_px, size_px)).shape[1:]
        tars = _tar_files(index, folder, place, world)

        def tokens_of(numbers: range) -> np.ndarray:
            return _image_tokens(index, numbers, compute, data_config)

        FeatureFolder(place, tars, (shape[0], shape[1]), world).complete(tokens_of)
        world.wait()
    return FeatureStore(tars, (shape[0], shape[1]))


def feature_key(model: Captioner, config: BatchConfig) -> str:
    """Names all that the features of an image depend on beside the image."""
    encoder = model.encoder
    depends_on = {
        "code": [CODE_VERSION, file_sha256(str(images.__file__)), PIL.__version__],
        "tower": tower_settings(encoder),
        "weights": weights_hash(encoder.image_modules()),
        "image": [config.image_size_px, config.image_mean, config.image_std],
        "type": "float32",
    }
    return f"{text_sha256(depends_on)[:16]}-{config.image_size_px}px"


def _tar_files(index: CorpusIndex, folder: Path, place: Path, world: World) -> list[TarFeatures]:
    """One file for each tar that has images, named by what is in the tar. The ranks share the reading."""
    shards = index.corpus.manifest.shards
    remembered = RememberedChecksums(folder / f"tars-{world.rank}-of-{world.size}.json")
    digests: dict[int, str] = {}
    for number in range(world.rank, len(shards), world.size):
        shard, path = shards[number], index.corpus.tar_path(shards[number].tar)
        if not path.is_file():
            raise UserError(f"{path}: no such file; the corpus is incomplete")
        digests[number] = remembered.sha256(path)
        if path.stat().st_size != shard.tar_bytes or shard.tar_sha256 not in (None, digests[number]):
            raise UserError(f"{path} is not the tar that was indexed; index it again, or get it again if it is damaged")
    remembered.save()
    digests = {number: digest for part in world.gather(digests) for number, digest in part.items()}
    tars = []
    for number in range(len(shards)):
        numbers, places = index.images_of_tar(number)
        if numbers:
            digest = hashlib.sha256(digests[number].encode() + places.astype("<i8").tobytes()).hexdigest()
            tars.append(TarFeatures(place / f"{digest[:32]}.f32", numbers.start, len(numbers)))
    return tars


def _image_tokens(
    index: CorpusIndex, numbers: range, compute: Callable[[Tensor], Tensor], config: BatchConfig
) -> np.ndarray:
    """`compute` maps pixels [n, 3, px, px] to tokens [n, tokens, width]; NaN for images that cannot be decoded."""
    size_px = config.image_size_px
    pixels = np.zeros((len(numbers), 3, size_px, size_px), dtype=np.float32)
    bad = []
    for row, number in enumerate(numbers):
        try:
            image = images.decode_image(index.read_image(number), size_px)
            pixels[row] = images.square_pixels(image, size_px, config.image_mean, config.image_std)
        except BadSample:
            bad.append(row)
    parts = [compute(part).float().cpu() for part in torch.from_numpy(pixels).split(IMAGES_AT_ONCE)]
    tokens = torch.cat(parts).numpy()
    tokens[bad] = np.nan
    return tokens
