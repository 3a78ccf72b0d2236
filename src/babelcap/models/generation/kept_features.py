"""Image tokens kept in a folder on request, so that captioning its images again leaves out the vision tower.

    <folder>/<tower>/<image>.tokens    SHA-256 of what follows, then the tokens of one image as safetensors

`tower` names all that turns pixels into tokens: the settings and weights of the captioner's tower, their type, and
whether it is rounded. `image` is the SHA-256 of the pixels as the tower gets them, wherever they came from. A file that
is not as its checksum says is computed again.
"""

import hashlib
from collections.abc import Hashable, Mapping
from pathlib import Path

from safetensors.torch import load, save
from torch import Tensor

from babelcap.errors import UserError
from babelcap.models.network.captioner import Captioner
from babelcap.models.network.tower import tower_settings, weights_hash
from babelcap.storage import atomic_file, read_bytes, text_sha256

VERSION = 1  # of what a tower's code computes: raise it where results change
MAX_TOKENS_BYTES = 1 << 28  # of one image
DIGEST_BYTES = 32
TOKENS = "tokens"


class KeptFeatures:
    def __init__(self, folder: str | Path, model: Captioner) -> None:
        depends_on = {
            "version": VERSION,
            "tower": tower_settings(model.encoder),
            "weights": weights_hash(model.encoder.image_modules()),
            "type": str(model.dtype),
            "quantise": model.quantise,
        }
        self.folder = Path(folder) / text_sha256(depends_on)[:16]
        if Path(folder).exists() and not Path(folder).is_dir():
            raise UserError(f"{folder} is a file; features are kept in a folder")

    def read(self, pixels: Mapping[Hashable, Tensor]) -> dict[Hashable, Tensor]:
        """Those that are there, by the names of their pixels."""
        found = {key: self._tokens(self._place(image)) for key, image in pixels.items()}
        return {key: tokens for key, tokens in found.items() if tokens is not None}

    def write(self, pixels: Mapping[Hashable, Tensor], tokens: Mapping[Hashable, Tensor]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for key, image in pixels.items():
            held = save({TOKENS: tokens[key].contiguous().cpu()})
            with atomic_file(self._place(image)) as path:
                path.write_bytes(hashlib.sha256(held).digest() + held)

    def _place(self, pixels: Tensor) -> Path:
        name = hashlib.sha256(f"{tuple(pixels.shape)} ".encode() + pixels.numpy().tobytes()).hexdigest()
        return self.folder / f"{name}.tokens"

    def _tokens(self, path: Path) -> Tensor | None:
        if not path.is_file():
            return None
        contents = read_bytes(path, MAX_TOKENS_BYTES)
        digest, held = contents[:DIGEST_BYTES], contents[DIGEST_BYTES:]
        return load(held)[TOKENS] if hashlib.sha256(held).digest() == digest else None
